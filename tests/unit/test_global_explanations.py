"""What all global and group-wise methods share: explanations, words, edits, bad input."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from cel.cf_methods import METHODS
from cel.cf_methods.explanations.cohort import IDS_PER_TARGET, some_rows
from cel.cf_methods.explanations.edits import Edits, Price, predict_edits, settle
from cel.cf_methods.explanations.predicates import Item, all_hold
from cel.cf_methods.explanations.units import GlobalExplanation, Unit
from cel.cf_methods.explanations.wording import Term, Wording
from cel.cf_methods.query import Query
from cel.cf_methods.view import ModelView
from cel.datasets import load_dataset
from cel.errors import CelError, ConfigError, NotFittedError
from cel.models.classifiers import LogisticRegression
from cel.protocols import Status
from cel.search import Budget, RowStreams
from cel.space import Feature, FeatureSpace, LinearRelation
from cel.space.region import Region
from cel.testing import SoftmaxModel

NAMES = ("ares", "globe_ce", "glance", "tcrex")
CHEAP = {n: dict(METHODS.get(n)._test_params) for n in NAMES}


def two_classes(w, b):
    return SoftmaxModel(np.stack([np.zeros(len(w)), w]), [0.0, b])


def make(name, model, **settings):
    return METHODS.get(name)(model, **(CHEAP[name] | settings))


def rows(n=200, d=3, seed=0):
    return np.random.default_rng(seed).random((n, d)).astype(np.float32)


@pytest.fixture(scope="module")
def mixed():
    dataset = load_dataset("mixed", n=800)
    split = dataset.split()
    return split, LogisticRegression().fit(dataset.train_dataloader())


@pytest.fixture(scope="module")
def fitted(mixed):
    split, model = mixed
    return {n: make(n, model).fit(split) for n in NAMES}


# -- the explanation object ----------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_explanations_speak_in_original_units(name, fitted, mixed):
    split, _ = mixed
    explanation = fitted[name].explanation(1)
    assert isinstance(explanation, GlobalExplanation)
    assert explanation.units
    raw = split.train.frame
    for term in [t for u in explanation for t in (*u.conditions, *u.effects)]:
        assert term.feature in raw.columns
        values = term.value if isinstance(term.value, tuple) else (term.value,)
        if term.operator in ("any", "+"):
            continue
        for value in values:
            column = raw[term.feature]
            if pd.api.types.is_numeric_dtype(column):
                assert column.min() - 1e-3 <= value <= column.max() + 1e-3
            else:
                assert value in set(column.astype(object))


@pytest.mark.parametrize("name", NAMES)
def test_explanations_can_be_shown_and_stored(name, fitted):
    explanation = fitted[name].explanation(1)
    text = str(explanation)
    assert len(text.splitlines()) == 1 + len(explanation)
    frame = explanation.to_frame()
    assert list(frame.index) == [u.id for u in explanation]
    assert {"if", "then", "coverage", "correctness", "cost"} <= set(frame.columns)
    assert "<table" in explanation._repr_html_()
    document = json.loads(explanation.to_json())
    assert len(document["units"]) == len(explanation)
    assert document["validity"] == pytest.approx(explanation.validity, abs=1e-5)
    assert explanation[explanation.units[-1].id] is explanation.units[-1]
    with pytest.raises(ConfigError, match="no unit -7"):
        explanation[-7]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_units_are_shares(name, fitted):
    explanation = fitted[name].explanation(1)
    for share in (explanation.coverage, explanation.validity, explanation.conflict_rate):
        assert 0 <= share <= 1
    for unit in explanation:
        assert 0 <= unit.coverage <= 1
        assert 0 <= unit.correctness <= 1
        assert np.isnan(unit.cost) or unit.cost >= 0


@pytest.mark.parametrize("name", NAMES)
def test_assign_gives_unit_counterfactual_and_status(name, fitted, mixed):
    split, _ = mixed
    method = fitted[name]
    explanation = method.explanation(1)
    given = explanation.assign(split.test)
    asked = method.explain(split.test, 1)
    assert np.array_equal(given.x_cfs, asked.x_cfs, equal_nan=True)
    assert np.array_equal(given.status, asked.status)
    ids = {u.id for u in explanation}
    assert set(given.cf_group_ids[given.found]) <= ids
    assert (given.cf_group_ids[~given.has_candidate & ~given.explained] == -1).all()
    logs = given.logs
    assert logs["units"] == len(explanation)
    assert {"rule_length", "conflict_rate", "oracle", "budget_hit"} <= set(logs)


@pytest.mark.parametrize("name", NAMES)
def test_fitted_on_training_rows_and_cached(name, fitted, mixed):
    split, _ = mixed
    method = fitted[name]
    before = method.explanation(1)
    method.explain(split.test.X[:5], 1)
    assert method.explanation(1) is before
    assert before.rows == int((method.train_.y != 1).sum())


@pytest.mark.parametrize("name", NAMES)
def test_fitted_on_the_rows_to_explain_for_parity(name, mixed):
    split, model = mixed
    method = make(name, model, fit_split="test").fit(split)
    result = method.explain(split.test, 1)
    explanation = method.explanation()
    assert explanation.rows == int(result.explained.sum())
    again = explanation.assign(split.test)
    assert np.array_equal(result.x_cfs, again.x_cfs, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_methods_survive_pickling(name, fitted, mixed):
    split, _ = mixed
    method = fitted[name]
    expected = method.explain(split.test.X[:30], 1)
    again = pickle.loads(pickle.dumps(method))
    result = again.explain(split.test.X[:30], 1)
    assert np.array_equal(result.x_cfs, expected.x_cfs, equal_nan=True)
    assert str(again.explanation(1)) == str(method.explanation(1))


@pytest.mark.parametrize("name", NAMES)
def test_several_classes_have_units_of_their_own(name):
    X = rows(300, 2)
    model = SoftmaxModel([[6, 0], [0, 6], [-5, -5]], [0.0, 0.0, 5.0])
    method = make(name, model, space=FeatureSpace.continuous(2)).fit(X)
    target = (model.predict(X) + 1) % 3
    result = method.explain(X, target)
    assert set(method.explanations_) == {0, 1, 2}
    assert result.found.mean() > 0.5
    of_unit = result.cf_group_ids[result.found] // IDS_PER_TARGET
    assert np.array_equal(of_unit, target[result.found])
    with pytest.raises(ConfigError, match="say which class"):
        method.explanation()


# -- bad input -----------------------------------------------------------------------------


def _nothing(method, X, target=1):
    explanation = method.explanation(target)
    result = method.explain(X, target)
    assert not explanation.units
    assert explanation.reason
    assert explanation.coverage == 0
    assert str(explanation)
    assert json.loads(explanation.to_json())["reason"] == explanation.reason
    assert not result.has_candidate.any()
    return result


@pytest.mark.parametrize("name", NAMES)
def test_no_affected_rows(name):
    X = rows()
    method = make(name, two_classes([0.0, 0, 0], 2.0)).fit(X)
    result = _nothing(method, X)
    assert (result.status == Status.NOT_APPLICABLE.value).all()


@pytest.mark.parametrize("name", NAMES)
def test_constant_model(name):
    X = rows()
    method = make(name, two_classes([0.0, 0, 0], -2.0)).fit(X)
    result = _nothing(method, X)
    assert (result.status == Status.NOT_FOUND.value).all()
    assert result.logs["reason"]


@pytest.mark.parametrize("name", NAMES)
def test_everything_immutable(name):
    space = FeatureSpace.continuous(3)
    space = space.with_changes(**{n: {"mutable": False} for n in space.names})
    X = rows()
    model = two_classes([3.0, 1, 0], -2.0)
    result = _nothing(make(name, model, space=space).fit(X), X)
    open_rows = model.predict(X) == 0
    assert (result.status[open_rows] == Status.INFEASIBLE.value).all()


@pytest.mark.parametrize("name", NAMES)
def test_no_target_row_in_training(name):
    X = rows()
    model = two_classes([3.0, 1, 0], -3.0)
    below = X[model.predict(X) == 0]
    method = make(name, model).fit(below)
    explanation = method.explanation(1)
    result = method.explain(below, 1)
    assert explanation.units or explanation.reason
    assert len(result) == len(below)


@pytest.mark.parametrize("name", NAMES)
def test_one_feature(name):
    X = rows(200, 1)
    method = make(name, two_classes([8.0], -4.0)).fit(X)
    result = method.explain(X, 1)
    assert result.found[result.explained].mean() > 0.9
    assert (result.x_cfs[result.found] > 0.5 - 1e-3).all()


@pytest.mark.parametrize("name", NAMES)
def test_one_category(name):
    space = FeatureSpace(
        (
            Feature(name="only", kind="categorical", columns=(0,), categories=("a",)),
            Feature(name="x", columns=(1,)),
        )
    )
    X = np.hstack([np.ones((200, 1)), rows(200, 1)]).astype(np.float32)
    method = make(name, two_classes([0.0, 8.0], -4.0), space=space).fit(X)
    result = method.explain(X, 1)
    assert result.found[result.explained].mean() > 0.9
    assert (result.x_cfs[result.found, 0] == 1).all()


@pytest.mark.parametrize("name", NAMES)
def test_one_training_row_and_one_affected_row(name):
    X = rows(40)
    model = two_classes([8.0, 0, 0], -4.0)
    order = np.argsort(model.predict(X), kind="stable")
    one = np.r_[order[:1], order[-20:]]
    result = make(name, model).fit(X[one]).explain(X[one], 1)
    assert len(result) == 21
    single = make(name, model).fit(X[order[:1]])
    assert len(single.explain(X[:5], 1)) == 5


@pytest.mark.parametrize("name", NAMES)
def test_thousands_of_columns(name):
    X = rows(120, 2000)
    w = np.zeros(2000)
    w[:20] = 3.0
    model = two_classes(w, -30.0)
    method = make(name, model).fit(X)
    result = method.explain(X[:20], 1)
    assert len(result) == 20
    assert method.explanation(1).units or method.explanation(1).reason


@pytest.mark.parametrize("name", NAMES)
def test_time_limits_end_the_work(name):
    X = rows()
    method = make(name, two_classes([8.0, 0, 0], -4.0), time_limit=1e-9).fit(X)
    result = method.explain(X, 1)
    assert (result.status[result.explained] == Status.TIMEOUT.value).all()
    method.set_params(time_limit=None)
    assert method.explain(X, 1).found.any()


@pytest.mark.parametrize("name", NAMES)
def test_running_out_of_time_while_fitting_is_no_crash(name):
    X = rows()
    method = make(name, two_classes([8.0, 0, 0], -4.0)).fit(X)
    for seconds in (0.0, 0.002, 0.01):
        cut_short = method._explanation(1, Budget(seconds))
        assert cut_short.units or cut_short.reason
    assert method.explain(X, 1).found.any()


@pytest.mark.parametrize("name", NAMES)
def test_wrong_use_is_refused(name):
    X = rows()
    model = two_classes([8.0, 0, 0], -4.0)
    with pytest.raises(NotFittedError):
        make(name, model, space=FeatureSpace.continuous(3)).explain(X, 1)
    with pytest.raises(ConfigError, match="fit_split='valid' is unknown"):
        make(name, model, fit_split="valid").fit(X)
    with pytest.raises(ConfigError, match="max_rows must be at least 1"):
        make(name, model, max_rows=0).fit(X)
    with pytest.raises(CelError, match="unknown target class 7"):
        make(name, model).fit(X).explanation(7)


# -- words ---------------------------------------------------------------------------------


class Doubling:
    """A pipeline that stores half of everything, and the square root of b."""

    def inverse_transform(self, x):
        x = np.asarray(x, dtype=float)
        return pd.DataFrame({"a": 2 * x[:, 0] + 1, "b": x[:, 1] ** 2, "n": np.rint(10 * x[:, 2])})


WORDS = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="b", columns=(1,)),
        Feature(name="n", kind="integer", columns=(2,), step=0.1),
        Feature(
            name="o", kind="ordinal", columns=(3,), step=0.5, categories=("low", "mid", "top")
        ),
        Feature(name="c", kind="categorical", columns=(4, 5, 6), categories=("x", "y", "z")),
    )
)


def words(pipeline):
    base = np.array([0, 0, 0, 0, 1, 0, 0], dtype=np.float32)
    return Wording(WORDS, pipeline, np.zeros(7), np.ones(7), base)


def test_values_are_decoded_by_lines_or_one_by_one():
    w = words(Doubling())
    assert w.value(WORDS["a"], 0.25) == pytest.approx(1.5)
    assert w.shift(WORDS["a"], 0.25) == pytest.approx(0.5)
    assert w.value(WORDS["b"], 0.5) == pytest.approx(0.25)
    assert w.value(WORDS["n"], 0.3) == 3
    assert w.value(WORDS["o"], 0.5) == "mid"
    assert w.shift(WORDS["o"], 1.0) == 2
    assert words(None).value(WORDS["a"], 0.25) == 0.25


def test_terms_read_like_sentences():
    w = words(Doubling())
    assert str(w.interval(WORDS["a"], -np.inf, 0.5)) == "a <= 2.0"
    assert str(w.interval(WORDS["a"], 0.5, np.inf)) == "a > 2.0"
    assert str(w.interval(WORDS["n"], 0.2, 0.4)) == "2 < n <= 4"
    assert str(w.interval(WORDS["n"], -np.inf, np.inf)) == "n is anything"
    assert str(w.levels(WORDS["c"], (True, False, False))) == "c = x"
    assert str(w.levels(WORDS["c"], (True, True, False))) == "c != z"
    assert str(w.levels(WORDS["c"], (True, True, True))) == "c is anything"
    four = Feature(name="q", kind="categorical", columns=(0, 1, 2, 3), categories=(1, 2, 3, 4))
    assert str(w.levels(four, (True, True, False, False))) == "q in {1, 2}"
    with pytest.raises(ConfigError, match="unknown operator"):
        Term("a", "about", 1)


def test_edits_read_like_sentences():
    w = words(Doubling())
    shift = np.array([0.5, 0, 0, 0, 0, 0, 0.0])
    fixed = np.array([0, 0, 1, 0, 1, 1, 1], dtype=bool)
    value = np.array([0, 0, 0.7, 0, 0, 1, 0.0])
    assert [str(t) for t in w.edit(shift, fixed, value)] == ["a + 1.0", "n = 7", "c = y"]


def test_units_say_what_they_do():
    unit = Unit(
        id=3,
        kind="rule",
        conditions=(Term("age", "<=", 30), Term("job", "any")),
        effects=(Term("job", "=", "clerk"),),
        cost=1.25,
        coverage=0.5,
        correctness=0.8,
    )
    text = "[3] if age <= 30 then job = clerk  (coverage 50%, correct 80%, cost 1.25 bins)"
    assert str(unit) == text
    assert unit.to_dict()["conditions"][0] == {"feature": "age", "operator": "<=", "value": 30}


def test_items_hold_as_they_say():
    x = np.array([[0.1, 0, 0, 0, 1, 0, 0], [0.6, 0, 0, 0, 0, 0, 1]], dtype=np.float32)
    assert Item(0, high=0.5).holds(x, WORDS["a"]).tolist() == [True, False]
    assert Item(4, levels=(False, True, True)).holds(x, WORDS["c"]).tolist() == [False, True]
    both = (Item(0, low=0.5), Item(4, levels=(False, True, True)))
    assert all_hold(both, x, WORDS).tolist() == [False, True]


# -- edits ---------------------------------------------------------------------------------


def test_prices_count_bins_and_changed_categories():
    X = torch.tensor([[0.0, 0, 0, 0, 1, 0, 0], [0.5, 1, 1, 1, 0, 1, 0]])
    price = Price.of(WORDS, X)
    a = torch.tensor([[0.0, 0, 0, 0, 1, 0, 0]])
    b = torch.tensor([[0.1, 0, 0, 0, 0, 0, 1]])
    assert float(price(a, b)) == pytest.approx(0.1 / 0.05 + 1)
    flat = Price.of(WORDS, X[:1])
    assert not flat.movable.any()


def _query(x, space):
    x = torch.as_tensor(x)
    return Query(
        x=x,
        target=torch.ones(len(x), dtype=torch.long),
        region=Region.around(space, x),
        model=ModelView(two_classes([6.0, 3.0, 1.0], -5.0)),
        rng=RowStreams.of(x, 0),
        budget=Budget(),
    )


def test_chunks_do_not_change_predictions():
    space, rng = FeatureSpace.continuous(3), np.random.default_rng(0)
    query = _query(rows(90), space)
    price = Price.of(space, query.x)
    edits = Edits(
        shift=torch.as_tensor(rng.normal(size=(17, 3))).float(),
        fixed=torch.as_tensor(rng.random((17, 3)) < 0.2),
        value=torch.as_tensor(rng.random((17, 3))).float(),
    )
    whole = predict_edits(query, edits, price)
    for size in (1, 7, 100, 1000):
        part = predict_edits(query, edits, price, chunk_rows=size)
        assert torch.allclose(part.margin, whole.margin, atol=1e-5)
        assert torch.equal(part.cost, whole.cost)
    for e in range(17):
        points = edits.select([e] * 90).one_each(query.x)
        points = settle(points[None], query.region, price)[0]
        expected = query.model.margin(points, query.target)
        assert torch.allclose(whole.margin[e], expected, atol=1e-5)


def test_rounding_goes_away_from_the_row():
    space = FeatureSpace((Feature(name="n", kind="integer", columns=(0,), step=0.1),))
    region = Region.around(space, torch.tensor([[0.5], [0.5], [0.5], [0.5]]))
    x = torch.tensor([[0.52], [0.48], [0.5], [0.97]])
    assert torch.allclose(
        settle(x[None], region)[0], torch.tensor([[0.6], [0.4], [0.5], [1.0]]), atol=1e-6
    )


def test_rounding_can_go_to_the_nearest():
    space = FeatureSpace((Feature(name="n", kind="integer", columns=(0,), step=0.1),))
    region = Region.around(space, torch.full((5, 1), 0.5))
    x = torch.tensor([[0.52], [0.499], [0.56], [0.42], [0.97]])
    want = torch.tensor([[0.5], [0.5], [0.6], [0.4], [1.0]])
    assert torch.allclose(settle(x[None], region, outward=False)[0], want, atol=1e-6)


def test_settled_points_obey_relations():
    space = FeatureSpace(
        (Feature(name="a", columns=(0,)), Feature(name="b", columns=(1,))),
        (LinearRelation.of({"a": 1, "b": -1}, 0),),
    )
    x = torch.tensor([[0.2, 0.5], [0.1, 0.9]])
    region = Region.around(space, x)
    points = settle(torch.tensor([[[0.9, 0.5], [0.5, 0.9]], [[0.3, 0.4], [0.9, 0.1]]]), region)
    for part in points:
        assert region.contains(part).all()


def test_samples_depend_on_content_only():
    X = torch.as_tensor(rows(100))
    order = torch.as_tensor(np.random.default_rng(0).permutation(100))
    one = X[some_rows(X, 10, 0)]
    two = X[order][some_rows(X[order], 10, 0)]
    assert torch.equal(one, two)
