"""Closed forms against linear, quadratic and cone programs."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cel.search import nearest_elastic, nearest_l1, nearest_l2, nearest_l2_all


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
    problem.solve(solver=cp.CLARABEL)
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
            told = {"oracle": "quadratic program (Clarabel)", "limit": 2e-5}
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


def test_two_half_spaces_equal_quadratic_program(deviation):
    w, gap, lower, upper = _draw(40, 6, seed=5)
    v, other, *_ = _draw(40, 6, seed=6)
    both, gaps = np.stack([w, v], 1), np.stack([gap, other], 1) / 2
    answer = nearest_l2_all(*_tensors(both, gaps, lower, upper), sweeps=200)
    checked = 0
    for i in range(len(w)):
        best = _program(both[i], gaps[i], lower[i], upper[i], 0.0, 0.0, np.zeros(6))
        if best is not None and bool(answer.feasible[i]):
            told = {"oracle": "quadratic program (Clarabel)", "limit": 3e-3}
            deviation.absolute(answer.delta[i], best, **told)
            checked += 1
    assert checked >= 20


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
