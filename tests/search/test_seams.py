"""What searches hand on to each other: streams, parts, open boxes, costs of leaves, sides."""

import itertools

import numpy as np
import pytest
import torch

from cel.search.boundary import narrow_to_boundary
from cel.search.branch import BoxSearch
from cel.search.coordinate import Incumbents
from cel.search.leaf_bits import LeafBits, LeafBoxes, LeafConditions
from cel.search.leaf_costs import CostTable
from cel.search.open_boxes import BoxesAtWork
from cel.search.population import evolve, evolve_parts
from cel.search.relu_bounds import bound_neurons, box_support
from cel.search.streams import RowStreams

# -- cutting segments ------------------------------------------------------------------------


@pytest.mark.parametrize(("parts", "rounds"), [(8, 3), (4, 2), (2, 5)])
def test_segments_are_cut_again_where_acceptance_begins(parts, rounds):
    edge = torch.tensor([0.0, 0.1, 0.37, 0.5, 0.99])
    asked = []

    def accept(x, rows):
        asked.append(len(x))
        return x, x[:, 0] >= edge[rows]

    origin, x = torch.zeros(5, 2), torch.ones(5, 2)
    out = narrow_to_boundary(
        origin, x, accept, slide=torch.tensor([True, False]), parts=parts, rounds=rounds
    )
    left = out[:, 0] - edge
    assert (left >= -1e-6).all()
    assert (left <= parts**-rounds + 1e-6).all()
    assert (out[:, 1] == 1).all()  # what does not slide is held
    assert asked == [5 * (parts - 1)] * rounds


def test_points_stay_where_no_cut_is_accepted():
    x = torch.full((2, 1), 3.0)
    out = narrow_to_boundary(
        torch.zeros(2, 1), x, lambda p, rows: (p, p[:, 0] >= 3), slide=torch.tensor([True])
    )
    assert torch.equal(out, x)


# -- populations -----------------------------------------------------------------------------


class Drawn:
    """People are what their stream draws; each generation draws them anew, and keeps the best."""

    draws, tolerance = 1, 0.0

    def first(self, stream):
        self.stream = stream
        people = stream.uniform(3, 1)
        return people, people[..., 0]

    def breed(self, people, worth, rows, stream):
        fresh = torch.minimum(people, stream.uniform(3, 1))
        return fresh, fresh[..., 0]

    def goal(self, worth, rows):
        return worth.amin(1)

    def open(self, worth, stale, rows):
        return torch.ones(len(worth), dtype=torch.bool)


def test_the_first_people_come_from_the_streams_that_were_given():
    x = torch.arange(5.0)[:, None]
    given = RowStreams(RowStreams.of(x, 3).keys, draw=4)
    breeder = Drawn()
    people, _ = evolve(breeder, given, generations=0)
    assert torch.equal(breeder.stream.keys, given.keys)
    assert torch.equal(people, RowStreams(given.keys, 4).uniform(3, 1))
    assert given.draw == 4  # the streams of the caller are not advanced


@pytest.mark.parametrize("size", [0, 1, 2, 5, 9])
def test_rows_evolve_in_parts_as_they_do_together(size):
    streams = RowStreams.of(torch.arange(5.0)[:, None], 0)
    whole = evolve(Drawn(), streams, generations=3)
    sizes = []

    def breeder(rows):
        sizes.append(len(rows))
        return Drawn(), streams.select(rows)

    parts = evolve_parts(torch.arange(5), size, breeder, generations=3)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))
    assert max(sizes) == max(1, min(size, 5))
    assert sum(sizes) == 5


# -- boxes and leaves ------------------------------------------------------------------------


def test_boxes_without_lists_of_leaves_are_selected_too():
    boxes = BoxesAtWork(np.eye(3, dtype=bool), np.arange(3), np.arange(3.0), np.eye(3), None)
    some = boxes.select(np.array([True, False, True]))
    assert (some.rows.tolist(), some.floor.tolist(), some.lists) == ([0, 2], [0.0, 2.0], None)
    assert some.boxes.shape == some.least.shape == (2, 3)
    assert boxes.select(np.ones(3, dtype=bool)).lists is None


OFFSET = np.array([0, 3, 6])
POINTS = np.array(list(itertools.product(range(3), range(3, 6))))
VALUE = np.array([-5.0, -1.0, 2.0, -4.0, 1.0, 0.5, -2.0, 3.0, -0.25])


def nine(price, cost):
    """A search over nine points, each a leaf of one tree, whose row knows an answer of a cost."""
    from cel.search.branch import BoxProblem

    low = POINTS - OFFSET[:2]
    boxes = LeafBoxes(
        OFFSET, np.zeros(9, dtype=int), low, low, np.zeros((9, 0), bool), np.zeros(2, bool)
    )
    bits = LeafBits(boxes, boxes.ranked(VALUE))
    given = BoxProblem(
        OFFSET, price[None], (bits,), (bits.table(VALUE),), np.zeros((1, 1)), np.zeros(1)
    )
    known = Incumbents.nothing(np.array([[0, 3]]))
    known.cost[:] = cost
    return BoxSearch(given, known, 9, 16)


def test_ceilings_of_cells_are_the_best_leaves_of_what_is_left():
    search = nine(np.zeros(6), np.inf)
    boxes, rows, high = search.strike(np.ones((1, 6), dtype=bool), np.array([0]))
    grid = VALUE.reshape(3, 3)
    assert rows.tolist() == [0]
    best = np.concatenate([grid.max(1), grid.max(0)])
    assert boxes[0].tolist() == (best >= 0).tolist()
    assert (high[0][boxes[0]] == best[best >= 0]).all()


