"""Branch and bound from nothing: no start hides a cell that was struck out wrongly."""

import itertools

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

from cel.models import wrap
from cel.search.branch import BoxProblem, branch_and_bound
from cel.search.coordinate import Incumbents
from cel.search.leaf_branch import leaf_branch_and_bound
from cel.search.profiles import sums_at
from cel.space import FeatureSpace

KINDS = {
    "forest": lambda: RandomForestClassifier(4, max_depth=3, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=4, max_depth=2, random_state=0),
}


@pytest.mark.parametrize("search", [branch_and_bound, leaf_branch_and_bound])
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


@pytest.mark.parametrize("nodes", [1, 4, 16])
def test_bounds_from_leaves_stay_below_the_optimum(nodes):
    """Without a start the dual climbs as high as it can: never above the cheapest point."""
    rng = np.random.default_rng(1)
    train = rng.random((200, 3)).astype(np.float32)
    y = (train.sum(1) + 0.3 * rng.normal(size=200) > 1.5).astype(int)
    model = GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0).fit(train, y)
    view = wrap(model, space=FeatureSpace.continuous(3)).trees_()
    value = view.value[:, 1] - view.value[:, 0]
    bits = view.ranked_bits(value)
    table, offset, n = bits.table(value), view.axes.offset, 80
    home = view.axes.cells(rng.random((n, 3)).astype(np.float32))
    far = np.arange(view.axes.count) - np.repeat(home, np.diff(offset), axis=1)
    price = np.abs(far) * rng.uniform(0.5, 2.0, (n, 3))[:, view.axes.owner]
    grid = np.array(list(itertools.product(*map(range, offset[:-1], offset[1:]))))
    sums = sums_at(bits, table[None], grid)[:, 0]
    aim = rng.uniform(np.quantile(sums, 0.6), sums.max(), n)
    problem = BoxProblem(offset, price, (bits,), (table,), -aim[:, None], np.array([1e-9]))
    start = Incumbents.nothing(home)
    proved = leaf_branch_and_bound(problem, start, nodes=nodes, expired=lambda: False, width=1)
    best = np.array([price[i, grid].sum(1)[sums >= aim[i]].min() for i in range(n)])
    assert (proved.bound <= best + 1e-6).all()
    assert (proved.bound > 0.5 * best).mean() > 0.5
