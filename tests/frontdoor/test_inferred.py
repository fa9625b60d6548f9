"""What was read off a table is said; dummies that belong together move together."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import cel


def test_types_ranges_and_choices_are_told():
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame(
        {
            "income": rng.integers(10, 99, n),
            "price": rng.random(n).round(2),
            "size": pd.Categorical(rng.choice(list("SML"), n), list("SML"), ordered=True),
            "job": rng.choice(["a", "b"], n),
            "smoker": rng.random(n) < 0.5,
            "since": pd.date_range("2020-01-01", periods=n),
        }
    )

    def ask(rows):
        return (rows["income"] > 50).to_numpy(float)

    explainer = cel.Explainer(
        ask, frame, classes=[0, 1], immutable=["job"], increasing=["size"], weights={"price": 3},
        ranges={"income": (20, 80)}, max_changes=2,
    )  # fmt: skip
    table = explainer.inferred.table
    assert dict(table.kind) == {
        "income": "whole number", "price": "number, 2 decimals", "size": "ordered labels",
        "job": "labels", "smoker": "yes or no", "since": "travels along",
    }  # fmt: skip
    assert table.loc["income", "values"] == "20 to 80"
    assert table.loc["size", "values"] == "S < M < L"
    assert table.loc["job", "changes"] == "never"
    assert table.loc["size", "changes"] == "only up"
    assert table.loc["price", "changes"] == "freely, weight 3"
    text = repr(explainer.inferred)
    assert "At most 2 columns change" in text
    assert "Nothing but predictions can be seen of the model" in text
    result = explainer.explain(frame[frame.income < 50].head(2), 1)
    assert result.logs["chosen"] in text
    assert "<table" in explainer.inferred._repr_html_()


@pytest.mark.parametrize("kind", ["int", "float", "bool"])
@pytest.mark.parametrize("trees", [False, True])
def test_dummies_stay_one_hot(kind, trees):
    rng = np.random.default_rng(1)
    n = 300
    jobs = pd.get_dummies(pd.Series(rng.choice(["a", "b"] if kind == "bool" else list("abc"), n)),
                          prefix="job").astype(kind)  # fmt: skip
    frame = pd.concat(
        [pd.DataFrame({"x": rng.normal(size=n), "z": rng.normal(size=n)}), jobs], axis=1
    )
    y = frame.x + 2 * frame.job_b.astype(int) > 1
    model = (RandomForestClassifier(20, random_state=0) if trees else LogisticRegression()).fit(
        frame, y
    )
    explainer = cel.Explainer(model, frame, target=True)
    assert explainer.inferred.dummies == (tuple(jobs.columns),)
    rows = frame[~model.predict(frame)].head(25)
    result = explainer.explain(rows, n=3)
    assert result.found.mean() > 0.9
    sets = result.to_frame(sets=True)
    assert (sets[list(jobs.columns)].astype(int).sum(axis=1) == 1).all()
    held = cel.explain(model, rows, background=frame, target=True, immutable=["x", "z"])
    assert held.found.any()
    answers = held.to_frame()[list(jobs.columns)].astype(int)
    assert (answers.sum(axis=1) == 1).all()
    assert (answers != rows.loc[answers.index, list(jobs.columns)].astype(int)).any(axis=1).all()
