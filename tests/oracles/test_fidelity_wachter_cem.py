"""Wachter and CEM against exact solvers on models whose optimum is known.

The bent model `z + 0.2 sin(3 z)` of `ToyModel` is not linear, so the closed form does not apply,
but it has the same boundary as the linear one and therefore the same optimum.
"""

import cvxpy
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cel.cf_methods.local_methods.cem import CEM
from cel.cf_methods.local_methods.wachter import Wachter
from cel.protocols import Status, Task
from cel.space import FeatureSpace
from cel.testing.problems import ToyModel

D = 6
MARGIN = 1e-4
FAILED = {Status.NOT_FOUND.value, Status.INFEASIBLE.value}


class Case:
    """A two-class model, rows of class 0 that can reach class 1, and training rows."""

    def __init__(self, bend=0.0, n=12, seed=0, box=1.0):
        rng = np.random.default_rng(seed)
        self.w = (rng.normal(size=D) * 3).astype(np.float32)
        self.b = np.float32(-0.6 * self.w.clip(min=0).sum() - 0.4 * self.w.clip(max=0).sum())
        self.train = (rng.random((300, D)) ** rng.uniform(0.5, 4, D)).astype(np.float32)
        self.model = two_classes(self.w, self.b, bend)
        rows = rng.random((400, D)).astype(np.float32)
        self.x = rows[self.score(rows) < -0.5][:n]
        self.low, self.high = 0.5 - box / 2, 0.5 + box / 2
        self.space = FeatureSpace.continuous(D, self.low, self.high)

    def score(self, x):
        return np.asarray(x, dtype=np.float64) @ self.w.astype(np.float64) + float(self.b)

    def run(self, cls, target=1, **settings):
        method = cls(self.model, space=self.space, **settings)
        return method.fit(self.train).explain(self.x, target=target)

    def optimum(self, objective, margin=MARGIN, low=None, high=None):
        """Minimise a sum over rows of a function of x' inside the box, past the boundary."""
        z = cvxpy.Variable(self.x.shape)
        rules = [z >= (self.low if low is None else low), z <= (self.high if high is None else high)]
        rules.append(z @ self.w.astype(np.float64) + float(self.b) >= margin)
        cvxpy.Problem(cvxpy.Minimize(objective(z)), rules).solve(solver=cvxpy.CLARABEL)
        return np.asarray(z.value)


def two_classes(w, b, bend=0.0):
    weights = np.stack([np.zeros_like(w), w])
    return ToyModel(weights, np.array([0, b], dtype=np.float32), Task.CLASSIFICATION, bend=bend)


def found(result):
    assert set(result.status) == {Status.FOUND.value}
    return result.x_cfs.astype(np.float64)


def knapsack(case, scale):
    """Return (n,) least `sum |delta| / scale` by a linear program."""
    price, w = np.concatenate([1 / scale, 1 / scale]), case.w.astype(np.float64)
    out = []
    for row in case.x.astype(np.float64):
        bounds = [(0, case.high - v) for v in row] + [(0, v - case.low) for v in row]
        gap = MARGIN - case.score(row)
        solved = linprog(price, A_ub=-np.concatenate([w, -w])[None], b_ub=[-gap], bounds=bounds)
        out.append(solved.fun)
    return np.array(out)


def mad(x):
    return np.median(np.abs(x - np.median(x, axis=0)), axis=0).astype(np.float64)


def elastic(delta, beta):
    return beta * np.abs(delta).sum(1) + (delta**2).sum(1)


def elastic_cone(x, beta):
    return lambda z: beta * cvxpy.sum(cvxpy.abs(z - x)) + cvxpy.sum_squares(z - x)


def assert_optimal(cost, best, within, record):
    ratio = cost / best
    record("deviation", f"{ratio.min() - 1:.1e} .. {ratio.max() - 1:.1e}")
    assert ratio.min() > 1 - 1e-4  # nothing is cheaper than the optimum
    assert ratio.max() < 1 + within


# -- Wachter ---------------------------------------------------------------------------------

PATHS = pytest.mark.parametrize(
    ("bend", "settings"),
    [
        (0.0, {}),
        (0.2, {}),
        (0.0, {"solver": "gradient"}),
        (0.0, {"solver": "gradient", "loss": "squared_prob"}),
    ],
    ids=["closed_form", "tangents", "descent", "descent_prob"],
)


@PATHS
def test_wachter_l1_mad_is_the_knapsack_optimum(bend, settings, record_property):
    case = Case(bend)
    x = found(case.run(Wachter, **settings))
    scale = mad(case.train)
    cost = (np.abs(x - case.x) / scale).sum(1)
    assert_optimal(cost, knapsack(case, scale), 0.01, record_property)


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_wachter_changes_one_feature_without_bounds(bend):
    case = Case(bend, box=2000.0)
    x = found(case.run(Wachter))
    changed = np.abs(x - case.x) > 1e-6
    best = np.abs(case.w * mad(case.train)).argmax()
    assert (changed.sum(1) == 1).all()
    assert changed[:, best].all()
    assert best != np.abs(case.w).argmax()  # so the MAD decides, not the weight alone


