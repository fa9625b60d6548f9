"""Closed forms against linear, quadratic and cone programs."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cel.solvers import nearest_all, nearest_elastic, nearest_l1, nearest_l2, proved_empty

TIGHT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


def _draw(n, d, seed=0, shifted=False):
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(n, d)) * np.exp(rng.normal(size=(n, d)))
    w[rng.random((n, d)) < 0.1] = 0.0
    lower, upper = -rng.random((n, d)), rng.random((n, d))
    if shifted:
        move = rng.normal(size=(n, d)) * 0.7
        lower, upper = lower + move, upper + move
    stuck = rng.random((n, d)) < 0.1
    upper = np.where(stuck, lower, upper)
    return w, rng.random(n) * 5, lower, upper


def _tensors(*arrays):
    return tuple(torch.as_tensor(a, dtype=torch.float64) for a in arrays)


@pytest.mark.parametrize("shifted", [False, True])
def test_knapsack_equals_linear_program(shifted, deviation):
    w, gap, lower, upper = _draw(200, 8, shifted=shifted)
    scale = np.random.default_rng(1).random(8) + 0.1
    answer = nearest_l1(*_tensors(w, gap, lower, upper), torch.as_tensor(scale))
    for i in range(len(w)):
        # delta = p - q with p, q >= 0
        program = linprog(
            np.concatenate([1 / scale, 1 / scale]),
            A_ub=np.vstack(
                [
                    -np.concatenate([w[i], -w[i]])[None],
                    np.hstack([np.eye(8), -np.eye(8)]),
                    np.hstack([-np.eye(8), np.eye(8)]),
                ]
            ),
            b_ub=np.concatenate([[-gap[i]], upper[i], -lower[i]]),
        )
        assert bool(answer.feasible[i]) == (program.status == 0)
        if program.status == 0:
            cost = float((answer.delta[i].abs() / torch.as_tensor(scale)).sum())
            assert cost == pytest.approx(program.fun, rel=1e-7, abs=1e-9)
            away = abs(cost - program.fun) / max(program.fun, 0.01)
            deviation(away, oracle="linear program (HiGHS)", limit=1e-7, unit="relative cost")


def _program(w, gap, lower, upper, l1, theta, pull):
    delta = cp.Variable(w.shape[-1])
    cost = cp.sum_squares(delta) + l1 * cp.norm1(delta) + theta * cp.sum_squares(delta - pull)
    limits = [np.atleast_2d(w) @ delta >= np.atleast_1d(gap), delta >= lower, delta <= upper]
    problem = cp.Problem(cp.Minimize(cost), limits)
    problem.solve(solver=cp.CLARABEL, **TIGHT)
    return None if "infeasible" in problem.status else delta.value


@pytest.mark.parametrize(("l1", "theta"), [(0.0, 0.0), (0.1, 0.0), (1.0, 0.0), (0.3, 10.0)])
def test_elastic_net_equals_quadratic_program(l1, theta, deviation):
    w, gap, lower, upper = _draw(40, 6, seed=3, shifted=theta > 0)
    pull = np.random.default_rng(2).normal(size=w.shape) * 0.3
    extra = {"pull": torch.as_tensor(pull), "theta": theta} if theta else {}
    answer = nearest_elastic(*_tensors(w, gap, lower, upper), l1=l1, **extra)
    for i in range(len(w)):
        best = _program(w[i], gap[i], lower[i], upper[i], l1, theta, pull[i])
        assert bool(answer.feasible[i]) == (best is not None)
        if best is not None:
            told = {"oracle": "quadratic program (Clarabel)", "limit": 1e-8}
            deviation.absolute(answer.delta[i], best, **told)


def test_half_space_projection_without_box(deviation):
    """Without a box the L2 answer is gap w / |w|^2."""
    w, gap, *_ = _draw(50, 5)
    wide = np.full_like(w, 1e3)
    answer = nearest_l2(*_tensors(w, gap, -wide, wide))
    expected = gap[:, None] * w / (w**2).sum(1, keepdims=True)
    np.testing.assert_allclose(answer.delta, expected, rtol=1e-9, atol=1e-12)
    gap = np.linalg.norm(answer.delta.numpy() - expected, axis=1)
    gap /= np.linalg.norm(expected, axis=1)
    deviation(gap, oracle="gap w / |w|^2", limit=1e-12, unit="relative")


def test_infinite_bounds_are_welcome():
    """Infinite bounds give finite answers."""
    w, gap, *_ = _draw(20, 5)
    wide = np.full_like(w, np.inf)
    for nearest in (nearest_l1, nearest_l2):
        answer = nearest(*_tensors(w, gap, -wide, wide))
        assert answer.feasible.all()
        assert torch.isfinite(answer.delta).all()


def _softmax(classes, d, seed, n=60):
    """Half-spaces of a linear model with several classes around rows of the unit cube."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(classes, d)) * 3
    x = rng.random((n, d))
    gap = (x @ w[1:].T) - (x @ w[:1].T) + (w[:1] - w[1:]).sum(1) / 2
    lower, upper = -x, 1 - x
    stuck = rng.random((n, d)) < 0.1
    lower, upper = np.where(stuck, 0, lower), np.where(stuck, 0, upper)
    return np.broadcast_to(w[:1] - w[1:], (n, classes - 1, d)).copy(), gap, lower, upper


