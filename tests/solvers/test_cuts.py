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


def line(x, rows):
    """Twice the first column less 1: every tangent is the line itself."""
    return 2 * x[:, :1] - 1, torch.tensor([[[2.0, 0.0]]]).expand(len(x), 1, 2)


def test_tangents_that_later_points_touch_are_kept():
    cuts = Cuts(line, plain, CENTER, last=1, memory=3)
    assert cuts.gap.flatten().tolist() == [-1.0] * 3  # nothing is demanded yet
    for point in (0.5, 3.0, -1.0):
        cuts.linearise(torch.tensor([[point, 0.0]]), ROW)
    # 2 (x - 2) >= gap: at every point the same
    assert cuts.gap.flatten().tolist() == [-3.0] * 3
    assert cuts.slope[0, :, 0].tolist() == [[2.0, 0.0]] * 3


def test_the_newest_tangent_comes_first_and_the_oldest_is_dropped():
    cuts = Cuts(ball, plain, CENTER, last=1, memory=2)
    for point in (0.5, 0.6, 0.7):
        cuts.linearise(torch.tensor([[point, 0.0]]), ROW)
    torch.testing.assert_close(cuts.slope[0, :, 0, 0], torch.tensor([-1.4, -1.2]))
    gaps = [-2 * p * (p - 2) - (1 - p * p) for p in (0.7, 0.6)]
    torch.testing.assert_close(cuts.gap[0, :, 0], torch.tensor(gaps))


def test_duals_of_old_tangents_count_for_their_surplus():
    asked = []

    def solve(w, gap, low, high, rows):
        from cel.solvers.closed_forms import Nearest

        asked.append((w.tolist(), gap.tolist()))
        dual = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
        return Nearest(delta=torch.zeros(1, 2), feasible=torch.tensor([True]), dual=dual)

    cuts = Cuts(ball, solve, CENTER, last=1, memory=2)
    w, gap = torch.ones(1, 2, 2), torch.tensor([[0.5, 0.25]])
    found = cuts.solve(w, gap, -WIDE, WIDE, ROW)
    ((wider, more),) = asked
    assert wider == [[[1, 1], [1, 1], [0, 0], [0, 0]]]
    assert more == [[0.5, 0.25, -1.0, -1.0]]
    assert found.dual.tolist() == [[1.0, 2.0 + 4.0 + 8.0]]
