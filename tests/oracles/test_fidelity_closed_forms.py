"""The closed forms of a linear margin against exact solvers (linear and conic programs)."""

import cvxpy
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cel.search import nearest_elastic, nearest_l1, nearest_l2, nearest_l2_all


def half_spaces(seed, n=30, d=6, share=0.6):
    """Random problems that ask for a share of what the box can give."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(n, d)) * rng.choice([0.1, 1.0, 5.0], size=(n, d))
    lower, upper = -rng.random((n, d)), rng.random((n, d))
    most = np.where(w > 0, w * upper, w * lower).sum(1)
    return w, share * rng.uniform(0.1, 1.0, n) * most, lower, upper


def tensors(*arrays):
    return [torch.as_tensor(a, dtype=torch.float64) for a in arrays]


def conic(objective, w, gap, lower, upper):
    """Minimise a sum over rows; `w` is (n, d) or (n, c, d), `gap` (n,) or (n, c)."""
    delta = cvxpy.Variable(lower.shape)
    rules = [delta >= lower, delta <= upper]
    for c in range(1 if w.ndim == 2 else w.shape[1]):
        normal, need = (w, gap) if w.ndim == 2 else (w[:, c], gap[:, c])
        rules.append(cvxpy.sum(cvxpy.multiply(normal, delta), axis=1) >= need)
    cvxpy.Problem(cvxpy.Minimize(objective(delta)), rules).solve(solver=cvxpy.CLARABEL)
    return np.asarray(delta.value)


def test_weighted_l1_is_the_optimum_of_the_linear_program(check):
    w, gap, lower, upper = half_spaces(0)
    scale = np.random.default_rng(1).uniform(0.05, 2.0, w.shape[1])
    best = nearest_l1(*tensors(w, gap, lower, upper, scale))
    ours = np.abs(best.delta.numpy() / scale).sum(1)
    price = np.concatenate([1 / scale, 1 / scale])
    exact = []
    for i in range(len(w)):
        bounds = [(0, u) for u in upper[i]] + [(0, -v) for v in lower[i]]
        row = -np.concatenate([w[i], -w[i]])[None]
        exact.append(linprog(price, A_ub=row, b_ub=[-gap[i]], bounds=bounds).fun)
    check.equal(ours / exact, np.ones(len(w)), 1e-8)
    assert best.feasible.all()
    np.testing.assert_allclose((w * best.delta.numpy()).sum(1), gap, rtol=1e-8)


def test_l2_in_a_box_is_the_projection(check):
    w, gap, lower, upper = half_spaces(2)
    ours = nearest_l2(*tensors(w, gap, lower, upper)).delta.numpy()
    exact = conic(cvxpy.sum_squares, w, gap, lower, upper)
    check.equal(ours, exact, 1e-4)
    clipped = (np.abs(ours - lower) < 1e-12) | (np.abs(ours - upper) < 1e-12)
    assert clipped.any(1).sum() > 5  # otherwise the box would not be tested


def test_l2_without_a_box_is_the_textbook_formula():
    w, gap, *_ = half_spaces(3)
    far = np.full_like(w, np.inf)
    ours = nearest_l2(*tensors(w, gap, -far, far)).delta.numpy()
    np.testing.assert_allclose(ours, gap[:, None] * w / (w**2).sum(1, keepdims=True), rtol=1e-9)


@pytest.mark.parametrize(("beta", "theta"), [(0.1, 0.0), (2.0, 0.0), (0.1, 10.0), (1.0, 0.5)])
def test_elastic_net_is_the_conic_optimum(beta, theta, check):
    w, gap, lower, upper = half_spaces(4)
    pull = np.random.default_rng(5).uniform(-1, 1, w.shape)

    def objective(delta):
        near = theta * cvxpy.sum_squares(delta - pull)
        return beta * cvxpy.sum(cvxpy.abs(delta)) + cvxpy.sum_squares(delta) + near

    given = {"pull": torch.as_tensor(pull), "theta": theta} if theta else {}
    ours = nearest_elastic(*tensors(w, gap, lower, upper), l1=beta, **given).delta.numpy()
    exact = conic(objective, w, gap, lower, upper)
    check.equal(ours, exact, 2e-4)


def test_several_half_spaces_are_the_quadratic_program(check):
    rng = np.random.default_rng(6)
    n, c, d = 20, 2, 5
    w = rng.normal(size=(n, c, d))
    lower, upper = -np.ones((n, d)), np.ones((n, d))
    inside = rng.uniform(-0.8, 0.8, (n, d))
    gap = np.einsum("ncd,nd->nc", w, inside)  # feasible by construction
    best = nearest_l2_all(*tensors(w, gap, lower, upper), sweeps=200)
    exact = conic(cvxpy.sum_squares, w, gap, lower, upper)
    ours = best.delta.numpy()
    check.equal(ours, exact, 2e-3)
    assert best.feasible.all()
    both = (best.price.numpy() > 1e-6).all(1)
    assert both.any()  # rows where one half-space alone would not do


def test_gaps_beyond_the_box_are_infeasible_and_met_as_far_as_possible():
    w, _, lower, upper = half_spaces(7)
    most = np.where(w > 0, w * upper, w * lower).sum(1)
    given = tensors(w, 1.01 * most, lower, upper)
    for best in (nearest_l1(*given), nearest_l2(*given), nearest_elastic(*given, l1=0.3)):
        assert not best.feasible.any()
        np.testing.assert_allclose((w * best.delta.numpy()).sum(1), most, rtol=1e-8)
    within = tensors(w, 0.99 * most, lower, upper)
    for best in (nearest_l1(*within), nearest_l2(*within), nearest_elastic(*within, l1=0.3)):
        assert best.feasible.all()
