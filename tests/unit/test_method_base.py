"""What the base class does for every method: targets, spaces, refusals, statuses."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier

from cel.cf_methods import METHODS, BaseCounterfactualMethod, LocalMixin
from cel.cf_methods.local_methods import NearestInstance
from cel.errors import ConfigError, DataError, MissingInputError, NotFittedError, UnsupportedError
from cel.models import wrap
from cel.protocols import Need
from cel.space import FeatureSpace
from cel.testing import PROBLEMS, BlackBox
from cel.testing.contract import applicable


class ToCorner(LocalMixin, BaseCounterfactualMethod):
    """Goes to the corner of ones; valid in the numeric problem."""

    def _explain(self, query):
        return torch.ones_like(query.x) * torch.tensor([1.0, 1.0, 0.0])


class Returns(ToCorner):
    """Returns the rows unchanged, which is never an answer."""

    def _explain(self, query):
        return query.x.clone()


class Lies(ToCorner):
    """Moves a little and claims success."""

    def _explain(self, query):
        return query.x + 1e-3


class NeedsMuch(ToCorner):
    needs = frozenset({Need.DENSITY, Need.TRAIN_ROWS})

    def __init__(self, model, *, gen_model=None, **options):
        super().__init__(model, **options)
        self.gen_model = gen_model


@pytest.fixture
def problem():
    return PROBLEMS["binary_numeric"]()


def test_found_invalid_and_not_found_are_told_apart(problem):
    assert set(problem.build(ToCorner).explain(problem.x).status) == {"found"}
    assert set(problem.build(Lies).explain(problem.x).status) == {"invalid"}
    assert set(problem.build(Returns).explain(problem.x).status) == {"not_found"}


def test_targets(problem):
    method = problem.build(ToCorner)
    by_default = method.explain(problem.x)
    for target in ("opposite", 1, np.int64(1), [1] * len(problem.x)):
        assert np.array_equal(
            method.explain(problem.x, target).y_cf_targets, by_default.y_cf_targets
        )
    with pytest.raises(ConfigError, match="unknown target class 7"):
        method.explain(problem.x, 7)
    with pytest.raises(DataError, match="2 targets for 12 rows"):
        method.explain(problem.x, [0, 1])
    three = PROBLEMS["three_classes"]()
    with pytest.raises(ConfigError, match="say which one"):
        three.build(METHODS.get("wachter")).fit(three.x_train).explain(three.x)


def test_regression_targets_follow_the_prediction():
    p = PROBLEMS["regression"]()
    result = p.fitted(METHODS.get("wachter")).explain(p.x)
    wanted = np.clip(p.model.predict(p.x) + 0.2, 0, 1)
    np.testing.assert_allclose(result.y_cf_targets, wanted, atol=1e-6)
    fixed = p.fitted(METHODS.get("wachter")).explain(p.x, 0.6)
    assert (fixed.y_cf_targets == 0.6).all()


def test_refusals_say_why(problem):
    with pytest.raises(ConfigError, match="did you mean 'random_state'"):
        ToCorner(problem.model, random_sate=1)
    with pytest.raises(MissingInputError, match="gen_model="):
        problem.build(NeedsMuch, gen_model=None).explain(problem.x)
    with pytest.raises(NotFittedError, match=r"fit\(split\)"):
        problem.build(NeedsMuch, gen_model=problem.density).explain(problem.x)
    with pytest.raises(MissingInputError, match="no feature space"):
        ToCorner(problem.model).explain(problem.x)
    with pytest.raises(DataError, match="expected rows of 3 columns, got 2"):
        problem.build(ToCorner).explain(problem.x[:, :2])
    with pytest.raises(MissingInputError, match="DataFrame needs a pipeline"):
        problem.build(ToCorner).explain(pd.DataFrame(problem.x))

    with pytest.raises(UnsupportedError, match="needs gradients"):
        METHODS.get("cadex")(BlackBox(problem.model), space=problem.space).explain(problem.x)
    other = PROBLEMS["regression"]()
    with pytest.raises(UnsupportedError, match="does not work for regression"):
        other.build(METHODS.get("cadex")).explain(other.x)


def test_rows_outside_the_range_are_named(problem):
    x = problem.x.copy()
    x[0, 0] = -0.5
    result = problem.build(ToCorner).explain(x)
    assert result.logs["outside_training_range"] == {"x0": 1}
    assert len(result) == len(x)


def test_many_rows_in_batches_equal_one_batch(problem):
    x = np.tile(problem.x, (50, 1))
    whole = problem.fitted(METHODS.get("wachter")).explain(x, 1)
    parts = problem.fitted(METHODS.get("wachter"), batch_size=64).explain(x, 1)
    np.testing.assert_allclose(whole.x_cfs, parts.x_cfs, atol=1e-4)


def test_every_method_answers_a_hundred_thousand_rows_or_times_out(problem):
    rng = np.random.default_rng(0)
    x = rng.random((100_000, 3)).astype(np.float32)
    result = problem.fitted(METHODS.get("wachter"), time_limit=20).explain(x, 1)
    assert set(result.counts()) <= {"found", "not_applicable", "timeout", "not_found"}
    assert result.found.sum() > 30_000


def test_settings_of_all_methods_survive_a_round_trip(problem):
    for name, cls in METHODS.items():
        if not cls.__module__.startswith("cel."):
            continue
        method = problem.build(cls)
        again = method.clone().set_params(random_state=5)
        assert again.random_state == 5, name
        assert method.random_state == 0, name
        with pytest.raises(ConfigError, match="no setting"):
            method.set_params(no_such_setting=1)


def test_unreachable_targets_are_not_found(problem):
    wall = FeatureSpace.continuous(3).with_changes(
        x0={"upper": 0.05}, x1={"upper": 0.05}, x2={"lower": 0.9}
    )
    x = np.array([[0.01, 0.02, 0.95], [0.03, 0.01, 0.97]], dtype=np.float32)
    for name, cls in METHODS.items():
        if not cls.__module__.startswith("cel.") or applicable(cls, problem) is not None:
            continue
        result = problem.fitted(cls, space=wall, time_limit=20).explain(x, 1)
        assert not result.found.any(), name
        assert set(result.status) <= {"not_found", "infeasible", "invalid", "timeout"}, name


class Asks(ToCorner):
    """Asks about every row again and again until the budget is spent."""

    def _explain(self, query):
        self.asked = 0
        while not query.budget.expired and self.asked < 1000:
            query.model.margin(query.x, query.target)
            self.asked += len(query)
        return query.x * float("nan")


@pytest.mark.parametrize("n", [1, 4, 12])
def test_queries_are_counted_per_row(problem, n):
    """With n rows the whole search may ask n times as often; rows without a task do not count."""
    method = problem.build(Asks, max_queries=7)
    result = method.explain(problem.x[:n])
    assert method.asked == 7 * n
    assert set(result.status) == {"timeout"}
    done = problem.x_train[problem.model.predict(problem.x_train) == 1][:20]
    bad = np.full((3, 3), np.nan, dtype=np.float32)
    method.explain(np.concatenate([problem.x[:n], done, bad]), target=1)
    assert method.asked == 7 * n


def test_batches_share_the_queries(problem):
    counts = []

    class Counts(Asks):
        def _explain(self, query):
            reply = super()._explain(query)
            counts.append(self.asked)
            return reply

    result = problem.build(Counts, max_queries=3, batch_size=5).explain(problem.x)
    assert counts == [40]  # the first batch of 5 spends what 12 rows may: 36, seen after a round
    assert set(result.status) == {"timeout"}


@pytest.mark.parametrize("names", [("no", "yes"), (1, 2), (False, True)])
def test_recorded_labels_are_read_as_the_classes_of_the_model(names):
    """`fit(X, y)` with labels: positions of the model's classes; others are never predicted."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((60, 2)).round(2), columns=["a", "b"])
    y = np.array(names, dtype=object)[(frame["a"] > 0.5).astype(int)]
    tree = DecisionTreeClassifier(random_state=0)
    model = wrap(tree.fit(frame, y.astype(type(names[0]))), frame)
    method = NearestInstance(model).fit(frame, y)
    assert method.train_.labels.tolist() == (frame["a"] > 0.5).astype(int).tolist()
    odd = np.where(np.arange(60) < 3, "else", y.astype(str))
    assert (NearestInstance(model).fit(frame, odd).train_.labels[:3] == -1).all()
    plain = PROBLEMS["three_classes"]()
    given = plain.model.predict(plain.x_train)
    kept = NearestInstance(plain.model, space=plain.space).fit(plain.x_train, given)
    np.testing.assert_array_equal(kept.train_.labels.numpy(), given)
