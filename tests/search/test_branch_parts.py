"""Branch and bound over nine points, where everything can be listed."""

import itertools

import numpy as np
import pytest

from cel.search.branch import BoxProblem, BoxSearch, branch_and_bound
from cel.search.coordinate import Incumbents
from cel.search.leaf_bits import LeafBits, LeafBoxes

OFFSET = np.array([0, 3, 6])
POINTS = np.array(list(itertools.product(range(3), range(3, 6))))  # (9, 2)
VALUE = np.array([-5.0, -1.0, 2.0, -4.0, 1.0, 0.5, -2.0, 3.0, -0.25])
PRICE = np.array([0.0, 1.0, 3.0, 0.0, 2.0, 2.5])
HOME = np.array([[0, 3]])


def problem(wanted=0.0, slack=0.0, price=PRICE, rows=1, **more):
    """One tree whose leaves are the nine points."""
    low = POINTS - OFFSET[:2]
    boxes = LeafBoxes(
        OFFSET, np.zeros(9, dtype=int), low, low, np.zeros((9, 0), bool), np.zeros(2, bool)
    )
    bits = LeafBits(boxes, boxes.ranked(VALUE))
    return BoxProblem(
        OFFSET, np.tile(price, (rows, 1)), (bits,), (bits.table(VALUE),),
        np.full((rows, 1), -wanted), np.array([slack]), **more,
    )  # fmt: skip


def solve(given, nodes=1000, expired=lambda: False, width=16):
    home = np.tile(HOME, (len(given.price), 1))
    return branch_and_bound(given, Incumbents.nothing(home), nodes=nodes, expired=expired,
                            width=width)  # fmt: skip


def listed(wanted, allowed=lambda p: True, price=PRICE):
    return min(
        (price[p].sum() for p, v in zip(POINTS, VALUE, strict=True) if v >= wanted and allowed(p)),
        default=np.inf,
    )


@pytest.mark.parametrize("wanted", [-9.0, -4.5, -1.5, 0.0, 0.75, 1.5, 2.5, 3.5])
@pytest.mark.parametrize("width", [1, 16])
def test_the_cheapest_point_is_the_listed_one(wanted, width):
    found = solve(problem(wanted), width=width)
    best = listed(wanted)
    assert found.best.cost.tolist() == [best]
    assert found.bound[0] == pytest.approx(best)
    assert found.done.tolist() == [True]
    if np.isfinite(best):
        (place,) = np.flatnonzero((found.best.cells[0] == POINTS).all(1))
        assert VALUE[place] >= wanted


def test_cells_that_a_row_may_not_enter_stay_out():
    closed = np.where(np.arange(6) == 4, np.inf, PRICE)
    assert solve(problem(0.75, price=closed)).best.cost[0] == listed(0.75, price=closed) == 2.5


def test_rounding_hides_what_points_are():
    given = problem(0.0, slack=0.3)
    good, maybe = given.margin(POINTS, np.zeros(9, dtype=int))
    assert good.tolist() == (VALUE >= 0).tolist()
    assert maybe.tolist() == (VALUE >= -0.3).tolist()
    assert given.owner.tolist() == [0, 0, 0, 1, 1, 1]
    # only the last point (-0.25, price 5.5) is allowed: it may suffice, nobody knows
    only = problem(0.0, slack=0.3, legal=lambda p, r: ((p == [2, 5]).all(1),) * 2)
    found = solve(only)
    assert np.isposinf(found.best.cost[0])
    assert found.bound[0] == pytest.approx(5.5)
    assert found.done.tolist() == [False]
    sure = problem(0.0, slack=0.2, legal=lambda p, r: ((p == [2, 5]).all(1),) * 2)
    assert np.isposinf(solve(sure).bound[0])
    assert solve(sure).done.tolist() == [True]


def test_constraints_between_features_are_kept():
    asked = []

    def legal(points, rows):
        asked.append(points.copy())
        ok = points[:, 0] != points[:, 1] - 4  # neither (0, 4) nor (1, 5)
        return ok, ok

    def allowed(p):
        return p[0] != p[1] - 4

    for wanted in (-1.5, 0.25, 0.75):
        assert solve(problem(wanted, legal=legal)).best.cost[0] == listed(wanted, allowed)
    assert asked