@PATHS
def test_wachter_l2_is_the_projection(bend, settings, record_property):
    case = Case(bend)
    x = found(case.run(Wachter, distance="l2", **settings))
    exact = case.optimum(lambda z: cvxpy.sum_squares(z - case.x))
    record_property("deviation", float(np.abs(x - exact).max()))
    np.testing.assert_allclose(x, exact, atol=1e-3)


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_wachter_l1_mad_does_not_depend_on_units(bend, record_property):
    case, other = Case(bend), Case(bend)
    column = int(np.abs(case.w * mad(case.train)).argmax())
    unit = np.ones(D, dtype=np.float32)
    unit[column] = 10
    other.w, other.train, other.x = case.w / unit, case.train * unit, case.x * unit
    other.model = two_classes(other.w, case.b, bend)
    features = [f if j != column else None for j, f in enumerate(case.space)]
    ten = type(case.space.features[0])(name="ten", columns=(column,), upper=10.0)
    other.space = FeatureSpace(tuple(f or ten for f in features))
    a, b = found(case.run(Wachter)), found(other.run(Wachter)) / unit
    record_property("deviation", float(np.abs(a - b).max()))
    np.testing.assert_allclose(a, b, atol=1e-3)
    plain = np.abs(case.w), np.abs(other.w)
    assert plain[0].argmax() != plain[1].argmax() or mad(case.train)[column] > 0
    assert (np.abs(a - case.x)[:, column] > 1e-3).any()


@pytest.mark.parametrize("bend", [0.0, 0.05])
@pytest.mark.parametrize("distance", ["l1_mad", "l2"])
def test_wachter_regression_comes_within_eps(bend, distance, record_property):
    rng = np.random.default_rng(3)
    w = np.array([[0.5, 0.3, -0.2, 0.1]], dtype=np.float32)
    model = ToyModel(w, np.array([0.2], dtype=np.float32), Task.REGRESSION, bend=bend)
    train, x = rng.random((100, 4)).astype(np.float32), rng.random((12, 4)).astype(np.float32)
    goal = 0.45
    method = Wachter(model, space=FeatureSpace.continuous(4), distance=distance).fit(train)
    result = method.explain(x, target=goal)
    start = model.predict(x)[:, 0]
    todo = np.abs(start - goal) > 0.05
    assert todo.sum() >= 6
    assert set(result.status[todo]) == {Status.FOUND.value}
    miss = np.abs(model.predict(result.x_cfs[todo])[:, 0] - goal)
    record_property("deviation", float(miss.max()))
    assert miss.max() <= 0.01


@pytest.mark.parametrize("outputs", [2, 3])
def test_wachter_l2_of_several_outputs_is_the_pseudo_inverse(outputs, record_property):
    rng = np.random.default_rng(4)
    w = rng.normal(size=(outputs, 5)).astype(np.float32)
    model = ToyModel(w, np.zeros(outputs, dtype=np.float32), Task.REGRESSION)
    x = rng.random((10, 5)).astype(np.float32)
    goal = model.predict(x) + 0.3
    method = Wachter(
        model, space=FeatureSpace.continuous(5, -50, 50), distance="l2", eps=1e-3, tolerance=1e-3
    )
    ours = found(method.explain(x, target=goal))
    exact = x + (goal - model.predict(x)) @ np.linalg.pinv(w).T
    record_property("deviation", float(np.abs(ours - exact).max()))
    np.testing.assert_allclose(ours, exact, atol=2e-3)


@pytest.mark.parametrize("bend", [0.0, 0.05])
@pytest.mark.parametrize("goal", [-0.5, 1.5])
def test_wachter_refuses_values_outside_the_range_over_the_box(goal, bend):
    w = np.array([[0.5, 0.3, -0.2]], dtype=np.float32)  # in [0, 1] over the box
    model = ToyModel(w, np.array([0.2], dtype=np.float32), Task.REGRESSION, bend=bend)
    x = np.random.default_rng(5).random((8, 3)).astype(np.float32)
    result = Wachter(model, space=FeatureSpace.continuous(3)).fit(x).explain(x, target=goal)
    assert set(result.status) <= FAILED
    assert np.isnan(result.x_cfs).all()


@pytest.mark.parametrize("cls", [Wachter, CEM])
@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_unreachable_classes_are_not_found(cls, bend):
    case = Case(bend)
    shift = case.w.clip(min=0).sum() + case.b + 0.1
    case.model = two_classes(case.w, case.b - shift, bend)
    result = case.run(cls)
    assert set(result.status) <= FAILED
    assert np.isnan(result.x_cfs).all()


@pytest.mark.parametrize("beta", [None, 0.0])
def test_three_classes_are_the_quadratic_program(beta, record_property):
    """Two half-spaces at once; the nearest single one is only a lower bound."""
    rng = np.random.default_rng(6)
    w = rng.normal(size=(3, 4)).astype(np.float32) * 3
    b = -w.mean(1) / 2
    model = ToyModel(w, b.astype(np.float32), Task.CLASSIFICATION)
    x = rng.random((200, 4)).astype(np.float32)
    x = x[model.predict(x) != 0][:12]
    space = FeatureSpace.continuous(4)
    method = Wachter(model, space=space, distance="l2") if beta is None else CEM(
        model, space=space, beta=beta
    )
    ours = found(method.explain(x, target=0))
    z = cvxpy.Variable(x.shape)
    logits = z @ w.T.astype(np.float64) + b[None].astype(np.float64)
    rules = [z >= 0, z <= 1, *(logits[:, 0] - logits[:, k] >= MARGIN for k in (1, 2))]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(z - x)), rules)
    problem.solve(solver=cvxpy.CLARABEL)
    tie = np.abs(z.value @ (w[1] - w[2]) + b[1] - b[2]) < 1e-3
    assert tie.any()  # rows whose optimum touches both half-spaces
    best = np.linalg.norm(z.value - x, axis=1)
    assert_optimal(np.linalg.norm(ours - x, axis=1), best, 0.01, record_property)
