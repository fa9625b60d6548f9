"""Constraints in the words of a user: kept by every answer, checked together before any search."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import cel
from cel.door.contradictions import conflict
from cel.door.relation_text import read_implication, read_relation
from cel.errors import CelError, ConfigError
from cel.space import ChangeLimit, FeatureSpace, Implication, LinearRelation
from cel.space.serialize import space_from_dict, space_to_dict

JOBS = ["clerk", "nurse", "pilot"]
LABELS = ["home", "job"]


@pytest.fixture(scope="module")
def loans():
    rng = np.random.default_rng(1)
    n = 400
    total = rng.integers(2, 12, n)
    frame = pd.DataFrame(
        {
            "income": rng.integers(10, 100, n) * 1000,
            "age": rng.integers(20, 70, n),
            "credits_total": total,
            "credits_open": (total * rng.random(n)).astype(int),
            "savings": rng.gamma(2, 2000, n).round(2),
            "job": rng.choice(JOBS, n),
            "home": rng.choice(["own", "rent"], n),
        }
    )
    frame.loc[::9, "savings"] = np.nan
    score = frame.income / 30000 - frame.credits_open / 3 + (frame.job == "pilot")
    score += frame.savings.fillna(0) / 5000 + (frame.home == "own") / 2 + frame.credits_total / 9
    return frame, np.where(score > 4.2, "yes", "no")


def fitted(kind, frame, y):
    coder = make_column_transformer((OneHotEncoder(), LABELS), remainder=StandardScaler())
    model = {
        "linear": LogisticRegression(max_iter=1000),
        "trees": RandomForestClassifier(30, max_depth=6, random_state=0),
        "black box": GaussianNB(),
    }[kind]
    full = make_pipeline(coder, model).fit(frame.fillna({"savings": 0.0}), y)

    class Filled:
        classes_ = full.classes_

        def predict(self, rows):
            return full.predict(rows.fillna({"savings": 0.0}))

        def predict_proba(self, rows):
            return full.predict_proba(rows.fillna({"savings": 0.0}))

    return Filled()


RULES = {
    "immutable": ["age"],
    "increasing": ["credits_total"],
    "decreasing": "credits_open",
    "ranges": {"income": (None, 90_000)},
    "allowed": {"job": ["nurse", "pilot"]},
    "relations": ["credits_open <= credits_total - 1", "2*credits_open + 3 <= 40"],
    "implications": ["job = pilot -> home in own"],
    "max_changes": 2,
}


def keeps(before, after):
    """Assert that answers keep `RULES`; a row that breaks one already need not repair it."""
    assert (before.age == after.age).all()
    assert (after.credits_total >= before.credits_total).all()
    assert (after.credits_open <= before.credits_open).all()
    assert (after.income <= 90_000).all()
    assert (after.job.isin(["nurse", "pilot"]) | (after.job == before.job)).all()
    room = (before.credits_open - before.credits_total + 1).clip(lower=0)
    assert (after.credits_open - after.credits_total + 1 <= room).all()
    fine = (before.job != "pilot") | (before.home == "own")
    assert ((after.job != "pilot") | (after.home == "own") | ~fine).all()
    same = (before == after) | (before.isna() & after.isna())
    assert ((~same).sum(axis=1) <= 2).all()


@pytest.mark.parametrize("kind", ["linear", "trees", "black box"])
def test_every_constraint_is_kept_by_every_answer(loans, kind):
    frame, y = loans
    model = fitted(kind, frame, y)
    rows = frame[model.predict(frame) == "no"].head(25)
    result = cel.explain(model, rows, background=frame, target="yes", n=3, **RULES)
    assert result.found.sum() >= 15
    answers = result.to_frame()
    keeps(rows.loc[answers.index], answers)
    assert (model.predict(answers) == "yes").all()
    sets = result.to_frame(sets=True).drop(columns="alternative")
    keeps(rows.loc[sets.index], sets)
    assert (model.predict(sets) == "yes").all()


@pytest.mark.parametrize("method", ["dice", "nice", "growing_spheres", "globe_ce", "tcrex"])
def test_named_methods_keep_them_too(loans, method):
    frame, y = loans
    model = fitted("trees", frame, y)
    rows = frame[model.predict(frame) == "no"].head(12)
    result = cel.explain(model, rows, background=frame, target="yes", method=method, **RULES)
    answers = result.to_frame()
    keeps(rows.loc[answers.index], answers)


def test_a_dict_and_a_file_say_the_same(loans, tmp_path):
    frame, y = loans
    model = fitted("linear", frame, y)
    rows = frame[model.predict(frame) == "no"].head(5)
    call = {"background": frame, "target": "yes"}
    plain = cel.explain(model, rows, **call, **RULES).to_frame()
    pd.testing.assert_frame_equal(
        cel.explain(model, rows, constraints=RULES, **call).to_frame(), plain
    )
    path = tmp_path / "constraints.yaml"
    path.write_text(
        "immutable: [age]\nincreasing: [credits_total]\ndecreasing: credits_open\n"
        "ranges: {income: [null, 90000]}\nallowed: {job: [nurse, pilot]}\nmax_changes: 2\n"
        "relations:\n- credits_open <= credits_total - 1\n- 2*credits_open + 3 <= 40\n"
        "implications:\n- {if: {job: pilot}, then: {home: own}}\n"
    )
    for given in (path, str(path)):
        pd.testing.assert_frame_equal(
            cel.explain(model, rows, constraints=given, **call).to_frame(), plain
        )


# -- limits and weights ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "trees", "black box"])
@pytest.mark.parametrize("most", [1, 2])
def test_the_limit_of_changes_binds(loans, kind, most):
    frame, y = loans
    model = fitted(kind, frame, y)
    rows = frame[model.predict(frame) == "no"].head(30)
    result = cel.explain(model, rows, background=frame, target="yes", max_changes=most)
    changed = result.changes().groupby("row").size()
    assert changed.max() <= most
    assert result.found.sum() >= (10 if most == 1 else 25)


@pytest.mark.parametrize("kind", ["linear", "trees", "black box"])
def test_weights_turn_the_search_elsewhere(loans, kind):
    frame, y = loans
    model = fitted(kind, frame, y)
    rows = frame[model.predict(frame) == "no"].head(30)
    call = {"background": frame, "target": "yes"}
    free = cel.explain(model, rows, **call).changes().feature.value_counts()
    heavy = list(free.index[:2])
    held = cel.explain(model, rows, weights=dict.fromkeys(heavy, 1000.0), **call)
    assert held.found.sum() >= 25
    free_of_them = cel.explain(model, rows, immutable=heavy, **call).found
    used = held.changes()
    users = rows.index.isin(used.row[used.feature.isin(heavy)])
    assert free_of_them.sum() >= 8
    assert users[free_of_them].mean() <= 0.1


def test_regions_keep_the_largest_changes():
    space = FeatureSpace.continuous(3)
    few = FeatureSpace(space.features, (), ChangeLimit(1))
    x = np.array([[0.5, 0.5, 0.5]])
    seen = few.region(x).snap(np.array([[0.6, 0.1, 0.5]]))
    assert np.allclose(seen, [[0.5, 0.1, 0.5]])
    assert few.region(x).contains(seen)
    assert not few.region(x).contains(np.array([[0.6, 0.1, 0.5]]))
    joined = FeatureSpace(space.features, (), ChangeLimit(1, (0, 0, 1)))
    both = joined.region(x).snap(np.array([[0.6, 0.1, 0.6]]))
    assert np.allclose(both, [[0.6, 0.1, 0.5]])
    assert space_from_dict(space_to_dict(joined)) == joined
    assert few.with_changes(x0={"mutable": False}).limit == ChangeLimit(1)


# -- what is refused ---------------------------------------------------------------------------

REFUSED = {
    "unknown columns": (
        {"immutable": ["agee"], "ranges": {"incme": (0, 1)}},
        "immutable: unknown column 'agee'; did you mean 'age'.*\n.*'incme'; did you mean 'income'",
    ),
    "both ways": ({"increasing": ["age"], "decreasing": ["age"]}, "neither rise nor fall"),
    "an empty range": ({"ranges": {"age": (50, 20)}}, "reaches from 50 to 20, which is empty"),
    "no pair": ({"ranges": {"age": 3}}, r"needs \(lower, upper\)"),
    "nobody there": (
        {"ranges": {"income": (1e6, 2e6)}},
        r"no background row has 'income' in 1e\+06 to 2e\+06; they reach from 10000 to 99000",
    ),
    "a range of labels": ({"ranges": {"job": (0, 1)}}, "'job' holds labels; use allowed="),
    "labels of numbers": ({"allowed": {"age": [1]}}, "'age' holds numbers; use ranges="),
    "unknown label": ({"allowed": {"job": ["pilott"]}}, "no label 'pilott'; did you mean 'pilot'"),
    "direction of labels": ({"increasing": ["job"]}, "'job' has labels without an order"),
    "contradiction": (
        {"relations": ["age <= income", "income <= age - 1"]},
        r"contradict each other: age <= income; income <= age - 1",
    ),
    "contradiction with a range": (
        {"relations": ["income <= age"], "ranges": {"income": (90_000, None), "age": (20, 60)}},
        "contradict each other",
    ),
    "relation on a label": ({"relations": ["job <= 3"]}, "'job' is categorical"),
    "relation on nothing": ({"relations": ["agge <= 3"]}, "'agge'; did you mean 'age'"),
    "no relation": ({"relations": ["age"]}, "needs one of <=, >= or =="),
    "unreadable": ({"relations": ["age ** 2 <= 3"]}, "cannot read"),
    "implication": ({"implications": ["job pilot"]}, "cannot read the implication"),
    "implication, value": ({"implications": ["job = pilott -> home = own"]}, "no category 'pilo"),
    "blocked implication": (
        {"implications": ["job = pilot -> home = own"], "allowed": {"home": ["rent"]}},
        "'home' may not become any of these",
    ),
    "no changes": ({"max_changes": 0}, "max_changes is 0; give a whole number"),
    "half a change": ({"max_changes": 1.5}, "max_changes is 1.5; give a whole number"),
    "weight": ({"weights": {"age": -1}}, "'age' has weight -1; give a positive number"),
    "weights": ({"weights": ["age"]}, "weights takes {column: weight}"),
    "unknown kind": ({"constraints": {"imutable": []}}, "unknown constraint 'imutable'; did you"),
    "twice": ({"immutable": ["age"], "constraints": {"immutable": ["job"]}}, "give one"),
    "no document": ({"constraints": 3}, "takes a dict or the path of a YAML file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_is_said_before_any_search(loans, name):
    frame, y = loans
    rules, said = REFUSED[name]
    model = LogisticRegression(max_iter=50).fit(frame[["income", "age"]], y)
    with pytest.raises(CelError, match="(?s)" + said):
        cel.Explainer(lambda rows: model.predict_proba(rows[["income", "age"]]), frame,
                      classes=["no", "yes"], **rules)  # fmt: skip


def test_relations_are_read_as_people_write_them():
    columns = ["a", "b b", "c_1"]
    assert read_relation("a >= 2", columns) == (LinearRelation.of({"a": -1}, -2),)
    assert read_relation("`b b` * 2 - a <= 1_000", columns) == (
        LinearRelation.of({"b b": 2, "a": -1}, 1000),
    )
    assert len(read_relation("a == c_1", columns)) == 2
    assert read_relation("3 <= a + c_1", columns) == (LinearRelation.of({"a": -1, "c_1": -1}, -3),)
    assert read_implication({"if": {"a": 1}, "then": {"c_1": [2, 3]}}, columns) == Implication(
        "a", (1,), "c_1", (2, 3)
    )
    with pytest.raises(ConfigError, match="on both sides"):
        read_relation("a <= a + 1", columns)


def test_a_conflict_names_no_more_than_it_needs():
    loose = LinearRelation.of({"c": 1}, 9)
    both = [LinearRelation.of({"a": 1}, 1), loose, LinearRelation.of({"a": -1}, -2)]
    assert conflict(both, {}) == ["a <= 1", "2 <= a"]
    assert conflict([loose], {"c": (0, 3)}) == []
