"""What goes in comes back: every cell that is not listed as changed is the owner's own."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression

import cel
from cel.cf_methods.goals import at_least, at_most, between, change
from cel.errors import ConfigError, DataError
from cel.preprocessing import GivenRows, infer_space
from cel.result import ExplanationResult


def table(n=240, seed=0):
    """Return a table with everything that people keep in tables, and its labels."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "account": rng.integers(10**7, 10**10, n),
            "salary": rng.gamma(3, 9000, n).round(2),
            "age": rng.integers(18, 80, n),
            "debt": rng.normal(size=n),
            "rooms": rng.integers(1, 6, n).astype(float),
            "job": rng.choice(["clerk", "nurse", "pilot"], n),
            "size": pd.Categorical(rng.choice(["S", "M", "L"], n), ["S", "M", "L"], ordered=True),
            "town": pd.Categorical(rng.choice(["A", "B"], n), ["A", "B", "C"]),
            "smoker": rng.random(n) < 0.3,
            "children": pd.array(rng.integers(0, 5, n), dtype="Int64"),
            "points": pd.array(rng.integers(0, 50, n), dtype="int64[pyarrow]"),
            "colour": pd.array(rng.choice(["red", "blue"], n), dtype="string[pyarrow]"),
            "since": pd.date_range("2001-03-01", periods=n, freq="17h", tz="Europe/Warsaw"),
            "name": [f"person {i}" for i in range(n)],
            "fee": [Decimal(i) / 7 for i in range(n)],
        }
    )
    frame.loc[frame.index % 9 == 0, "salary"] = np.nan
    frame.loc[frame.index % 11 == 0, "children"] = pd.NA
    score = frame.salary.fillna(20000) / 30000 + frame.debt + (frame.job == "pilot")
    frame.index = pd.MultiIndex.from_arrays(
        [frame.since, frame.index], names=["opened", "customer"]
    )
    return frame, np.where(score > 1.2, "yes", "no")


READ = ["salary", "age", "debt", "job", "smoker", "rooms"]


def pipeline(frame, y):
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    columns = ColumnTransformer(
        [
            ("n", SimpleImputer(), ["salary", "age", "debt", "rooms"]),
            ("t", OneHotEncoder(handle_unknown="ignore"), ["job", "smoker"]),
        ]
    )
    return make_pipeline(columns, RandomForestClassifier(20, random_state=0)).fit(frame, y)


def same(a, b):
    """Tell cell by cell whether two columns hold the same, gaps included."""
    a, b = a.astype(object).to_numpy(), b.astype(object).to_numpy()
    return np.array([equal(x, y) for x, y in zip(a, b, strict=True)])


def equal(x, y):
    if pd.isna(x) or pd.isna(y):
        return pd.isna(x) and pd.isna(y)
    return type(x) is type(y) and x == y


def check(result, rows, listed=True):
    answers = result.to_frame()
    before = rows.iloc[np.flatnonzero(result.found)]
    assert list(answers.columns) == list(rows.columns)
    assert answers.dtypes.to_dict() == rows.dtypes.to_dict()
    assert answers.index.equals(before.index)
    assert answers.index.names == rows.index.names
    touched = {(i, c) for c in rows.columns for i in np.flatnonzero(~same(before[c], answers[c]))}
    changes = result.changes()
    place = {label: i for i, label in enumerate(before.index)}
    told = {(place[r], f) for r, f in zip(changes["row"], changes["feature"], strict=True)}
    assert touched == told
    for line in changes.itertuples():
        mine = before[line.feature].astype(object).iloc[place[line.row]]
        assert equal(mine, line[3])
    return answers


@pytest.fixture(scope="module")
def people():
    frame, y = table()
    return frame, pipeline(frame, y)


@pytest.mark.parametrize(
    "method", ["dice", "sace_nearest", "tcrex_donor", "globe_ce", "glance", "ares"]
)
def test_every_cell_that_is_not_listed_is_the_owners(people, method):
    frame, model = people
    rows = frame[model.predict(frame) == "no"].head(25)[list(frame.columns[::-1])]
    kept = rows.copy()
    result = cel.explain(
        model, rows, train=frame, target="yes", immutable=["account", "age"], method=method
    )
    pd.testing.assert_frame_equal(rows, kept)
    answers = check(result, rows)
    assert (model.predict(answers[frame.columns]) == "yes").all()
    assert same(answers.account, rows.iloc[np.flatnonzero(result.found)].account).all()
    cents = answers.salary.dropna()
    assert (cents.round(2) == cents).all()
    assert (answers.rooms % 1 == 0).all()


