"""Moves that need only a yes or no: bisection to the boundary and features that go back."""

import pytest
import torch

from cel.search import bisect_to_boundary, revert_features


class Asked:
    """An acceptance test that remembers the points and the row numbers it was shown."""

    def __init__(self, good, seen=lambda x: x):
        self.good, self.seen, self.points, self.rows = good, seen, [], []

    def __call__(self, x, rows):
        self.points.append(x.clone())
        self.rows.append(rows.tolist())
        return self.seen(x), self.good(x, rows)


def test_three_halvings_by_hand():
    """Accepted from 0.3 on: 0.5 yes, 0.25 no, 0.375 yes."""
    ask = Asked(lambda x, rows: x[:, 0] >= 0.3)
    out = bisect_to_boundary(
        torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([True]), ask, steps=3
    )
    assert [float(p) for p in ask.points] == [0.5, 0.25, 0.375]
    assert float(out) == 0.375


def test_every_row_is_taken_to_its_own_boundary():
    level = torch.tensor([0.1, 0.25, 0.6, 0.9, 0.35])
    origin, x = torch.full((5, 2), -1.0), torch.tensor([[1.0, 3.0]]).repeat(5, 1)
    ok = torch.tensor([True, True, False, True, True])
    out = bisect_to_boundary(origin, x, ok, Asked(lambda p, rows: p[:, 0] >= level[rows]))
    inside = out[ok][:, 0] - level[ok]
    assert (inside >= 0).all()
    assert (inside <= 2 * 2.0**-20 + 1e-6).all()
    share = (out[ok] + 1) / torch.tensor([2.0, 4.0])  # on the segment
    torch.testing.assert_close(share[:, 0], share[:, 1])
    assert torch.equal(out[2], x[2])


def test_columns_that_do_not_slide_stay_at_the_answer():
    slide = torch.tensor([True, False, False])
    origin, x = torch.tensor([[0.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 1.0]])
    ask = Asked(lambda p, rows: p[:, 0] >= 0.5)
    out = bisect_to_boundary(origin, x, torch.tensor([True]), ask, slide=slide)
    assert out[0, 1:].tolist() == [0.0, 1.0]
    assert all(p[0, 1:].tolist() == [0.0, 1.0] for p in ask.points)
    assert float(out[0, 0]) == pytest.approx(0.5, abs=1e-5)


def test_the_point_as_it_is_seen_is_kept():
    """Points are seen on a grid of 0.25: the answer is a grid point that was accepted."""
    ask = Asked(lambda x, rows: x[:, 0] >= 0.3, seen=lambda x: (x * 4).ceil() / 4)
    x = torch.ones(1, 1)
    out = bisect_to_boundary(torch.zeros(1, 1), x, torch.tensor([True]), ask)
    assert float(out) == 0.5
    assert float(x) == 1.0


def test_nothing_is_asked_when_no_row_is_to_move():
    ask = Asked(lambda x, rows: x[:, 0] >= 0)
    none = torch.zeros(2, dtype=torch.bool)
    x = torch.rand(2, 3)
    for out in (
        bisect_to_boundary(x - 1, x, none, ask),
        revert_features(x, x - 1, none, ask, torch.arange(3)),
    ):
        assert torch.equal(out, x)
    assert ask.points == []


def test_the_smallest_change_goes_back_first():
    """Changes of 3, 1 and 2, of which a sum of 3 must stay: 1 goes, then 2, then 3 may not."""
    ask = Asked(lambda x, rows: x.sum(1) >= 3)
    x = torch.tensor([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    out = revert_features(x, torch.zeros(2, 3), torch.ones(2) > 0, ask, torch.arange(3))
    assert out.tolist() == [[3.0, 0.0, 0.0], [0.0, 0.0, 3.0]]
    assert [p[0].tolist() for p in ask.points] == [[3, 0, 2], [3, 0, 0], [0, 0, 0]]


def test_the_order_of_trial_can_be_given():
    x, order = torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[9, 9, 9], [0, 2, 1]])
    x, ok = torch.cat([x, x]), torch.tensor([False, True])
    ask = Asked(lambda x, rows: x.sum(1) >= 3)
    out = revert_features(x, torch.zeros(2, 3), ok, ask, torch.arange(3), order=order)
    assert out.tolist() == [[3.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    assert ask.rows == [[1], [1], [1]]


def test_a_block_of_columns_goes_back_as_a_whole():
    """Columns 1 to 3 are one feature; its change counts as one, the sum over its columns."""
    owner = torch.tensor([0, 1, 1, 1])
    origin, x = torch.tensor([[0.0, 1, 0, 0]]), torch.tensor([[1.5, 0.0, 0.0, 1.0]])
    ask = Asked(lambda p, rows: torch.ones(len(p)) > 0)
    out = revert_features(x, origin, torch.tensor([True]), ask, owner)
    assert torch.equal(out, origin)
    assert [p[0].tolist() for p in ask.points] == [[0, 0, 0, 1], [0, 1, 0, 0]]


def test_features_that_did_not_change_cost_no_question():
    x = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    ask = Asked(lambda p, rows: rows == 0, seen=lambda p: p + 0.5)
    out = revert_features(x, torch.zeros(3, 3), torch.ones(3) > 0, ask, torch.arange(3))
    assert ask.rows == [[0, 1]]
    assert out.tolist() == [[0.5, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
