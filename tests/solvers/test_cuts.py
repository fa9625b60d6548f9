"""Remembered tangents."""

import torch

from cel.solvers import nearest_all
from cel.solvers.cuts import Cuts

CENTER = torch.tensor([[2.0, 0.0]])
ROW = torch.tensor([0])
WIDE = torch.full((1, 2), 5.0)


def plain(w, gap, low, high, rows):
    return nearest_all(w, gap, low, high)


def follow(surplus_and_slope, points, memory=8):
    """Linearise at points one after the other; return the answer with all that is remembered."""
    cuts = Cuts(surplus_and_slope, plain, CENTER, last=1, memory=memory)
    for point in points:
        x = torch.tensor([point])
        surplus, slope = cuts.linearise(x, ROW)
    gap = (slope * (x - CENTER)[:, None]).sum(-1) - surplus
    return cuts.solve(slope, gap, -WIDE, WIDE, ROW)


def ball(x, rows):
    """1 - |x|^2: concave, so that every tangent holds for ever."""
    return 1 - x.square().sum(1, keepdim=True), -2 * x[:, None]


def bowl(x, rows):
    """|x|^2 - 1: convex, so that later points refute earlier tangents."""
    return x.square().sum(1, keepdim=True) - 1, 2 * x[:, None]


def test_tangents_of_a_concave_surplus_enclose_its_set():
    points = [(0.8, 0.8), (0.8, -0.8), (0.0, 1.2)]
    answer = follow(ball, points)
    for point in points:
        value, slope = ball(torch.tensor([point]), ROW)
        told = value + (slope[:, 0] * (CENTER + answer.delta - torch.tensor([point]))).sum(1)
        assert float(told) >= -1e-5
    assert answer.feasible.all()
    assert answer.dual.shape == (1, 1)
    assert float(answer.dual) > 0  # of the first two: the last one alone asks for nothing
    assert float(follow(ball, points, memory=1).delta.abs().sum()) < 1e-6


def test_tangents_that_a_later_point_refutes_are_forgotten():
    first, second = (0.5, 0.0), (-3.0, 0.1)
    both, alone = follow(bowl, [first, second]), follow(bowl, [second])
    torch.testing.assert_close(both.delta, alone.delta)
