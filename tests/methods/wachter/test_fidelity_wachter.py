"""Wachter beyond linear two-class models: tangents and the edge of the box."""

import cvxpy
import numpy as np
import pytest
from scipy.optimize import linprog

from cel.cf_methods.local_methods.cem import CEM
from cel.cf_methods.local_methods.wachter import Wachter
from cel.protocols import Status, Task
from cel.space import FeatureSpace
from cel.testing.problems import ToyModel

FAILED = {Status.NOT_FOUND.value, Status.INFEASIBLE.value}


def mad(x):
    return np.median(np.abs(x - np.median(x, axis=0)), axis=0).astype(np.float64)


def knapsack(problem, scale):
    """Return (n,) least `sum |delta| / scale` by a linear program."""
    price, w = np.concatenate([1 / scale, 1 / scale]), problem.w.astype(np.float64)
    out = []
    for row in problem.x.astype(np.float64):
        bounds = [(0, problem.high - v) for v in row] + [(0, v - problem.low) for v in row]
        gap = problem.margin - problem.score(row)
        solved = linprog(price, A_ub=-np.concatenate([w, -w])[None], b_ub=[-gap], bounds=bounds)
        out.append(solved.fun)
    return np.array(out)


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_l1_mad_is_the_optimum_of_the_linear_program(bend, case, deviation):
    problem = case(bend)
    x, scale = problem.answers(Wachter), mad(problem.train)
    cost = (np.abs(x - problem.x) / scale).sum(1)
    best = knapsack(problem, scale)
    deviation.excess(cost, best, oracle="linear program (HiGHS)", limit=1e-3)


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_l2_is_the_projection_onto_half_space_and_box(bend, case, deviation):
    problem = case(bend)
    x = problem.answers(Wachter, distance="l2")
    exact = problem.optimum(lambda z: cvxpy.sum_squares(z - problem.x))
    deviation.absolute(x, exact, oracle="quadratic program (Clarabel)", limit=2e-4)


def test_one_feature_changes_without_bounds_on_a_curved_model(case, deviation):
    """Without bounds only the feature with the largest |w| MAD changes, on a curved model too."""
    problem = case(0.2, box=20.0)
    changed = np.abs(problem.answers(Wachter) - problem.x) > 1e-6
    best = np.abs(problem.w * mad(problem.train)).argmax()
    wrong = (changed.sum(1) != 1) | ~changed[:, best]
    deviation.rows(wrong, oracle="argmax of |w| MAD")
    assert best != np.abs(problem.w).argmax()  # so the MAD decides, not the weight alone


@pytest.mark.parametrize("bend", [0.05, 0.1])
@pytest.mark.parametrize("distance", ["l1_mad", "l2"])
def test_regression_comes_within_eps(bend, distance, check, deviation):
    rng = np.random.default_rng(3)
    w = np.array([[0.5, 0.3, -0.2, 0.1]], dtype=np.float32)
    model = ToyModel(w, np.array([0.2], dtype=np.float32), Task.REGRESSION, bend=bend)
    train, x = rng.random((100, 4)).astype(np.float32), rng.random((16, 4)).astype(np.float32)
    goal = 0.45
    x = x[np.abs(model.predict(x)[:, 0] - goal) > 0.06]
    assert len(x) >= 6
    method = Wachter(model, space=FeatureSpace.continuous(4), distance=distance).fit(train)
    ours = check.found(method.explain(x, target=goal))
    value = model.predict(ours.astype(np.float32))[:, 0]
    deviation.absolute(value, goal, oracle="value asked for (eps 0.01)", limit=0.01)


@pytest.mark.parametrize("cls", [Wachter, CEM])
@pytest.mark.parametrize("bend", [0.0, 0.2])
@pytest.mark.parametrize("spare", [0.1, -0.1])
def test_classes_are_found_if_and_only_if_the_box_reaches_them(
    cls, bend, spare, case, check, deviation
):
    """Rows are found if and only if the best corner of the box lies past the boundary."""
    problem = case(bend, n=6)
    shift = problem.w.clip(min=0).sum() + problem.b + spare
    problem.model = check.two_classes(problem.w, problem.b - shift, bend)
    result = problem.run(cls)
    wanted = FAILED if spare > 0 else {Status.FOUND.value}
    wrong = [s not in wanted for s in result.status]
    deviation.rows(wrong, oracle="best corner of the box")
    assert np.isnan(result.x_cfs).all() == (spare > 0)
