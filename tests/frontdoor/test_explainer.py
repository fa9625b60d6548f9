"""The explainer: fitted once, asked often."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import cel
from cel.cf_methods.base import BaseCounterfactualMethod
from cel.errors import ConfigError


@pytest.fixture(scope="module")
def credit():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.integers(10, 99, 300), "debt": rng.random(300).round(3)})
    y = np.where(frame.income - 60 * frame.debt > 30, "good", "bad")
    model = LogisticRegression(max_iter=1000).fit(frame, y)
    return model, frame, frame[model.predict(frame) == "bad"]


def test_it_fits_once(credit, monkeypatch):
    model, frame, rows = credit
    fits = []
    own = BaseCounterfactualMethod.fit
    monkeypatch.setattr(
        BaseCounterfactualMethod, "fit", lambda self, data: fits.append(1) or own(self, data)
    )
    explainer = cel.Explainer(model, frame, target="good", immutable=["debt"])
    whole = explainer.explain(rows.head(6))
    alone = [explainer.explain(rows.iloc[i : i + 1]).to_frame() for i in range(6)]
    assert len(fits) == 1
    pd.testing.assert_frame_equal(pd.concat(alone), whole.to_frame())
    once = cel.explain(model, rows.head(6), background=frame, target="good", immutable=["debt"])
    pd.testing.assert_frame_equal(once.to_frame(), whole.to_frame())


def test_a_target_of_the_call_comes_first(credit):
    model, frame, _ = credit
    explainer = cel.Explainer(model, frame, target="good")
    happy = frame[model.predict(frame) == "good"].head(3)
    assert explainer.explain(happy).counts() == {"not_applicable": 3}
    assert explainer.explain(happy, "bad").found.all()


def test_regression_needs_a_wish_from_one_of_the_two():
    frame = pd.DataFrame({"area": np.arange(20.0, 120.0), "floor": np.arange(100) % 7})
    model = LinearRegression().fit(frame, 3 * frame.area)
    explainer = cel.Explainer(model, frame)
    with pytest.raises(ConfigError, match="say what the prediction should become"):
        explainer.explain(frame.head(2))
    assert (model.predict(explainer.explain(frame.head(2), ">= 90").to_frame()) >= 90).all()


def test_background_has_two_names_and_is_given_once(credit):
    model, frame, rows = credit
    with pytest.raises(ConfigError, match="mean the same"):
        cel.explain(model, rows, background=frame, train=frame)
    with pytest.raises(ConfigError, match="give background="):
        cel.explain(model, rows)
