"""Repeated linearisation and least change against closed forms, and what they ask of the model."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cel.search import Budget
from cel.solvers import Demands, least_change_search, linearised_search, nearest_all, row_jacobian

CENTER = torch.tensor([[2.0, 0.5], [-1.5, 1.5], [0.3, -3.0], [1.2, 1.2]], dtype=torch.float64)


class Ball:
    """Surplus 1 - |x|^2: the wanted side is the unit ball; points that were asked are kept."""

    def __init__(self):
        self.asked = []

    def __call__(self, x, rows):
        self.asked.append((x.clone(), rows.tolist()))
        return 1 - x.square().sum(1, keepdim=True), -2 * x[:, None]


def demands(linearise, center=CENTER, **changes):
    def cost(x, rows):
        return (x - center[rows]).square().sum(1)

    def accept(x, rows):
        return x, (linearise(x, rows)[0] >= -1e-7).all(1)

    given = {
        "linearise": linearise, "solve": lambda *asked: nearest_all(*asked[:4]), "accept": accept,
        "cost": cost, "center": center,
        "lower": torch.full_like(center, -5), "upper": torch.full_like(center, 5),
        "width": torch.ones(center.shape[1], dtype=center.dtype),
        "grid": torch.zeros(center.shape[1], dtype=center.dtype),
    }  # fmt: skip
    return Demands(**(given | changes))


@pytest.mark.parametrize("start", ["center", "inside", "beyond"])
def test_the_nearest_point_of_a_ball_is_reached_from_anywhere(start):
    """Merits compare a step with where the row stands, so far starts do no harm."""
    begin = {"center": CENTER, "inside": 0 * CENTER + 0.1, "beyond": -CENTER}[start]
    found = linearised_search(demands(Ball()), begin, steps=40, radius=1.0)
    best = CENTER / CENTER.norm(dim=1, keepdim=True)
    assert found.ok.all()
    torch.testing.assert_close(found.x, best, atol=2e-3, rtol=0)
    cost = (CENTER.norm(dim=1) - 1).square()
    assert (found.cost <= cost * (1 + 1e-3)).all()
    assert (found.cost >= cost * (1 - 1e-6)).all()


def plane(x, rows):
    """Two linear surpluses; their corner is at (1, 1)."""
    return torch.stack([x[:, 0] - 1, x[:, 1] - 1], 1), torch.eye(2).to(x).expand(len(x), 2, 2)


def test_a_linear_demand_takes_one_tangent():
    center = torch.tensor([[0.0, 0.0], [0.5, -2.0], [3.0, 0.0]], dtype=torch.float64)
    calls = []

    def counted(x, rows):
        calls.append(len(x))
        return plane(x, rows)

    given = demands(counted, center, accept=lambda x, rows: (x, (plane(x, rows)[0] >= 0).all(1)))
    found = linearised_search(given, center, steps=30, radius=9.0)
    want = torch.tensor([[1.0, 1.0], [1.0, 1.0], [3.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(found.x, want)
    assert len(calls) <= 4  # the start, the answer, the look that nothing is left, a repair


def test_a_model_that_keeps_its_promise_is_trusted_twice_as_far_each_time():
    """On a linear model every step delivers what the tangent promised from where the row is.

    A wall 50 away is reached by steps of 1, 2, 4, 8, 16 and 32.
    """
    center, asked = torch.zeros(1, 2, dtype=torch.float64), []

    def wall(x, rows):
        asked.append(float(x[0, 0]))
        slope = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
        return x[:, :1] - 50, slope.expand(len(x), 1, 2)

    box = {"lower": torch.full_like(center, -99), "upper": torch.full_like(center, 99)}
    accept = {"accept": lambda x, rows: (x, x[:, 0] >= 50 - 1e-6)}
    found = linearised_search(demands(wall, center, **box, **accept), center, steps=7, radius=1.0)
    assert found.ok.all()
    assert asked[:7] == pytest.approx([0, 1, 3, 7, 15, 31, 50])


def test_steps_stay_inside_the_trust_region_and_the_box():
    ball = Ball()
    linearised_search(demands(ball), CENTER, steps=1, radius=0.25)
    (first, _), (second, _) = ball.asked[:2]
    assert float((second - first).abs().max()) == pytest.approx(0.25)
    given = demands(ball, lower=torch.full_like(CENTER, -0.2))
    far = linearised_search(given, CENTER.clamp(min=-0.2), steps=40, radius=1.0)
    assert far.ok.all()
    assert (far.x >= -0.2 - 1e-9).all()
    assert float(far.x.min()) == pytest.approx(-0.2, abs=1e-6)


def test_whole_numbers_are_rounded_to_the_side_that_helps():
    """Accepted points are seen on a grid of 1: the answer is the nearest whole number inside."""
    center = torch.tensor([[0.0], [0.0]], dtype=torch.float64)
    level = torch.tensor([2.2, 3.6], dtype=torch.float64)

    def line(x, rows):
        return x - level[rows, None], torch.ones(len(x), 1, 1, dtype=x.dtype)

    def accept(x, rows):
        seen = x.round()
        return seen, seen[:, 0] >= level[rows]

    given = demands(line, center, accept=accept, grid=torch.ones(1, dtype=torch.float64))
    found = linearised_search(given, center, steps=20, radius=9.0)
    assert found.x.tolist() == [[3.0], [4.0]]


def test_points_are_shifted_further_where_half_a_step_does_not_help():
    """The line is met at 2, but only 3 is accepted: rounding alone would stay at 2."""
    center = torch.tensor([[0.0]], dtype=torch.float64)

    def line(x, rows):
        return x - 2, torch.ones(len(x), 1, 1, dtype=x.dtype)

    def accept(x, rows):
        return x.round(), x.round()[:, 0] >= 3

    one = torch.ones(1, dtype=torch.float64)
    found = linearised_search(
        demands(line, center, accept=accept, grid=one), center, steps=20, radius=9.0
    )
    assert found.x.tolist() == [[3.0]]
    plain = demands(line, center, accept=accept)
    assert not linearised_search(plain, center, steps=20, radius=9.0).ok.any()


def test_no_rows_and_no_budget():
    empty = linearised_search(demands(Ball(), CENTER[:0]), CENTER[:0], steps=5, radius=1.0)
    assert len(empty.x) == 0
    ball, spent = Ball(), Budget(max_queries=0)
    linearised_search(demands(ball), CENTER, steps=50, radius=0.01, budget=spent)
    own = [rows for _, rows in ball.asked]
    assert len(own) <= 2 + 2 * 6 + 2  # start, one step, repairs and their acceptance tests


def test_jacobians_equal_those_of_autograd():
    def outputs(x, rows):
        return torch.stack([x[:, 0] * x[:, 1], x.sin().sum(1) + rows, x[:, 2] ** 3], 1)

    x = torch.rand(5, 3, dtype=torch.float64)
    value, slope = row_jacobian(outputs, x, torch.arange(5))
    for i in range(5):
        own = torch.autograd.functional.jacobian(
            lambda v, i=i: outputs(v[None], torch.tensor([i]))[0], x[i]
        )
        torch.testing.assert_close(slope[i], own)
    torch.testing.assert_close(value, outputs(x, torch.arange(5)))
    flat, none = row_jacobian(lambda x, rows: torch.ones(5, 2), x, torch.arange(5))
    assert flat.shape == (5, 2)
    assert none.shape == (5, 2, 3)
    assert not none.any()


def least(outputs, target, center, *, low=-9.0, high=9.0, tolerance=1e-4, **more):
    scale = more.get("scale")

    def accept(x, rows):
        return x, ((outputs(x, rows) - target[rows]).abs() <= tolerance).all(1)

    def cost(x, rows):
        delta = x - center[rows]
        return delta.square().sum(1) if scale is None else (delta.abs() / scale).sum(1)

    lower, upper = (torch.as_tensor(b).to(center).expand_as(center) for b in (low, high))
    return least_change_search(
        outputs, target, center=center, lower=lower, upper=upper, accept=accept, cost=cost, **more
    )


def draw(n=12, d=5, m=2, seed=0):
    rng = np.random.default_rng(seed)
    w = torch.as_tensor(rng.normal(size=(m, d)))
    x = torch.as_tensor(rng.random((n, d)))
    target = x @ w.T + torch.as_tensor(rng.normal(size=(n, m)) * 0.5)
    return w, x, target


def test_linear_outputs_move_by_the_pseudo_inverse():
    w, x, target = draw()
    found = least(lambda v, rows: v @ w.T, target, x)
    best = x + (target - x @ w.T) @ torch.linalg.pinv(w).T
    assert found.ok.all()
    torch.testing.assert_close(found.x, best, atol=1e-4, rtol=0)


def test_columns_that_are_fixed_or_at_a_bound_stay():
    w, x, target = draw()
    low, high = x - 0.4, x + 0.4
    low[:, 1], high[:, 1] = x[:, 1], x[:, 1]
    found = least(lambda v, rows: v @ w.T, target, x, low=low, high=high)
    solvable = 0
    for i in range(len(x)):
        bounds = list(zip(low[i].tolist(), high[i].tolist(), strict=True))
        solvable += linprog(
            np.zeros(5), A_eq=w.numpy(), b_eq=target[i].numpy(), bounds=bounds
        ).success
    assert int(found.ok.sum()) == solvable == 5
    assert torch.equal(found.x[found.ok][:, 1], x[found.ok][:, 1])
    assert ((found.x >= low - 1e-9) & (found.x <= high + 1e-9))[found.ok].all()


def test_the_l1_cost_is_that_of_the_linear_program():
    w, x, target = draw(n=8)
    scale = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    found = least(lambda v, rows: v @ w.T, target, x, scale=scale, steps=30, tolerance=1e-3)
    assert found.ok.all()
    for i in range(len(x)):
        gap = (target[i] - w @ x[i]).numpy()
        side = np.hstack([w.numpy(), -w.numpy()])
        best = linprog(np.tile(1 / scale.numpy(), 2), A_eq=side, b_eq=gap, bounds=(0, 9)).fun
        assert float(found.cost[i]) == pytest.approx(best, rel=0.02)


def test_curved_outputs_are_reached():
    def outputs(x, rows):
        return torch.stack([x.square().sum(1), x[:, 0] * x[:, 1]], 1)

    center = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.6, 0.3]], dtype=torch.float64)
    target = torch.tensor([[4.0, 1.0], [8.0, -2.0], [1.0, 0.1]], dtype=torch.float64)
    found = least(outputs, target, center)
    assert found.ok.all()
    torch.testing.assert_close(outputs(found.x, None), target, atol=1e-4, rtol=0)
    nothing = least(outputs, target, center, budget=Budget(max_queries=0))
    assert not nothing.ok.any()
    assert len(least(outputs, target[:0], center[:0]).x) == 0
