"""The steps of greedy walks over cells, by hand."""

from types import SimpleNamespace

import numpy as np

from cel.search.coordinate import (
    Incumbents,
    _best_first,
    _complete,
    _Engine,
    _exchange,
    _polish,
    _walk,
    _worth,
)

OWNER = np.array([0, 0, 0, 1, 1])  # axis 0 has cells 0 to 2, axis 1 cells 3 and 4


def test_gain_per_price_counts_only_what_is_missing():
    after = np.array([[-3.0, -1.0, 2.0, 0.0, -0.5]])
    added = np.array([[1.0, 2.0, 4.0, np.inf, 0.0]])
    found = _worth(after, added, np.array([-2.0]))
    np.testing.assert_allclose(found, [[0.0, 0.5, 0.5, 0.0, 1.5 / 1e-9]])
    met = _worth(after, added, np.array([5.0]))
    assert met.tolist() == [[0.0] * 5]


def test_first_moves_are_the_best_of_each_axis_best_axes_first():
    worth = np.array([[0.1, 0.7, 0.3, 0.9, 0.2], [0.5, 0.0, 0.6, 0.0, 0.0], [0.0] * 5])
    assert _best_first(worth, OWNER, 2, None).tolist() == [[3, 1], [2, -1], [-1, -1]]
    assert _best_first(worth, OWNER, 1, None).tolist() == [[3], [2], [-1]]
    ranked = _best_first(worth, OWNER, 6, np.array([1, 0, 5]))
    assert ranked.tolist() == [[1], [2], [-1]]
    assert _best_first(worth, OWNER, 6, np.array([9, 1, 0])).tolist() == [[1], [-1], [-1]]


class Prices:
    """Leaving cell 0 or 3 costs what a cell says."""

    home = np.array([[0, 3]])
    price = np.array([0.0, 1.0, 3.0, 0.0, 2.0])

    def cost(self, cells, rows):
        return self.price[cells].sum(1)

    def moves(self, cells, rows):
        return self.price[None] - self.price[cells][:, OWNER]


class Sums(_Engine):
    """The margin is a sum of what cells bring, less what is wanted."""

    def look(self, cells, rows):
        own = self.brings[cells]
        after = own.sum(1)[:, None] - own[:, OWNER] + self.brings[None] - self.wanted
        asked.append(len(cells))
        return after, self.moves.moves(cells, rows)


asked = []


def engine(brings, wanted):
    made = Sums(bits=None, demand=None, moves=Prices(), owner=OWNER)
    object.__setattr__(made, "brings", np.asarray(brings, float))
    object.__setattr__(made, "wanted", wanted)
    asked.clear()
    return made


def test_the_cheapest_single_move_that_suffices_is_offered():
    e = engine([0, 2, 5, 0, 2], 2.0)
    found = Incumbents.nothing(Prices.home)
    after, added = e.look(Prices.home, np.array([0]))
    _complete(e, found, Prices.home, np.array([0]), np.array([0.5]), after, added)
    assert (found.cost.tolist(), found.cells.tolist()) == ([1.5], [[1, 3]])
    none = engine([0, 1, 1, 0, 1], 9.0)
    lost = Incumbents.nothing(Prices.home)
    after, added = none.look(Prices.home, np.array([0]))
    _complete(none, lost, Prices.home, np.array([0]), np.zeros(1), after, added)
    assert np.isposinf(lost.cost).all()


def test_walks_go_on_by_gain_per_price_until_one_move_suffices():
    e = engine([0, 2, 3, 0, 2], 4.0)
    found = Incumbents.nothing(Prices.home)
    _walk(e, found, Prices.home, np.array([0]), 5)
    assert (found.cost.tolist(), found.cells.tolist()) == ([3.0], [[1, 4]])
    assert asked == [
        1,
        1,
    ]  # home, then (1, 3), whose next move suffices; that is too dear to go on
    short = Incumbents.nothing(Prices.home)
    _walk(e, short, Prices.home, np.array([0]), 1)
    assert np.isposinf(short.cost).all()
    dear = Incumbents.nothing(Prices.home)
    dear.offer(np.array([0]), np.array([[2, 3]]), np.array([0.0]))
    asked.clear()
    _walk(e, dear, Prices.home, np.array([0]), 5)
    assert asked == []  # what is known is no dearer


def test_points_that_suffice_do_not_walk_on():
    e = engine([0, 2, 3, 0, 2], 2.0)
    found = Incumbents.nothing(Prices.home)
    _walk(e, found, np.array([[1, 3]]), np.array([0]), 5)  # its margin is 0
    assert asked == [1]


def test_axes_are_exchanged_for_cheaper_ones():
    e = engine([0, 2, 3, 0, 2], 2.0)
    found = Incumbents.nothing(Prices.home)
    found.offer(np.array([0]), np.array([[0, 4]]), np.array([2.0]))
    _exchange(e, found, np.array([0]))
    assert (found.cost.tolist(), found.cells.tolist()) == ([1.0], [[1, 3]])


def test_polishing_ends_when_nothing_improves(monkeypatch):
    calls = []

    def lower(engine, cells, rows):
        calls.append(len(rows))
        return cells, rows

    monkeypatch.setattr("cel.search.coordinate._lower", lower)
    e = engine([0, 2, 3, 0, 2], 2.0)
    found = Incumbents.nothing(np.array([[0, 3], [0, 3]]))
    found.offer(np.array([1]), np.array([[0, 4]]), np.array([2.0]))
    moves = SimpleNamespace(home=np.array([[0, 3], [0, 3]]), cost=Prices().cost,
                            moves=Prices().moves)  # fmt: skip
    object.__setattr__(e, "moves", moves)
    _polish(e, found, 9, exchange=True)
    assert calls == [1, 1]  # the exchange helped once, then nothing did
    assert found.cost.tolist() == [np.inf, 1.0]
    calls.clear()
    found.cost[1], found.cells[1] = 2.0, [0, 4]
    _polish(e, found, 9, exchange=False)
    assert calls == [1]
    assert found.cost[1] == 2.0
    calls.clear()
    _polish(e, found, 0, exchange=True)
    assert calls == []