def test_struck_cells_are_not_looked_at_and_blamed_axes_are_split_first():
    def strike(boxes, rows):
        out = boxes.copy()
        out[:, 4] = False
        return out

    found = solve(problem(0.75, strike=strike))
    assert found.best.cost[0] == listed(0.75, lambda p: p[1] != 4) == 2.5
    asked = []

    def blame(points, rows):
        asked.append(points.copy())
        return np.tile([False, True], (len(points), 1))

    with_blame = solve(problem(1.5, blame=blame))
    assert with_blame.best.cost[0] == listed(1.5)
    assert len(asked) > 0


def test_axes_that_are_blamed_or_promise_least_are_split():
    given = problem(0.0, blame=lambda p, r: np.array([[False, True]]))
    high = np.array([[-3.0, 1, 1, 5.0, 5, 5]])
    for shown, axis in ((problem(0.0), 0), (given, 1)):
        search = BoxSearch(shown, Incumbents.nothing(HOME), 9, 16)
        search.box, search.row, search.floor = search.box[:0], search.row[:0], search.floor[:0]
        search.split(np.ones((1, 6), bool), np.array([0]), high, HOME)
        parts = search.box[:, OFFSET[axis] : OFFSET[axis + 1]].astype(int).tolist()
        assert parts == [[1, 0, 0], [0, 1, 1]]  # stay, nothing below, above
        other = search.box[:, OFFSET[1 - axis] : OFFSET[2 - axis]]
        assert other.all()
        assert search.floor.tolist() == [0.0, 1.0 if axis == 0 else 2.0]


def test_nodes_are_counted_and_limited():
    whole = solve(problem(2.5))
    assert whole.nodes[0] >= 1
    few = solve(problem(2.5, rows=2), nodes=0)
    assert few.nodes.tolist() == [0, 0]
    assert few.done.tolist() == [False, False]
    assert few.bound.tolist() == [0.0, 0.0]  # the floor of everything
    ended = solve(problem(2.5), expired=lambda: True)
    assert (ended.nodes.tolist(), ended.done.tolist()) == ([0], [False])
    search = BoxSearch(problem(0.0, rows=3), Incumbents.nothing(np.tile(HOME, (3, 1))), 9, 16)
    boxes, rows = search.take()
    assert (rows.tolist(), search.nodes.tolist(), len(search.row)) == ([0, 1, 2], [1, 1, 1], 0)
    assert boxes.all()


def test_the_lowest_boxes_of_each_row_are_taken_first():
    search = BoxSearch(problem(0.0, rows=2), Incumbents.nothing(np.tile(HOME, (2, 1))), 9, 2)
    cheap, middle, dear = (np.arange(6) != k for k in (5, 0, 3))
    search.box = np.stack([dear, cheap, middle, cheap])
    search.row, search.floor = np.array([0, 0, 0, 1]), np.array([2.0, 0.0, 1.0, 0.0])
    boxes, rows = search.take()
    assert rows.tolist() == [0, 0, 1]
    assert (boxes == np.stack([cheap, middle, cheap])).all()
    assert search.floor.tolist() == [2.0]
    search.best.offer(np.array([0]), HOME, np.array([1.5]))
    assert search.take()[1].tolist() == []  # what costs no less is dropped
    assert len(search.row) == 0


@pytest.mark.parametrize("few", [2, 3])
def test_a_few_labels_are_split_one_by_one(few, monkeypatch):
    """Three labels: a part for each, or the home label and the rest on both sides of it."""
    monkeypatch.setattr("cel.search.branch.FEW_LABELS", few)
    low = POINTS - OFFSET[:2]
    mask = low[:, [0]] == np.arange(3)
    low, high = low * [0, 1], np.stack([np.full(9, 2), low[:, 1]], 1)
    boxes = LeafBoxes(OFFSET, np.zeros(9, dtype=int), low, high, mask, np.array([True, False]))
    bits = LeafBits(boxes, boxes.ranked(VALUE))
    given = BoxProblem(
        OFFSET, PRICE[None], (bits,), (bits.table(VALUE),), np.zeros((1, 1)), np.zeros(1)
    )
    search = BoxSearch(given, Incumbents.nothing(HOME), 9, 16)
    search.box, search.row, search.floor = search.box[:0], search.row[:0], search.floor[:0]
    high = np.array([[-3.0, 1, 1, 5.0, 5, 5]])
    search.split(np.ones((1, 6), bool), np.array([0]), high, HOME)
    parts = search.box[:, :3].astype(int).tolist()
    one_by_one = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert parts == (one_by_one if few == 3 else [[1, 0, 0], [0, 1, 1]])
    assert search.floor.tolist() == ([0.0, 1.0, 3.0] if few == 3 else [0.0, 1.0])
    assert search.box[:, 3:].all()
