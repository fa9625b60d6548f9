"""Leaves as bits: sums, profiles, ceilings and walks against all points of a small grid."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from cel.search.coordinate import Incumbents, coordinate_search, lower
from cel.search.leaf_bits import LeafBits, LeafBoxes
from cel.search.profiles import Demand, cell_ceilings, profile, sums_at

SIZES, MASKED = (7, 6, 4), np.array([False, False, True])
OFFSET = np.concatenate([[0], np.cumsum(SIZES)])
GRID = np.array(list(itertools.product(*map(range, OFFSET[:-1], OFFSET[1:]))))  # (168, 3)
OWNER = np.repeat(np.arange(3), SIZES)


def _grown(rng, leaves):
    """Cut the grid into boxes; on the last axis a box may have any cells."""
    boxes = [[set(range(s)) for s in SIZES]]
    while len(boxes) < leaves:
        box = boxes.pop(int(rng.integers(len(boxes))))
        axes = [a for a in range(3) if len(box[a]) > 1]
        if not axes:
            boxes.append(box)
            continue
        axis = int(rng.choice(axes))
        cells = sorted(box[axis])
        if MASKED[axis]:
            rng.shuffle(cells)
        cut = int(rng.integers(1, len(cells)))
        for part in (cells[:cut], cells[cut:]):
            boxes.append([*box[:axis], set(part), *box[axis + 1 :]])
    return boxes


@pytest.fixture(scope="module", params=[(5, 9), (70, 3)], ids=["one word", "two words"])
def forest(request):
    """Bits, leaf values (2 channels) and the sums of all points, by looking at every leaf."""
    rng = np.random.default_rng(0)
    trees = [_grown(rng, leaves) for leaves in request.param]
    flat = [box for tree in trees for box in tree]
    which = np.repeat([0, 1], [len(t) for t in trees])
    low = np.array(
        [[min(s) if not m else 0 for s, m in zip(b, MASKED, strict=True)] for b in flat]
    )
    high = np.array(
        [
            [max(s) if not m else n - 1 for s, m, n in zip(b, MASKED, SIZES, strict=True)]
            for b in flat
        ]
    )
    mask = np.array([[k in b[2] for k in range(SIZES[2])] for b in flat])
    boxes = LeafBoxes(OFFSET, which, low, high, mask, MASKED)
    value = rng.normal(size=(2, len(flat)))
    local = GRID - OFFSET[:-1]
    inside = np.array(
        [[all(c in s for c, s in zip(p, b, strict=True)) for b in flat] for p in local]
    )
    assert (inside.sum(1) == 2).all()
    bits = LeafBits(boxes, boxes.ranked(value[0]))
    tables = np.stack([bits.table(v) for v in value])
    return SimpleNamespace(
        bits=bits, tables=tables, sums=inside @ value.T, leaves=inside, value=value, boxes=boxes
    )


def _place(points):
    """Return the rows of GRID that points (R, 3) are."""
    local = points - OFFSET[:-1]
    return (local * [24, 4, 1]).sum(-1)


def test_sums_are_those_of_the_leaves_that_hold_a_point(forest):
    np.testing.assert_allclose(sums_at(forest.bits, forest.tables, GRID), forest.sums)


def test_profiles_are_the_sums_of_all_single_moves(forest):
    found = profile(forest.bits, forest.tables, GRID)
    moved = np.repeat(GRID[:, None], OFFSET[-1], 1)
    for c in range(OFFSET[-1]):
        moved[:, c, OWNER[c]] = c
    np.testing.assert_allclose(found, forest.sums[_place(moved)], atol=1e-12)
    assert profile(forest.bits, forest.tables, GRID[:0]).shape == (0, OFFSET[-1], 2)


@pytest.mark.parametrize("single", [(), (0,), (1, 2), (0, 1, 2)])
def test_ceilings_of_boxes_are_sums_of_the_best_leaves(forest, single):
    """Leaves are ranked by the first channel: the best leaf of each tree that a box touches."""
    rng = np.random.default_rng(1)
    boxes = rng.random((40, OFFSET[-1])) < 0.5
    boxes[:, OFFSET[:-1]] = True  # no axis is empty
    for a in single:  # axes on which every box has one cell
        boxes[:, OFFSET[a] : OFFSET[a + 1]] = False
        boxes[np.arange(40), rng.integers(OFFSET[a], OFFSET[a + 1], 40)] = True
    for a in range(2):  # ranges count from their first to their last cell
        part = boxes[:, OFFSET[a] : OFFSET[a + 1]]
        part[:] = (
            np.logical_or.accumulate(part, 1) & np.logical_or.accumulate(part[:, ::-1], 1)[:, ::-1]
        )
    wanted = np.zeros(len(boxes))
    by_cell = np.full((len(boxes), OFFSET[-1]), -np.inf)
    for i, box in enumerate(boxes):
        here = box[GRID].all(1)
        touched = forest.leaves[here].any(0)
        for tree in (0, 1):
            wanted[i] += forest.value[0][touched & (forest.boxes.tree == tree)].max()
        for c in np.flatnonzero(box):
            some = forest.leaves[here & (c == GRID).any(1)].any(0)
            by_cell[i, c] = sum(
                forest.value[0][some & (forest.boxes.tree == t)].max() for t in (0, 1)
            )
    total, cells = cell_ceilings(forest.bits, forest.tables[0], boxes)
    np.testing.assert_allclose(total, wanted)
    np.testing.assert_allclose(cells[boxes], by_cell[boxes])


@pytest.mark.parametrize("axes", [[0], [1, 2], [], [0, 1, 2]])
def test_profiles_of_some_axes_are_those_of_all(forest, axes):
    """Cells of the other axes get the score of the point itself."""
    cells = GRID[::7]
    whole = profile(forest.bits, forest.tables, cells)
    part = profile(forest.bits, forest.tables, cells, np.array(axes, dtype=np.int64))
    own = np.take_along_axis(whole, cells[:, :1, None], 1)
    wanted = np.where(np.isin(OWNER, axes)[:, None], whole, own)
    np.testing.assert_allclose(part, wanted, atol=1e-12)


class _Prices:
    """A price per cell; what is infinite is not allowed."""

    def __init__(self, price, home):
        self.price, self.home = price, home

    def cost(self, cells, rows):
        return self.price[rows[:, None], cells].sum(1)

    def moves(self, cells, rows):
        own = np.take_along_axis(self.price[rows], cells, 1)
        return self.price[rows] - own[:, OWNER]


def _prices(forest, n=60):
    rng = np.random.default_rng(2)
    home = GRID[rng.integers(len(GRID), size=n)]
    price = rng.random((n, OFFSET[-1])) + 0.05
    price[rng.random(price.shape) < 0.1] = np.inf
    np.put_along_axis(price, home, 0.0, 1)
    return _Prices(price, home)


def _best(forest, moves, demand, points=GRID):
    """Return the least costs of all points that meet the demand, and of single moves alone."""
    rows = np.arange(len(moves.home))
    cost = np.stack([moves.cost(np.broadcast_to(p, moves.home.shape), rows) for p in points], 1)
    sums = forest.sums[_place(points)]
    good = np.stack(
        [demand.margin(np.broadcast_to(s, (len(rows), 2)), rows) >= 0 for s in sums], 1
    )
    changes = (points[None] != moves.home[:, None]).sum(2)
    cost = np.where(good, cost, np.inf)
    return cost.min(1), np.where(changes <= 1, cost, np.inf).min(1)


def test_walks_find_single_moves_and_never_less_than_the_optimum(forest):
    moves = _prices(forest)
    n = len(moves.home)
    home = forest.sums[_place(moves.home)]
    aim = np.stack(
        [-np.maximum(home[:, 0] + 0.3, np.median(forest.sums[:, 0])), np.full(n, 9.0)], 1
    )
    demand = Demand(forest.tables, np.array([0, 1]), np.array([1, -1]), aim)
    optimum, single = _best(forest, moves, demand)
    found = coordinate_search(forest.bits, demand, moves)
    rows = np.arange(n)
    have = np.isfinite(found.cost)
    np.testing.assert_allclose(moves.cost(found.cells[have], rows[have]), found.cost[have])
    sums = forest.sums[_place(found.cells)]
    assert (demand.margin(sums, rows)[have] >= -1e-12).all()
    assert (found.cost >= optimum - 1e-9).all()
    assert (found.cost <= single + 1e-9).all()
    assert have[np.isfinite(optimum)].mean() > 0.9
    assert (found.cost[have] - optimum[have] < 1e-9).mean() > 0.7
    # the very optimum as a candidate of somebody else's is not lost
    again = coordinate_search(
        forest.bits,
        demand,
        moves,
        starts=1,
        steps=1,
        polish=0,
        extra=(found.cells[have], rows[have]),
    )
    assert (again.cost[have] <= found.cost[have] + 1e-9).all()
    nobody = _Prices(moves.price[:0], moves.home[:0])
    assert len(coordinate_search(forest.bits, demand, nobody).cost) == 0


def _two_sided(forest, n=60):
    """A demand that many rows meet only by more than one move, and their prices."""
    moves = _prices(forest, n)
    low = np.quantile(forest.sums[:, 0], np.linspace(0.7, 0.99, n)) - 1e-6  # no sum lies on it
    aim = np.stack([-low, np.full(n, 9.0)], 1)
    return moves, Demand(forest.tables, np.array([0, 1]), np.array([1, -1]), aim)


def test_rows_that_are_known_to_be_hopeless_are_not_walked(forest):
    """They are asked about unless a single move answers them; those that are keep it."""
    moves, demand = _two_sided(forest)
    asked = []

    def hopeless(rows):
        asked.append(rows)
        return rows % 2 == 0

    _, single = _best(forest, moves, demand)
    free = coordinate_search(forest.bits, demand, moves, second_try=False)
    found = coordinate_search(forest.bits, demand, moves, second_try=False, hopeless=hopeless)
    assert asked[0].tolist() == np.flatnonzero(np.isinf(single)).tolist()
    even = np.isinf(single) & (np.arange(60) % 2 == 0)
    assert np.isfinite(free.cost[even]).any()
    assert np.isinf(found.cost[even]).all()
    np.testing.assert_array_equal(found.cost[~even], free.cost[~even])


def test_walks_along_some_axes_are_those_along_all(forest):
    """Where an axis is closed to every row, profiles without it lead to the same points."""
    moves, demand = _two_sided(forest)
    closed = (OWNER == 1) & (np.arange(OFFSET[-1]) != moves.home[:, [1]])
    moves.price[closed] = np.inf
    whole = coordinate_search(forest.bits, demand, moves)
    part = coordinate_search(forest.bits, demand, moves, axes=np.array([0, 2]))
    assert np.isfinite(whole.cost).any()
    np.testing.assert_allclose(part.cost, whole.cost)
    have = np.isfinite(whole.cost)
    np.testing.assert_array_equal(part.cells[have], whole.cells[have])


def test_pieces_of_a_few_sets_of_axes_are_kept(forest, monkeypatch):
    monkeypatch.setattr("cel.search.leaf_bits.KEPT_SETS", 2)
    forest.bits._some_steps.clear()
    sets = [np.array(a) for a in ([0], [1], [0, 2])]
    first = forest.bits.steps_on(sets[0])
    assert forest.bits.steps_on(sets[0]) is first
    for axes in sets:
        steps = forest.bits.steps_on(axes)
        assert set(steps.axis.tolist()) <= set(axes.tolist())
        assert len(forest.bits._some_steps) <= 2


def test_ranks_give_first_moves_of_different_axes(forest):
    moves = _prices(forest, 200)
    tripled = _Prices(np.repeat(moves.price, 3, 0), np.repeat(moves.home, 3, 0))
    aim = -np.full((600, 1), np.quantile(forest.sums[:, 0], 0.6))
    demand = Demand(forest.tables, np.array([0]), np.array([1]), aim)
    found = coordinate_search(forest.bits, demand, tripled, rank=np.tile([0, 1, 2], 200))
    away = forest.sums[_place(moves.home), 0] < -aim[0, 0]
    answered = np.isfinite(found.cost).reshape(200, 3).all(1)
    changed = (found.cells != tripled.home).reshape(200, 3, 3)[away & answered]
    different = (changed != changed[:, :1]).any((1, 2))
    assert len(different) > 3
    assert different.any()


def test_lowering_saves_while_the_demand_is_met(forest):
    moves = _prices(forest)
    rows = np.arange(len(moves.home))
    demand = Demand(
        forest.tables, np.array([0]), np.array([1]),
        -np.full((len(rows), 1), np.quantile(forest.sums[:, 0], 0.4)),
    )  # fmt: skip
    top = np.broadcast_to(GRID[forest.sums[:, 0].argmax()], moves.home.shape)
    moves.price[np.isinf(moves.price)] = 2.0
    cells, _ = lower(forest.bits, demand, moves, top, rows, OWNER)
    before, after = moves.cost(top, rows), moves.cost(cells, rows)
    assert (forest.sums[_place(cells), 0] >= np.quantile(forest.sums[:, 0], 0.4)).all()
    assert (after <= before).all()
    assert (after < before).any()
    left = profile(forest.bits, forest.tables, cells)[..., 0] + demand.const
    saved = np.where(left >= 0, moves.moves(cells, rows), np.inf).min(1)
    assert (saved >= -1e-9).all()  # no single move saves more


def test_a_demand_without_another_class_is_always_met():
    nothing = np.zeros(0, dtype=int)
    demand = Demand(np.zeros((2, 1)), nothing, nothing, np.zeros((4, 0)))
    assert np.isposinf(demand.margin(np.zeros((4, 5, 2)), np.arange(4))).all()
    assert demand.margin(np.zeros((4, 5, 2)), np.arange(4)).shape == (4, 5)


def test_the_cheapest_offer_of_a_row_is_kept():
    found = Incumbents.nothing(np.zeros((3, 1), dtype=int))
    found.offer(
        np.array([0, 1, 0, 1]), np.array([[1], [2], [3], [4]]), np.array([5.0, 1.0, 4.0, 1.0])
    )
    assert found.cost.tolist() == [4.0, 1.0, np.inf]
    assert found.cells[:2, 0].tolist() == [3, 2]  # the earlier one of equals
    found.offer(np.array([0]), np.array([[9]]), np.array([4.5]))
    assert found.cells[0, 0] == 3