SHAPES = [(3, 4), (5, 6), (10, 4), (10, 12)]


@pytest.mark.parametrize(("classes", "d"), SHAPES)
@pytest.mark.parametrize(("l1", "theta"), [(0.0, 0.0), (0.1, 0.0), (1.0, 0.0), (0.3, 2.0)])
def test_half_spaces_equal_quadratic_program(classes, d, l1, theta, deviation):
    """The nearest point of all half-spaces of a softmax model and the box, with L1 and pull."""
    w, gap, lower, upper = _softmax(classes, d, seed=7)
    pull = np.random.default_rng(2).normal(size=lower.shape) * 0.3
    extra = {"pull": torch.as_tensor(pull), "theta": theta} if theta else {}
    answer = nearest_all(*_tensors(w, gap, lower, upper), l1=l1, **extra)
    several = 0
    for i in range(len(w)):
        best = _program(w[i], gap[i], lower[i], upper[i], l1, theta, pull[i])
        assert bool(answer.feasible[i]) == (best is not None)
        if best is not None:
            told = {"oracle": "quadratic program (Clarabel)", "limit": 1e-5}
            deviation.absolute(answer.delta[i], best, **told)
            several += int((answer.dual[i] > 1e-6).sum()) > 1
    assert several >= 1


@pytest.mark.parametrize(("classes", "d"), SHAPES)
@pytest.mark.parametrize("far", [False, True])
def test_half_spaces_equal_linear_program(classes, d, far, deviation):
    """The L1-nearest point of all half-spaces of a softmax model, in a box or without one."""
    w, gap, lower, upper = _softmax(classes, d, seed=8)
    if far:
        lower, upper = (np.where(upper > lower, v, 0) for v in (-np.inf, np.inf))
    weight = np.exp(np.random.default_rng(1).normal(size=d))
    given = _tensors(w, gap, lower, upper)
    answer = nearest_all(*given, l1=torch.as_tensor(weight), square=0.0)
    missed = gap - np.einsum("ncd,nd->nc", w, answer.delta.numpy())
    told = {"oracle": "linear program (HiGHS)", "limit": 1e-7}
    deviation(missed[answer.feasible], unit="missed", **told)
    for i in range(len(w)):
        bounds = [(0, v) for v in np.concatenate([upper[i], -lower[i]])]
        side = -np.hstack([w[i], -w[i]])
        program = linprog(np.tile(weight, 2), A_ub=side, b_ub=-gap[i], bounds=bounds)
        assert bool(answer.feasible[i]) == (program.status == 0)
        if program.status == 0:
            cost = float((answer.delta[i].abs() * torch.as_tensor(weight)).sum())
            away = abs(cost - program.fun) / max(program.fun, 0.01)
            deviation(away, unit="relative cost", **told)


def test_rows_without_a_common_point_are_proved_to_have_none(deviation):
    """Prices of rows without a feasible offset prove it; those of other rows prove nothing."""
    given = _tensors(*_softmax(10, 4, seed=1, n=400))
    for settings in ({}, {"l1": 1.0, "square": 0.0}):
        answer = nearest_all(*given, **settings)
        assert 20 < int((~answer.feasible).sum()) < 380
        wrong = proved_empty(*given, answer.dual) == answer.feasible
        deviation.rows(wrong, oracle="Farkas' lemma")


def test_half_spaces_do_not_depend_on_units(deviation):
    """Longer normals and tiny boxes change nothing but the units."""
    w, gap, lower, upper = _tensors(*_softmax(5, 6, seed=9))
    plain = nearest_all(w, gap, lower, upper).delta
    small = nearest_all(50 * w, 0.05 * gap, 1e-3 * lower, 1e-3 * upper).delta
    deviation.absolute(1e3 * small, plain, oracle="the same rows in other units", limit=1e-6)


def test_flat_models_end_where_they_are():
    """Normals of length zero, or nearly so, give finite offsets that are not feasible."""
    w, gap, lower, upper = _tensors(*_softmax(5, 6, seed=9))
    for flat in (0.0, 1e-30):
        answer = nearest_all(flat * w, gap.abs() + 1, lower, upper)
        assert not answer.feasible.any()
        assert torch.isfinite(answer.delta).all()


def test_rows_that_cannot_are_flagged_and_pushed_as_far_as_possible(deviation):
    w, lower, upper = _tensors([[1.0, -2.0]], [[-0.5, -0.5]], [[0.5, 0.5]])
    for nearest in (nearest_l1, nearest_l2):
        answer = nearest(w, torch.tensor([9.0], dtype=torch.float64), lower, upper)
        assert not answer.feasible.any()
        deviation.absolute(answer.delta, [[0.5, -0.5]], oracle="corner of the box", limit=0)


def test_no_gap_means_no_change(deviation):
    w, gap, lower, upper = _draw(30, 4)
    for nearest in (nearest_l1, nearest_l2):
        answer = nearest(*_tensors(w, -gap, lower, upper))
        ours = float(answer.delta.abs().sum(1)[answer.feasible].max())
        exact = np.abs(np.clip(0, lower, upper)).sum(1).max()
        deviation.absolute(ours, exact, oracle="nearest point of the box", limit=1e-9)
