"""Branch and bound from nothing: no start hides a cell that was struck out wrongly."""

import itertools

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

from cel.models import wrap
from cel.search.branch import BoxProblem, BoxSearch, branch_and_bound
from cel.search.coordinate import Incumbents
from cel.search.leaf_branch import LeafSearch, leaf_branch_and_bound
from cel.search.leaf_costs import expand
from cel.search.leaf_duals import DualStart, LeafLists, dual_bounds
from cel.search.profiles import sums_at
from cel.search.two_bounds import two_bounds
from cel.space import FeatureSpace


def leaves_for_all(*args, **options):
    """Both kinds of bounds, and every row goes on with leaves after one box."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cel.search.two_bounds.FIRST", 1)
        patch.setattr("cel.search.two_bounds.FEW_POINTS", 0)
        return two_bounds(*args, **options)


KINDS = {
    "forest": lambda: RandomForestClassifier(4, max_depth=3, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=4, max_depth=2, random_state=0),
}


SEARCHES = [branch_and_bound, leaf_branch_and_bound, two_bounds, leaves_for_all]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_cheapest_point_is_found_without_a_start(kind, search):
    rng = np.random.default_rng(0)
    train = rng.random((200, 3)).astype(np.float32)
    y = (train.sum(1) + 0.3 * rng.normal(size=200) > 1.5).astype(int)
    view = wrap(KINDS[kind]().fit(train, y), space=FeatureSpace.continuous(3)).trees_()
    value = view.value[:, 1] - view.value[:, 0]
    bits = view.ranked_bits(value)
    table, base = bits.table(value), view.base[1] - view.base[0]
    n, offset = 12, view.axes.offset
    price = rng.random((n, view.axes.count))
    home = view.axes.cells(train[:n])
    np.put_along_axis(price, home, 0.0, 1)
    grid = np.array(list(itertools.product(*map(range, offset[:-1], offset[1:]))))
    sums = sums_at(bits, table[None], grid)[:, 0] + base
    # rows ask for more and more: the last ones for more than any point has
    aim = np.linspace(np.quantile(sums, 0.5), sums.max() + 0.01, n)
    problem = BoxProblem(offset, price, (bits,), (table,), (base - aim)[:, None], np.array([1e-9]))
    proved = search(problem, Incumbents.nothing(home), nodes=100_000, expired=lambda: False)
    assert proved.done.all()
    for i in range(n):
        cost = price[i, grid].sum(1)[sums - aim[i] >= 0].min(initial=np.inf)
        assert proved.best.cost[i] == pytest.approx(cost)
    assert np.isinf(proved.best.cost[-1])
    assert np.isinf(proved.bound[-1])


def boosted(n, seed=1):
    """A boosted model of three numbers, n rows with prices, all points, sums and demands."""
    rng = np.random.default_rng(seed)
    train = rng.random((200, 3)).astype(np.float32)
    y = (train.sum(1) + 0.3 * rng.normal(size=200) > 1.5).astype(int)
    model = GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0).fit(train, y)
    view = wrap(model, space=FeatureSpace.continuous(3)).trees_()
    value = view.value[:, 1] - view.value[:, 0]
    bits = view.ranked_bits(value)
    table, offset = bits.table(value), view.axes.offset
    home = view.axes.cells(rng.random((n, 3)).astype(np.float32))
    far = np.arange(view.axes.count) - np.repeat(home, np.diff(offset), axis=1)
    price = np.abs(far) * rng.uniform(0.5, 2.0, (n, 3))[:, view.axes.owner]
    grid = np.array(list(itertools.product(*map(range, offset[:-1], offset[1:]))))
    sums = sums_at(bits, table[None], grid)[:, 0]
    aim = rng.uniform(np.quantile(sums, 0.6), sums.max(), n)
    problem = BoxProblem(offset, price, (bits,), (table,), -aim[:, None], np.array([1e-9]))
    best = np.array([price[i, grid].sum(1)[sums >= aim[i]].min() for i in range(n)])
    return problem, home, grid, sums, aim, best


@pytest.mark.parametrize("nodes", [1, 4, 16])
@pytest.mark.parametrize("search", [leaf_branch_and_bound, two_bounds, leaves_for_all])
def test_bounds_stay_below_the_optimum(nodes, search):
    """Without a start the dual climbs as high as it can: never above the cheapest point."""
    problem, home, *_, best = boosted(80)
    options = {"width": 1} if search is leaf_branch_and_bound else {}
    start = Incumbents.nothing(home)
    proved = search(problem, start, nodes=nodes, expired=lambda: False, **options)
    assert (proved.bound <= best + 1e-6).all()
    assert (proved.nodes <= (1 if nodes == 1 else nodes + 48)).all()
    np.testing.assert_allclose(proved.best.cost[proved.done], best[proved.done])
    assert proved.done.mean() < 1 if nodes < 16 else proved.done.any()
    if search is leaf_branch_and_bound:
        assert (proved.bound > 0.5 * best).mean() > 0.5


def test_leaves_cost_what_their_nearest_cell_of_a_box_costs():
    """Every condition of every leaf in random boxes, listed; infinite where no cell is left."""
    problem, home, *_ = boosted(30)
    search, rng = LeafSearch(problem, Incumbents.nothing(home), 9, 32), np.random.default_rng(3)
    c, n, offset = search.conditions, len(home), problem.offset
    ends = np.sort(rng.integers(offset[:-1], offset[1:], (2, n, 3)), axis=0)
    cell = np.arange(offset[-1])
    boxes = (cell >= ends[0][:, problem.owner]) & (cell <= ends[1][:, problem.owner])
    at, box = np.tile(np.arange(len(c.axis)), n), np.repeat(np.arange(n), len(c.axis))
    cost, entered = search.table.enter(boxes, np.arange(n), at, box)
    held = (cell >= c.low[at][:, None]) & (cell <= c.high[at][:, None]) & boxes[box]
    wanted = np.where(held, problem.price[box], np.inf).min(1)
    np.testing.assert_array_equal(cost, wanted)
    some = np.isfinite(wanted)
    assert 0.1 < some.mean() < 0.9
    np.testing.assert_array_equal(problem.price[box, entered][some], wanted[some])


def test_what_leaves_add_to_a_bound_is_what_their_trees_lose():
    """The price of a leaf in the dual, by hand; and no point of the leaf is cheaper."""
    problem, home, grid, sums, aim, _ = boosted(20)
    search = LeafSearch(problem, Incumbents.nothing(home), 9, 32)
    n, c = len(home), search.conditions
    leaf, box = (np.tile(np.arange(len(c.tree)), n), np.repeat(np.arange(n), len(c.tree)))
    boxes, least = np.isfinite(problem.price), np.zeros((n, 3))
    lists = LeafLists.of_boxes(search.table, boxes, np.arange(n), least, leaf, box)
    lists.number(c.tree)
    rungs = search._rungs(lists, np.arange(n))
    value = search.value[0, leaf]
    start = DualStart(aim, np.zeros(n), np.full(n, 10.0), np.full(n, 2.0), rungs.cost.copy())
    dual = dual_bounds(lists, rungs, value, start, 30)
    paid = np.bincount(lists.of, weights=rungs.paid(dual.weight), minlength=len(leaf))
    score = dual.lam[box] * value - paid
    top = lists.best(score)
    np.testing.assert_allclose(dual.spare, top[box, c.tree[leaf]] - score, atol=1e-12)
    np.testing.assert_allclose(dual.bound, dual.lam * aim - top.sum(1))
    assert (dual.spare > 0.1).mean() > 0.2
    # the points of each leaf, listed: none that meets the demand costs less
    held = np.ones((len(grid), len(c.tree)), dtype=bool)
    for at, where in zip(*expand(c.start, c.count), strict=True):
        cells = grid[:, c.axis[at]]
        held[:, where] &= (cells >= c.low[at]) & (cells <= c.high[at])
    close = []
    for i in range(n):
        cost = np.where(sums >= aim[i], problem.price[i, grid].sum(1), np.inf)
        by_leaf = np.where(held, cost[:, None], np.inf).min(0)
        bound = dual.bound[i] + dual.spare[box == i]
        assert (bound <= by_leaf + 1e-6).all()
        dear = np.isfinite(by_leaf) & (by_leaf > 0)
        close.append((bound[dear] / by_leaf[dear]).max(initial=0.0))
    assert max(close) > 0.7


def test_rows_with_few_points_go_on_with_boxes(monkeypatch):
    problem, home, *_, best = boosted(12)
    asked = []

    class Spy(LeafSearch):
        def __init__(self, problem, *args):
            asked.append(len(problem.price))
            super().__init__(problem, *args)

    monkeypatch.setattr("cel.search.two_bounds.LeafSearch", Spy)
    monkeypatch.setattr("cel.search.two_bounds.FIRST", 1)
    size = np.prod(np.diff(problem.offset))
    for few, leaves in ((size, False), (0, True)):
        asked.clear()
        monkeypatch.setattr("cel.search.two_bounds.FEW_POINTS", few)
        start = Incumbents.nothing(home)
        proved = two_bounds(problem, start, nodes=10_000, expired=lambda: False)
        assert (sum(asked) > 0) == leaves
        assert proved.done.all()
        np.testing.assert_allclose(proved.best.cost, best)
        np.testing.assert_allclose(proved.bound, best)


def test_points_of_open_boxes_are_counted():
    problem, home, *_ = boosted(3)
    search = BoxSearch(problem, Incumbents.nothing(home), 9, 16)
    size = float(np.prod(np.diff(problem.offset)))
    assert search.points().tolist() == [size] * 3
    boxes = search.box[[1, 1]].copy()
    boxes[0, problem.offset[0] + 2 : problem.offset[1]] = False  # two cells of the first axis
    search.box, search.row = boxes, np.array([1, 1])
    first = problem.offset[1] - problem.offset[0]
    assert search.points().tolist() == [0.0, size + 2 * size / first, 0.0]
