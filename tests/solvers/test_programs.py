"""Prices, proofs, ellipsoids and consensus programs against their definitions and brute force."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cel.search import Budget
from cel.solvers import nearest_all, nearest_elastic, nearest_l1, nearest_l2, proved_empty
from cel.solvers.admm import INFEASIBLE, SOLVED, Programs, solve_programs
from cel.solvers.ellipsoid import Ellipsoids
from cel.solvers.few_duals import nearest_few


def draw(n=40, c=3, d=4, seed=0):
    rng = np.random.default_rng(seed)
    w = torch.as_tensor(rng.normal(size=(n, c, d)))
    gap = torch.as_tensor(rng.normal(size=(n, c)) * 0.8 + 0.4)
    return w, gap, torch.as_tensor(-rng.random((n, d))), torch.as_tensor(rng.random((n, d)))


def test_the_dual_value_is_what_one_more_unit_of_gap_costs():
    w, gap, low, high = draw()
    one, first = w[:, 0], gap[:, 0].abs() * 0.5
    step = 1e-5
    for solve, cost in (
        (nearest_l2, lambda x: x.square().sum(1)),
        (nearest_l1, lambda x: x.abs().sum(1)),
        (lambda *a: nearest_elastic(*a, l1=0.3), lambda x: (0.3 * x.abs() + x.square()).sum(1)),
    ):
        here, there = solve(one, first, low, high), solve(one, first + step, low, high)
        ok = here.feasible & there.feasible
        assert ok.sum() > 20
        slope = (cost(there.delta) - cost(here.delta)) / step
        torch.testing.assert_close(slope[ok], here.dual[ok], atol=2e-3, rtol=2e-3)


def test_one_demand_of_several_is_the_closed_form():
    w, gap, low, high = draw()
    ours = nearest_all(w[:, :1], gap[:, :1], low, high)
    form = nearest_l2(w[:, 0], gap[:, 0], low, high)
    torch.testing.assert_close(ours.delta, form.delta)
    assert torch.equal(ours.feasible, form.feasible)
    torch.testing.assert_close(ours.dual[:, 0], form.dual)


def test_offsets_meet_every_demand_inside_the_box_and_cost_no_more_than_random_ones():
    w, gap, low, high = draw(seed=1)
    ours = nearest_all(w, gap, low, high)
    inside = (ours.delta >= low - 1e-9) & (ours.delta <= high + 1e-9)
    assert inside.all()
    met = ((w @ ours.delta[..., None])[..., 0] >= gap - 1e-6).all(1)
    assert torch.equal(met, ours.feasible)
    rng = np.random.default_rng(0)
    for i in range(len(w)):
        share = torch.as_tensor(rng.random((4000, 4)))
        points = low[i] + share * (high[i] - low[i])
        good = (points @ w[i].T >= gap[i]).all(1)
        if not ours.feasible[i]:
            assert not good.any()
        elif good.any():
            best = points[good].square().sum(1).min()
            assert float(ours.delta[i].square().sum()) <= float(best) + 1e-9


def test_a_proof_of_emptiness_is_never_wrong():
    """Whatever the prices: rows that are proved empty have no solution of the linear program."""
    w, gap, low, high = draw(n=120, seed=2)
    gap = gap * 2
    rng = np.random.default_rng(3)
    solvable = []
    for i in range(len(w)):
        bounds = list(zip(low[i].tolist(), high[i].tolist(), strict=True))
        program = linprog(np.zeros(4), A_ub=-w[i].numpy(), b_ub=-gap[i].numpy(), bounds=bounds)
        solvable.append(program.status == 0)
    solvable = torch.tensor(solvable)
    assert 20 < int(solvable.sum()) < 100
    for _ in range(20):
        price = torch.as_tensor(rng.random((120, 3)) ** 3)
        assert not (proved_empty(w, gap, low, high, price) & solvable).any()
    own = proved_empty(w, gap, low, high, nearest_all(w, gap, low, high).dual)
    assert torch.equal(own, ~solvable)


def ellipsoids(m=3, d=2, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(m, d, d))
    covariance = torch.as_tensor(root @ root.transpose(0, 2, 1) + 0.1 * np.eye(d))
    mean = torch.as_tensor(rng.normal(size=(m, d)))
    return Ellipsoids.of(mean, covariance, torch.as_tensor(rng.random(m) + 0.3)), covariance


def test_distances_and_supports_by_their_definitions():
    balls, covariance = ellipsoids(d=3)
    x = torch.as_tensor(np.random.default_rng(1).normal(size=(20, 3)) * 2)
    away = x[:, None] - balls.mean
    by_hand = torch.einsum("nmd,mde,nme->nm", away, torch.linalg.inv(covariance), away)
    torch.testing.assert_close(balls.mahalanobis(x), by_hand)
    which = torch.tensor([2, 0, 1, 1, 0] * 4)
    own = balls.own_mahalanobis(x, which)
    torch.testing.assert_close(own, by_hand[torch.arange(20), which])
    wide = (balls.radius[which] * torch.einsum("nd,nde,ne->n", x, covariance[which], x)).sqrt()
    expected = (x * balls.mean[which]).sum(1) + wide
    torch.testing.assert_close(balls.support(x, which), expected)
    assert len(balls) == 3


def test_projections_lie_on_the_border_along_the_normal():
    """The conditions of optimality: on the border, and v - x a multiple of the gradient."""
    balls, covariance = ellipsoids(d=3)
    v = torch.as_tensor(np.random.default_rng(2).normal(size=(30, 3)) * 4)
    which = torch.tensor([1, 2, 0] * 10)
    x, t = balls.project(v, which)
    out = balls.own_mahalanobis(v, which) > balls.radius[which]
    assert int(out.sum()) > 20
    assert torch.equal(x[~out], v[~out])
    torch.testing.assert_close(
        balls.own_mahalanobis(x, which)[out], balls.radius[which][out], rtol=1e-9, atol=0
    )
    normal = torch.einsum("nde,ne->nd", torch.linalg.inv(covariance)[which], x - balls.mean[which])
    torch.testing.assert_close((v - x)[out], (t[:, None] * normal)[out])
    again, _ = balls.project(v, which, t)
    torch.testing.assert_close(again, x)


def programs(norm, n=24, seed=0):
    rng = np.random.default_rng(seed)
    balls, _ = ellipsoids(m=4, seed=seed)
    return Programs(
        origin=torch.as_tensor(rng.normal(size=(n, 2)) * 1.5),
        weight=torch.tensor([1.0, 2.0], dtype=torch.float64),
        normals=torch.as_tensor(rng.normal(size=(n, 2, 2))),
        offsets=torch.as_tensor(rng.normal(size=(n, 2)) * 0.7 + 0.5),
        lower=torch.full((n, 2), -2.5, dtype=torch.float64),
        upper=torch.full((n, 2), 2.5, dtype=torch.float64),
        which=torch.arange(n) % 4,
        ellipsoids=balls,
        norm=norm,
    )


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_consensus_equals_a_fine_grid(norm):
    given = programs(norm)
    answer = solve_programs(given, max_iter=1000)
    assert int((answer.status == 0).sum()) <= 1  # of L1, one converges slowly
    axis = torch.linspace(-2.5, 2.5, 251, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    statuses = set()
    for i in range(len(given)):
        one = given.select(torch.full((len(grid),), i))
        good = one.violation(grid) <= 0
        statuses.add(int(answer.status[i]))
        if int(answer.status[i]) == INFEASIBLE:
            assert not good.any()
        if int(answer.status[i]) != SOLVED:
            continue
        x = answer.x[i : i + 1]
        own = given.select(torch.tensor([i]))
        assert float(own.violation(x)) < 1e-4
        if good.any():
            best = float(one.value(grid)[good].min())
            # A step of the grid is 0.02; the weights are 1 and 2.
            assert best - 0.1 <= float(own.value(x)) <= best + 1e-3
    assert {SOLVED, INFEASIBLE} <= statuses


def test_values_violations_and_tighter_programs_by_hand():
    ball = Ellipsoids.of(torch.zeros(1, 2), torch.eye(2)[None], torch.tensor([4.0]))
    one = torch.tensor([0])
    given = Programs(
        origin=torch.tensor([[1.0, 0.0]]).double(), weight=torch.tensor([1.0, 3.0]).double(),
        normals=torch.tensor([[[0.0, 2.0]]]).double(), offsets=torch.tensor([[2.0]]).double(),
        lower=torch.full((1, 2), -9.0).double(), upper=torch.full((1, 2), 9.0).double(),
        which=one, ellipsoids=ball,
    )  # fmt: skip
    x = torch.tensor([[3.0, 2.0]]).double()
    assert float(given.value(x)) == 2 + 6
    # the plane is missed by 2 in units of its normal of length 2, the ball by (13 - 4) / 4
    assert float(given.violation(x)) == pytest.approx(2.25)
    assert float(given.violation(torch.tensor([[0.0, 1.5]]).double())) == pytest.approx(0.5)
    tight = given.tightened(0.1)
    assert float(tight.offsets) == pytest.approx(1.8)
    assert float(tight.ellipsoids.radius) == pytest.approx(3.6)
    small = given.within(
        torch.tensor([[-1.0, -20.0]]).double(), torch.tensor([[20.0, 1.0]]).double()
    )
    assert small.lower.tolist() == [[-1.0, -9.0]]
    assert small.upper.tolist() == [[9.0, 1.0]]
    late = solve_programs(given, budget=Budget(0.0))
    assert late.iterations == 0
    assert late.status.tolist() == [0]


def test_programs_without_columns_that_cannot_move_have_the_same_solutions():
    w, gap, low, high = draw(n=60, c=3, d=8, seed=5)
    fixed = torch.as_tensor(np.random.default_rng(1).random((60, 8)) < 0.6)
    low, high = low.masked_fill(fixed, 0.0), high.masked_fill(fixed, 0.0)
    full, lean = (nearest_all(w, gap, low, high, l1=0.1, lean=b) for b in (False, True))
    assert (full.feasible == lean.feasible).all()
    assert full.feasible.any()
    assert (lean.delta[fixed] == 0).all()
    at = full.feasible
    torch.testing.assert_close(full.delta[at], lean.delta[at], atol=1e-6, rtol=0)
    torch.testing.assert_close(full.dual[at], lean.dual[at], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_columns_that_no_row_can_move_still_count_where_they_are(l1):
    w, gap, low, high = draw(n=60, c=2, d=6, seed=6)
    low[:, 1] = high[:, 1] = 0.6
    low[:, 4] = high[:, 4] = -0.4
    full, lean = (nearest_all(w, gap, low, high, l1=l1, lean=b) for b in (False, True))
    assert (full.feasible == lean.feasible).all()
    at = full.feasible
    assert 10 < int(at.sum()) < 60
    assert torch.equal(lean.delta[:, [1, 4]], low[:, [1, 4]])
    torch.testing.assert_close(full.delta[at], lean.delta[at], atol=1e-5, rtol=0)


@pytest.mark.parametrize("c", [2, 3, 4])
def test_dual_values_of_few_demands_end_where_the_interior_point_does(c):
    w, gap, low, high = draw(n=200, c=c, d=6, seed=c)
    low[:, 1] = high[:, 1] = 0.0
    full, lean = (nearest_all(w, gap, low, high, lean=b) for b in (False, True))
    assert torch.equal(full.feasible, lean.feasible)
    at = full.feasible
    assert 50 < int(at.sum()) < 200
    torch.testing.assert_close(full.delta[at], lean.delta[at], atol=1e-5, rtol=0)
    torch.testing.assert_close(full.dual[at], lean.dual[at], atol=1e-4, rtol=1e-4)


def test_few_demands_that_cannot_be_met_are_missed_least():
    """The first row asks for two sides of a box at once, the second for a corner, ..."""
    w = torch.tensor(
        [[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [-2.0, 1.0]]]
    ).double()
    gap = torch.tensor([[0.5, 0.5], [0.5, 0.5], [3.0, 0.4]]).double()
    box = torch.ones(3, 2).double()
    delta, dual, solved = nearest_few(w, gap, -box, box, torch.zeros(3, 2), dearest=1e4)
    assert solved.all()
    # any point between the sides misses as much in all; the nearest of them is no change
    torch.testing.assert_close(delta[0], torch.zeros(2).double())
    torch.testing.assert_close(delta[1], torch.full((2,), 0.5).double())
    torch.testing.assert_close(dual[1], torch.ones(2).double())
    # x costs as much of the second demand as it brings of the first, in units of the normals
    torch.testing.assert_close(delta[2, 1], torch.tensor(1.0).double())
    miss = (gap[2] - w[2] @ delta[2]).clamp(min=0) / torch.tensor([1.0, 2.0])
    grid = torch.cartesian_prod(*[torch.linspace(-1, 1, 401).double()] * 2)
    others = (gap[2] - grid @ w[2].T).clamp(min=0) / torch.tensor([1.0, 2.0])
    assert float(miss.sum()) <= float(others.sum(1).min()) + 1e-9


@pytest.mark.parametrize("c", [2, 4])
def test_what_few_demands_miss_is_no_more_than_the_interior_point_misses(c):
    w, gap, low, high = draw(n=200, c=c, d=6, seed=20 + c)
    zero = torch.zeros_like(gap)
    delta, _, solved = nearest_few(
        *(t.double() for t in (w, 3 * gap, low, high, zero)), dearest=1e4
    )
    assert solved.float().mean() > 0.98
    full = nearest_all(w, 3 * gap, low, high)
    assert (~full.feasible).sum() > 50
    size = w.abs().amax(2)
    ours, theirs = (
        ((3 * gap - (w @ x.to(w)[..., None])[..., 0]).clamp(min=0) / size).sum(1)[solved]
        for x in (delta, full.delta)
    )
    assert float((ours - theirs).max()) < 1e-4


def test_programs_in_which_nothing_can_move_are_solved_where_they_are():
    w, gap, low, _ = draw(n=6, c=2, d=3, seed=7)
    still = torch.zeros_like(low)
    full, lean = (nearest_all(w, gap, still, still, l1=0.1, lean=b) for b in (False, True))
    assert (full.feasible == (gap <= 0).all(1)).all()
    assert (lean.feasible == full.feasible).all()
    assert (lean.delta == 0).all()