def test_results_survive_files_with_everything_in_them(people, tmp_path):
    frame, model = people
    rows = frame[model.predict(frame) == "no"].head(6)
    result = cel.explain(model, rows, train=frame, target="yes", total_CFs=3)
    result.to_parquet(tmp_path / "r.parquet")
    for back in (
        ExplanationResult.from_parquet(tmp_path / "r.parquet"),
        ExplanationResult.from_json(result.to_json()),
    ):
        pd.testing.assert_frame_equal(back.to_frame(), result.to_frame())
        pd.testing.assert_frame_equal(back.to_frame(sets=True), result.to_frame(sets=True))
        assert back.changes()["to"].tolist() == result.changes()["to"].tolist()
    assert len(result.select(result.found).to_frame()) == result.found.sum()


@pytest.mark.parametrize("side", ["copy below", "copy above"])
def test_the_class_of_a_row_is_that_of_the_row_as_given(side):
    """Thresholds are values of the data, as in tree models: 32-bit copies cross them."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": rng.random(400) * 1e6, "b": rng.random(400)})
    pipeline = cel.wrap(len, frame, classes=["no", "yes"]).pipeline_
    copy = pipeline.inverse_transform(pipeline.transform(frame)).a
    low = side == "copy below"
    crossed = (copy < frame.a if low else copy > frame.a) & frame.a.between(3e5, 6e5)
    edge = float(frame.a[crossed].iloc[0])

    def ask(rows):
        high = rows["a"] >= edge if low else rows["a"] > edge
        return (high & (rows["b"] > 0.2)).astype(float).to_numpy()

    call = {"train": frame, "classes": ["no", "yes"], "target": "yes"}
    rows = frame[ask(frame) == 0]
    result = cel.explain(ask, rows, **call)
    assert result.counts() == {"found": len(rows)}
    assert (ask(result.to_frame()) == 1).all()
    inside = frame[ask(frame) == 1]
    assert cel.explain(ask, inside, **call).counts() == {"not_applicable": len(inside)}


def test_a_number_behind_a_gap_is_no_change():
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0, 5.0], "b": [1, 2, 3, 4]})
    encoding = cel.wrap(len, frame, classes=[0, 1]).encoding_
    given = GivenRows.read(frame, encoding)
    x = given.x.copy()
    x[1, 0] = 1.0  # the number that stands behind the gap
    table, codes = given.answers(x, np.arange(4))
    pd.testing.assert_frame_equal(table, frame)
    assert not given.moved(x, np.arange(4)).any()
    assert np.array_equal(codes, given.x)


def test_filling_a_gap_is_a_change_and_an_immutable_gap_stays():
    frame, y = table()
    frame = frame.reset_index(drop=True)[["salary", "debt"]]
    model = HistGradientBoostingClassifier(max_iter=30).fit(frame, y)
    rows = frame[frame.salary.isna() & (model.predict(frame) == "no")]
    free = cel.explain(model, rows, train=frame, target="yes")
    check(free, rows)
    fixed = cel.explain(model, rows, train=frame, target="yes", immutable="salary")
    assert fixed.to_frame().salary.isna().all()
    assert fixed.found.any()


def test_columns_that_travel_along_reach_the_model():
    frame, _ = table()
    day = pd.Timestamp("2001-06-01", tz="Europe/Warsaw")

    def ask(rows):  # whom it wants where depends on a date and on a Decimal
        centre = np.where(rows["since"] > day, 1.0, -1.0) + rows["fee"].map(float) / 100
        return (np.abs(rows["debt"] - centre) < 0.25).to_numpy(float)

    rows = pd.concat([part.iloc[:6] for _, part in frame.groupby(frame.since > day)])
    rows = rows[ask(rows) == 0]
    result = cel.explain(ask, rows, train=frame, classes=["no", "yes"], target="yes")
    answers = check(result, rows)
    assert result.found.all()
    assert (ask(answers) == 1).all()


def test_extra_columns_are_carried_and_the_outcome_may_stay_in_the_training_table(people):
    frame, model = people
    rows = frame[model.predict(frame) == "no"].head(4).assign(note=["a", "b", "c", None])
    train = frame.assign(outcome=model.predict(frame))
    result = cel.explain(model, rows, train=train, target="yes")
    assert result.found.all()
    check(result, rows)


def test_one_bad_row_ends_as_error_and_the_others_are_answered():
    frame, y = table()
    frame = frame.reset_index(drop=True)[["age", "debt", "job"]]
    model = LogisticRegression().fit(frame[["age", "debt"]], y)

    def ask(rows):
        if (rows["job"] == "spy").any():
            raise ValueError("no spies")
        return model.predict_proba(rows[["age", "debt"]])

    rows = frame[model.predict(frame[["age", "debt"]]) == "no"].head(6).astype(object)
    rows = rows.astype({"debt": float})
    rows.iloc[0, 0], rows.iloc[1, 0], rows.iloc[2, 1] = "old", None, np.inf
    rows.iloc[3, 2], rows.iloc[4, 2] = "spy", "poet"  # the model takes a poet
    call = {"train": frame, "classes": ["no", "yes"], "target": "yes"}
    result = cel.explain(ask, rows, **call)
    assert list(result.status) == ["error"] * 4 + ["found"] * 2
    for part, reason in zip(
        ("'old'", "no value", "inf", "no spies"), result.reasons[:4], strict=True
    ):
        assert part in reason
    assert result.to_frame().job.iloc[0] == "poet"
    with pytest.raises(DataError, match="'old'"):
        cel.explain(ask, rows, on_error="raise", **call)


def test_a_range_is_a_range():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.integers(0, 1000, 300), "b": rng.random(300)})

    def ask(rows):
        return (rows["income"] > 500).to_numpy(float)

    rows = frame[frame.income < 500].head(40)
    space = infer_space(frame, immutable=["b"])
    space = space.with_changes(income={"lower": 900.0, "upper": 959.0})
    call = {"train": frame, "classes": [0, 1], "target": 1, "space": space}
    inside = cel.explain(ask, rows, **call).to_frame()
    assert len(inside) == 40
    assert inside.income.between(900, 959).all()
    wide = cel.explain(ask, rows, start_outside="widen", **call).to_frame()
    assert not wide.income.between(900, 959).all()
    stuck = cel.explain(ask, rows, immutable=["income"], **call)
    assert stuck.counts() == {"infeasible": 40}
    assert "income" in stuck.reasons[0]
    down = space.with_changes(income={"direction": "down"})
    assert set(cel.explain(ask, rows, **(call | {"space": down})).status) == {"infeasible"}
    with pytest.raises(ConfigError, match="start_outside"):
        cel.explain(ask, rows, start_outside="maybe", **call)


# -- models ------------------------------------------------------------------------------------


def test_modules_get_the_columns_of_their_owner():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"area": rng.random(300) * 500, "flag": rng.random(300) < 0.5})
    frame["year"] = rng.integers(1900, 2020, 300)
    net = torch.nn.Linear(3, 2)
    with torch.no_grad():
        net.weight[:] = torch.tensor([[0.0, 0, 0], [0.01, 1.0, 0.02]])
        net.bias[:] = torch.tensor([0.0, -42.5])

    def said(rows):
        return net(torch.tensor(rows.to_numpy(dtype=float)).float()).argmax(1).numpy()

    rows = frame[said(frame) == 0].head(30)
    result = cel.explain(net, rows, train=frame, classes=["no", "yes"], target="yes")
    assert set(result.logs["source"]) <= {"wachter", "few changes", None}
    assert result.found.all()
    assert (said(result.to_frame()) == 1).all()
    check(result, rows)


@pytest.mark.parametrize("columns", [None, ["first", "second"]])
def test_arrays_are_in_the_units_of_their_owner(columns, recwarn):
    rng = np.random.default_rng(0)
    X = rng.normal(50, 20, (300, 2))
    model = LogisticRegression().fit(X, X.sum(1) > 100)
    rows = X[~model.predict(X)][:20]
    result = cel.explain(model, rows, train=X, target=True, columns=columns)
    assert result.found.all()
    assert list(result.to_frame().columns) == (columns or ["x0", "x1"])
    assert model.predict(result.to_frame().to_numpy()).all()
    assert not [w for w in recwarn if "feature names" in str(w.message)]


def test_functions_of_arrays():
    X = np.random.default_rng(0).random((200, 3))

    def ask(rows):
        assert isinstance(rows, np.ndarray)
        return rows @ [0.5, 0.3, 0.2]

    result = cel.explain(ask, X[X @ [0.5, 0.3, 0.2] < 0.5][:5], train=X, classes=[0, 1], target=1)
    assert result.found.all()


def test_warnings_of_a_model_are_shown_once():
    frame = pd.DataFrame({"a": np.linspace(0, 1, 50)})

    def ask(rows):
        import warnings

        warnings.warn("this model is old", UserWarning, stacklevel=1)
        return rows["a"].to_numpy()

    with pytest.warns(UserWarning, match="old") as seen:
        cel.explain(ask, frame.head(10), train=frame, classes=[0, 1], target=1)
    assert len([w for w in seen if "old" in str(w.message)]) == 1


def test_datasets_and_their_cards_reach_a_model():
    dataset = cel.load_dataset("mixed")
    split = dataset.split()
    frame = split.train.frame
    numbers = frame.select_dtypes("number").columns
    fitted = LogisticRegression().fit(frame[numbers], split.train.y)
    model = cel.wrap(fitted, dataset, classes=list(split.target.classes))
    assert model.space_ == split.space
    rows = split.test.frame
    rows = rows[model.predict(rows) == split.target.classes[0]].head(5)
    result = cel.explain(model, rows, train=frame, target=split.target.classes[1])
    assert result.found.any()


# -- regression --------------------------------------------------------------------------------

FORMS = {
    "a value": (30.0, lambda y, new: abs(new - 30) <= 0.05 * 44),
    "a pair": ((25, 30), lambda y, new: (new >= 25) & (new <= 30)),
    "between": (between(25, 30), lambda y, new: (new >= 25) & (new <= 30)),
    "at least": (">= 30", lambda y, new: new >= 30),
    "at least, made": (at_least(30), lambda y, new: new >= 30),
    "at most": (at_most(12), lambda y, new: new <= 12),
    "per cent": ("+10%", lambda y, new: new >= 1.1 * y - 1e-9),
    "less": ("-3", lambda y, new: new <= y - 3 + 1e-9),
    "change": (change(percent=-20), lambda y, new: new <= 0.8 * y + 1e-9),
}


@pytest.fixture(scope="module")
def prices():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"area": rng.integers(20, 200, 400), "floor": rng.random(400).round(2)})
    return frame, LinearRegression().fit(frame, 0.2 * frame.area + 4 * frame.floor + 1)


@pytest.mark.parametrize("name", FORMS)
def test_regression_in_the_units_of_the_owner(prices, name):
    frame, model = prices
    wish, holds = FORMS[name]
    y = model.predict(frame)
    rows = frame[(y > 14) & (y < 24)].head(25)
    result = cel.explain(model, rows, train=frame, target=wish)
    assert result.found.sum() >= 24
    answers = check(result, rows)
    assert holds(model.predict(rows)[result.found], model.predict(answers)).all()


def test_regression_asks_for_a_target_and_names_methods(prices):
    frame, model = prices
    with pytest.raises(ConfigError, match="say what the prediction should become"):
        cel.explain(model, frame.head(2), train=frame)
    with pytest.raises(ConfigError, match="cannot read the target 'up'"):
        cel.explain(model, frame.head(2), train=frame, target="up")
    with pytest.raises(cel.CelError, match="globe_ce"):
        cel.explain(model, frame.head(2), train=frame, target=30, method="sace")
    per_row = cel.explain(model, frame.head(3), train=frame, target=[30, ">= 20", (10, 12)])
    assert per_row.found.all() or set(per_row.status) <= {"found", "not_applicable"}


def test_several_outputs():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.random(200), "b": rng.random(200)})
    model = LinearRegression().fit(frame, np.c_[frame.a * 100, frame.b * 10])
    wish = {"output 0": ">= 60", "output 1": (2, 4)}
    rows = frame[frame.a < 0.5].head(10)
    result = cel.explain(model, rows, train=frame, target=wish)
    new = model.predict(result.to_frame())
    assert result.found.all()
    assert (new[:, 0] >= 60).all()
    assert ((new[:, 1] >= 2) & (new[:, 1] <= 4)).all()
