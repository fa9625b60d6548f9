"""Mistakes of a user: answered in her words, or done right."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import cel
from cel.errors import CelError, ConfigError, DataError
from cel.preprocessing import infer_space


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
    given = {"model": model, "X": rows, "background": frame, "target": "good"} | changes
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
        ({"target": ("good", 0.8)}, ConfigError, "write {'approved': 0.8}"),
        ({"target": {"good": "often"}}, ConfigError, "give a number between 0 and 1"),
        ({"time_limit": -1}, ConfigError, "time_limit is -1; give seconds, such as 10, or None"),
        ({"time_limit": "10"}, ConfigError, "time_limit is '10'; give seconds"),
        ({"time_limit": float("nan")}, ConfigError, "time_limit is nan; give seconds"),
        ({"n": 0}, ConfigError, "n is 0; give the number of answers per row, 1 or more"),
        ({"n": 2.5}, ConfigError, "n is 2.5; give the number of answers per row"),
        ({"n": True}, ConfigError, "n is True; give the number of answers per row"),
        ({"total_CFs": 2.5}, ConfigError, "total_CFs is 2.5; give a whole number"),
        ({"total_CFs": 0}, ConfigError, "total_CFs is 0; give a whole number, 1 or more"),
        ({"random_state": None}, ConfigError, "random_state is None; give a whole number"),
        ({"method": "DICE"}, ConfigError, "unknown method 'DICE'; did you mean 'dice'"),
        ({"method": "genetic"}, ConfigError, "did you mean 'dice_genetic'"),
        ({"method": "sace", "n": 3}, ConfigError, "sace gives one answer per row; leave n=1"),
        ({"directions": {"income": "up"}}, ConfigError, r"use increasing=\[...\]"),
        ({"permitted_range": {}}, ConfigError, "use ranges= for numbers and allowed= for"),
        ({"total_cfs": 3}, ConfigError, "unknown keyword 'total_cfs'; use n="),
        ({"immutble": ["income"]}, ConfigError, "unknown keyword 'immutble'; did you mean 'immut"),
        ({"model": "model.pkl"}, ConfigError, "the model is a path, 'model.pkl'; load it first"),
        ({"model": LogisticRegression}, ConfigError, "the class LogisticRegression; give a fit"),
        ({"model": LogisticRegression()}, ConfigError, "is it fitted"),
        ({"background": None, "train": None}, ConfigError, "give background=, the table of train"),
        ({"task": "guessing"}, ConfigError, "unknown task 'guessing'"),
        ({"method": "ppcef"}, CelError, "needs a density"),
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


def test_the_background_may_come_third(credit):
    model, frame, rows = credit
    assert cel.explain(model, rows, frame, target="good", method="dice").found.all()
    with pytest.raises(DataError, match="the background table has no rows"):
        cel.explain(model, rows, frame.head(0), target="good")


def test_a_model_that_throws_dice_is_told(credit):
    _, frame, rows = credit
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="different things for the same rows"):
        cel.explain(lambda r: rng.random(len(r)), rows, frame, classes=["bad", "good"],
                    target="good", method="nearest")  # fmt: skip


def test_levels_that_no_background_row_has_are_not_reached(credit):
    _, frame, _ = credit
    levels = ["own", "rent", "boat", "tent"]
    table = frame.assign(home=pd.Categorical(frame.home, levels))

    def ask(rows):
        return 0.2 + 0.6 * rows["home"].isin(["boat", "own"]).to_numpy(float)

    rows = table[table.home == "rent"].head(5)
    result = cel.explain(ask, rows, table, classes=[0, 1], target=1, n=3)
    assert set(result.to_frame(sets=True).home) == {"own"}
    assert list(result.to_frame().home.cat.categories) == levels
    free = cel.explain(ask, rows, table, classes=[0, 1], target=1, allowed={"home": ["boat"]})
    assert set(free.to_frame().home) == {"boat"}


def test_a_space_can_be_given_to_the_call(credit):
    _, frame, rows = credit
    space = infer_space(frame, immutable=["home"])
    answers = call(credit, space=space).to_frame()
    assert (answers.home == rows.home).all()


# -- what simply works -------------------------------------------------------------------------


def test_without_a_target_two_classes_mean_the_other_one(credit):
    model, frame, rows = credit
    result = cel.explain(model, rows, frame)
    assert (model.predict(result.to_frame()) == "good").all()
    three = LogisticRegression(max_iter=500).fit(frame[["income"]], frame.income // 34)
    with pytest.raises(ConfigError, match="3 classes"):
        cel.explain(three, frame[["income"]].head(2), frame[["income"]])


def test_rows_that_are_as_wanted_already(credit):
    model, frame, _ = credit
    good = frame[model.predict(frame) == "good"].head(2)
    assert call(credit, X=good).status.tolist() == ["not_applicable"] * 2


def test_columns_come_back_in_the_order_in_which_they_came(credit):
    rows = credit[2][["home", "income"]]
    answers = call(credit, X=rows).to_frame()
    assert list(answers.columns) == ["home", "income"]
    other = call(credit).to_frame()[["home", "income"]]
    pd.testing.assert_frame_equal(answers, other)


def test_indexes_that_repeat_are_kept(credit):
    rows = credit[2].set_axis(pd.Index([7, 7, 8], name="customer"))
    answers = call(credit, X=rows).to_frame()
    assert answers.index.equals(rows.index)
    assert answers.index.name == "customer"


@pytest.mark.parametrize("names", [[0, 1], pd.MultiIndex.from_tuples([("x", "a"), ("x", "b")])])
def test_names_of_columns_that_are_no_text(credit, names):
    _, frame, rows = credit
    with pytest.raises(DataError, match="is no text; rename the column"):
        cel.explain(
            lambda r: np.ones((len(r), 2)) / 2, rows.set_axis(names, axis=1),
            frame.set_axis(names, axis=1), classes=[0, 1], target=1,
        )  # fmt: skip


def test_a_model_that_prints(credit, capsys):
    model, frame, rows = credit

    def loud(table):
        print("asked")
        return model.predict_proba(table)

    result = cel.explain(loud, rows, frame, classes=["bad", "good"], target="good")
    assert result.found.all()
    assert "asked" in capsys.readouterr().out


def test_columns_without_news_and_many_labels(credit):
    model, frame, _ = credit
    wide = frame.assign(
        yes=frame.income > 50, same="x", one=1.0, code=[f"customer {i}" for i in range(len(frame))]
    )
    wide = pd.concat([wide] * 20, ignore_index=True)
    wide["code"] = [f"customer {i}" for i in range(len(wide))]

    def ask(rows):
        assert rows["same"].eq("x").all()
        assert rows["one"].eq(1.0).all()
        return model.predict_proba(rows[["income", "home"]])

    rows = wide[model.predict(wide[["income", "home"]]) == "bad"].head(3)
    result = cel.explain(ask, rows, wide, classes=["bad", "good"], target="good")
    answers = result.to_frame()
    assert len(answers) == 3
    assert answers[["yes", "code"]].equals(rows[["yes", "code"]])


def test_numbers_and_text_in_one_column(credit):
    model, frame, _ = credit
    mixed = frame.assign(note=[1, "two"] * (len(frame) // 2))
    rows = mixed[model.predict(frame) == "bad"].head(3)

    def ask(table):
        return model.predict_proba(table[["income", "home"]])

    result = cel.explain(ask, rows, mixed, classes=["bad", "good"], target="good")
    assert result.to_frame()["note"].tolist() == rows["note"].tolist()


def test_everything_immutable_is_proved_to_be_impossible(credit):
    result = call(credit, immutable=["income", "home"])
    assert result.status.tolist() == ["infeasible"] * 3


def test_infinite_numbers_in_the_background_are_named(credit):
    model, frame, rows = credit
    wrong = frame.astype({"income": float})
    wrong.iloc[3, 0] = np.inf
    with pytest.raises(DataError, match="income"):
        cel.explain(model, rows, wrong, target="good")


def test_twenty_rows_and_a_hundred_thousand(credit):
    model, frame, rows = credit
    assert cel.explain(model, rows, frame.head(20), target="good").found.all()
    many = pd.concat([frame] * 850, ignore_index=True)
    assert cel.explain(model, rows, many, target="good").found.all()
