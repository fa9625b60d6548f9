"""Mistakes of a user: answered in her words, or done right."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import cel
from cel.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def credit():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"income": rng.integers(10, 99, 120), "home": rng.choice(["own", "rent"], 120)}
    )
    coder = make_column_transformer((OneHotEncoder(), ["home"]), remainder="passthrough")
    y = np.where(frame.income + 20 * (frame.home == "own") > 65, "good", "bad")
    model = make_pipeline(coder, LogisticRegression(max_iter=1000)).fit(frame, y)
    return model, frame, frame[model.predict(frame) == "bad"].head(3)


def call(credit, **changes):
    model, frame, rows = credit
    given = {"model": model, "X": rows, "train": frame, "target": "good"} | changes
    return cel.explain(**given)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"target": "Good"}, ConfigError, "the classes are .'bad', 'good'.; did you mean 'good'"),
        ({"target": 1}, ConfigError, "unknown target class 1; the classes are .'bad', 'good'"),
        ({"target": 0.8}, ConfigError, "unknown target class 0.8; the classes are .'bad'"),
        ({"target": ["good", "good"]}, DataError, "2 targets for 3 rows"),
        ({"immutable": "incom"}, ConfigError, "unknown column 'incom'; did you mean 'income'"),
        ({"start_outside": "x"}, ConfigError, "start_outside is 'x'; use 'inside' or 'widen'"),
        ({"on_error": "x"}, ConfigError, "on_error is 'x'; use 'keep' or 'raise'"),
    ],
)
def test_what_is_refused_and_how(credit, changes, error, said):
    with pytest.raises(error, match=said):
        call(credit, **changes)


def test_rows_in_other_shapes(credit):
    rows = credit[2]
    want = call(credit, method="dice").to_frame()
    records = call(credit, X=rows.to_dict("records"), method="dice").to_frame()
    assert records.reset_index(drop=True).equals(want.reset_index(drop=True))
    mixed = call(credit, X=rows.to_numpy(dtype=object), method="dice").to_frame()
    assert mixed.reset_index(drop=True).equals(want.reset_index(drop=True))
    with pytest.raises(DataError, match="got a Series"):
        call(credit, X=rows.iloc[0])
    with pytest.raises(DataError, match="3 columns, but 2 are known"):
        call(credit, X=np.zeros((2, 3)))
    with pytest.raises(DataError, match="did you mean 'incme'"):
        call(credit, X=rows.rename(columns={"income": "incme"}))
    assert len(call(credit, X=rows.head(0), method="dice")) == 0

    class OtherTable:
        def to_pandas(self):
            return rows

    assert call(credit, X=OtherTable(), method="dice").found.all()


def test_one_name_is_one_column(credit):
    answers = call(credit, immutable="income", method="dice").to_frame()
    assert (answers.income == credit[2].income.loc[answers.index]).all()


def test_a_model_that_fails_for_every_row_says_why(credit):
    def broken(rows):
        raise KeyError("no such table")

    with pytest.raises(KeyError, match="no such table"):
        call(credit, model=broken, classes=["bad", "good"])
    with pytest.raises(ConfigError, match=r"task='classification' with classes="):
        call(credit, model=lambda rows: np.ones(len(rows)))


def test_numbers_of_another_kind_than_training_are_kept(credit):
    rows = credit[2].astype({"income": float})
    rows.iloc[0, 0] += 0.5
    answers = call(credit, X=rows, immutable=["income"], method="dice").to_frame()
    assert (answers.income == rows.income.loc[answers.index]).all()