def test_boxes_that_are_all_too_dear_leave_nothing():
    search = nine(np.ones(6), 0.5)
    boxes, rows, high = search.strike(np.ones((1, 6), dtype=bool), np.array([0]))
    assert boxes.shape == high.shape == (0, 6)
    assert len(rows) == 0


SIZES = (7, 5)
STARTS = np.array([0, 7, 12])


def ranged_leaves(rng, count=40):
    """Leaves that are random ranges on both axes; they need not be a tree."""
    ends = np.stack([np.sort(rng.integers(0, n, (count, 2)), axis=1) for n in SIZES])
    low, high = ends[..., 0].T, ends[..., 1].T
    return LeafBoxes(
        STARTS, np.zeros(count, dtype=int), low, high, np.zeros((count, 0), bool),
        np.zeros(2, bool),
    )  # fmt: skip


def least_price(price, box, condition, c):
    """The cheapest cell of a box that meets a condition, by looking at each."""
    cells = np.arange(c.low[condition], c.high[condition] + 1)
    return min((price[k] for k in cells if box[k]), default=np.inf)


@pytest.mark.parametrize("uphill", [True, False])
def test_conditions_cost_what_their_cheapest_cell_costs(uphill):
    """Exactly so for prices that grow with the distance and boxes of ranges; else at most."""
    rng = np.random.default_rng(0)
    c = LeafConditions(ranged_leaves(rng))
    price = rng.random((4, 12))
    if uphill:
        for a, n in enumerate(SIZES):
            home = rng.integers(0, n, 4)
            price[:, STARTS[a] : STARTS[a + 1]] = np.abs(np.arange(n) - home[:, None]) * 1.5
    boxes = np.zeros((20, 12), dtype=bool)
    for box in boxes:
        for a, n in enumerate(SIZES):
            if uphill:
                first, last = np.sort(rng.integers(0, n, 2))
                box[STARTS[a] + first : STARTS[a] + last + 1] = True
            else:
                box[STARTS[a] + rng.choice(n, rng.integers(1, n), replace=False)] = True
    rows = rng.integers(0, 4, 20)
    at, box = (v.ravel() for v in np.meshgrid(np.arange(len(c.axis)), np.arange(20)))
    cost, cell = CostTable.of(c, price).enter(boxes, rows, at, box)
    real = np.array(
        [least_price(price[rows[b]], boxes[b], k, c) for k, b in zip(at, box, strict=True)]
    )
    assert np.isfinite(real).any()
    assert np.isinf(real).any()
    if uphill:
        assert cost.tolist() == real.tolist()
        meets = np.isfinite(real)
        assert (price[rows[box[meets]], cell[meets]] == real[meets]).all()
    else:
        assert (cost <= real).all()


def test_leaves_of_several_trees_of_several_words_are_found():
    """Three trees of 70, 1 and 130 leaves over one axis; each cell is a leaf or belongs to one."""
    counts, cells = (70, 1, 130), 130
    low, high, tree = [], [], []
    for t, n in enumerate(counts):
        cuts = np.linspace(0, cells, n + 1).astype(int)
        low += cuts[:-1].tolist()
        high += (cuts[1:] - 1).tolist()
        tree += [t] * n
    low, high, tree = np.array(low)[:, None], np.array(high)[:, None], np.array(tree)
    boxes = LeafBoxes(
        np.array([0, cells]), tree, low, high, np.zeros((len(tree), 0), bool), np.zeros(1, bool)
    )
    value = np.random.default_rng(0).normal(size=len(tree))
    bits = LeafBits(boxes, boxes.ranked(value))
    points = np.arange(cells)[:, None]
    slots = bits.find(bits.meet(points))
    held = [
        [value[(tree == t) & (low[:, 0] <= p) & (p <= high[:, 0])].item() for t in range(3)]
        for p in range(cells)
    ]
    assert bits.table(value)[slots].tolist() == held
    assert slots.min() >= 0


# -- sides of ReLUs --------------------------------------------------------------------------


def test_open_sides_say_nothing():
    rng = np.random.default_rng(0)
    layers = [
        (torch.as_tensor(rng.normal(size=(b, a))), torch.as_tensor(rng.normal(size=b)))
        for a, b in itertools.pairwise((3, 6, 5, 2))
    ]
    low = torch.as_tensor(rng.normal(size=(8, 3)))
    support = box_support(low, low + 1)
    free = bound_neurons(layers, support, 8)
    same = bound_neurons(layers, support, 8, sides=torch.zeros(8, 11, dtype=torch.int8))
    for a, b in zip((*free.low, *free.high), (*same.low, *same.high), strict=True):
        assert torch.equal(a, b)
    assert (free.high[0] > 0).any()
    assert (free.low[0] < 0).any()
    sides = torch.zeros(8, 11, dtype=torch.int8)
    sides[:, 0], sides[:, 1] = 1, -1
    cut = bound_neurons(layers, support, 8, sides=sides)
    assert (cut.low[0][:, 0] >= 0).all()
    assert (cut.high[0][:, 1] <= cut.low[0][:, 1].clamp(min=0)).all()
    assert torch.equal(cut.high[0][:, 2:], free.high[0][:, 2:])
    assert torch.equal(cut.low[0][:, 1:], free.low[0][:, 1:])
