"""Exact trees against enumeration of all cells, read from the models themselves."""

import itertools

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from cel.cf_methods.local_methods import CellSearch, ExactTree
from cel.models import wrap
from cel.space import Feature, FeatureSpace
from cel.space.constraints import Implication, LinearRelation
from cel.space.distances import mad_scale

MARGIN, BETA = 1e-4, 0.05
SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="b", kind="integer", columns=(1,), step=0.1, direction="up"),
        Feature(name="c", kind="categorical", columns=(2, 3, 4), categories=("u", "v", "w")),
        Feature(name="d", columns=(5,), weight=2.0),
    )
)


def rows(n, seed):
    rng = np.random.default_rng(seed)
    job = np.eye(3)[rng.integers(0, 3, n)]
    parts = [rng.random(n), rng.integers(0, 11, n) / 10, job, rng.random(n)]
    return np.column_stack(parts).astype(np.float32)


def ensemble(kind, classes=2, seed=0):
    x = rows(300, seed)
    noise = np.random.default_rng(seed + 1).normal(size=300) * 0.15
    score = x[:, 0] + x[:, 1] - x[:, 2] + 0.5 * x[:, 4] - x[:, 5] * x[:, 0] + noise
    y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    return kind.fit(x, y), x


def grown(kind):
    return list(np.ravel(getattr(kind, "estimators_", [kind])))


def choices(model, column, own):
    """Values next to every threshold of a number, and the row's own."""
    cut = np.concatenate([t.tree_.threshold[t.tree_.feature == column] for t in grown(model)])
    below = cut.astype(np.float32)
    below = np.where(below > cut, np.nextafter(below, np.float32(-np.inf)), below)
    above = np.nextafter(below, np.float32(np.inf))
    values = np.unique(np.concatenate([below, above]))
    return np.concatenate([[own], values[(values >= 0) & (values <= 1)]]).astype(np.float32)


def brute_force(model, x, target, scale, allowed=lambda points: np.ones(len(points), bool)):
    """Return the least cost over all combinations of cells, infinite without an answer."""
    numbers = [choices(model, 0, x[0]), np.arange(11, dtype=np.float32) / 10]
    numbers[1] = np.concatenate([[x[1]], np.float32(0.1) * np.arange(11, dtype=np.float32)])
    numbers[1] = numbers[1][numbers[1] >= x[1]]
    last = choices(model, 5, x[5])
    grid = itertools.product(numbers[0], numbers[1], range(3), last)
    points = np.array([[a, b, *np.eye(3)[c], d] for a, b, c, d in grid], dtype=np.float32)
    points = points[allowed(points)]
    log = np.log(np.clip(model.predict_proba(points), 1e-12, None))
    others = np.delete(log, target, axis=1).max(1)
    good = log[:, target] - others >= MARGIN
    return price(points, x, scale)[good].min(initial=np.inf)


def price(points, x, scale):
    far = np.abs(points.astype(np.float64) - x)
    numbers = far[:, [0, 1, 5]] / scale[[0, 1, 5]] * np.array([1.0, 1.0, 2.0])
    category = far[:, 2:5].max(1) > 0.5
    changes = (numbers > 0).sum(1) + category
    return numbers.sum(1) + category + BETA * changes


def costs(result, x, scale):
    pairs = zip(result.x_cfs, x, strict=True)
    return np.array([price(cf[None], row, scale)[0] for cf, row in pairs])


BOUNDS = ["both", "boxes", "leaves"]
KINDS = {
    "forest": lambda: RandomForestClassifier(6, max_depth=3, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=6, max_depth=2, random_state=0),
    "tree": lambda: DecisionTreeClassifier(max_depth=4, random_state=0),
}


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_costs_equal_enumeration_of_all_cells(kind, classes, bounds, deviation):
    model, train = ensemble(KINDS[kind](), classes)
    x = train[model.predict(train) != 1][:12]
    method = ExactTree(wrap(model, space=SPACE), bounds=bounds)
    result = method.fit(train).explain(x, 1)
    scale = mad_scale(train, SPACE)
    best = np.array([brute_force(model, row, 1, scale) for row in x])
    found = np.isfinite(best)
    assert found.sum() >= 5
    assert (result.status == np.where(found, "found", "infeasible")).all()
    assert (result.proof[found] == "optimal").all()
    cost = costs(result, x, scale)[found]
    deviation.excess(cost, best[found], oracle="enumeration of all cells", limit=1e-6, below=1e-6)
    np.testing.assert_allclose(result.bound[found], cost, rtol=1e-5)


RULES = (
    LinearRelation.of({"b": 1, "e": -1}, 0.0),
    Implication("c", ("w",), "f", ("on",)),
)
RULED = FeatureSpace(
    (
        *SPACE.features[:3],
        Feature(name="e", kind="integer", columns=(5,), step=0.1),
        Feature(name="f", kind="categorical", columns=(6, 7), categories=("off", "on")),
    ),
    RULES,
)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_relations_and_implications_are_exact(bounds, deviation):
    """With `b <= e` between whole numbers and `c = w` only with `f = on`."""
    rng = np.random.default_rng(5)
    train = rows(300, 4)[:, :5]
    upper = np.minimum(train[:, 1] + rng.integers(0, 6, 300) / 10, 1.0)
    state = np.eye(2)[np.where(train[:, 4] > 0, 1, rng.integers(0, 2, 300))]
    train = np.column_stack([train, upper, state]).astype(np.float32)
    y = (train[:, 1] + train[:, 4] + 0.5 * train[:, 0] > 1.1).astype(int)
    model = RandomForestClassifier(5, max_depth=3, random_state=0).fit(train, y)
    x = train[model.predict(train) == 0][:10]
    result = ExactTree(wrap(model, space=RULED), bounds=bounds).fit(train).explain(x, 1)
    scale = mad_scale(train, RULED)
    tenths = np.float32(0.1) * np.arange(11, dtype=np.float32)
    best = []
    for row in x:
        grid = itertools.product(
            choices(model, 0, row[0]), np.append(tenths, row[1]), range(3),
            np.append(tenths, row[5]), range(2),
        )  # fmt: skip
        points = np.array(
            [[a, b, *np.eye(3)[c], e, *np.eye(2)[f]] for a, b, c, e, f in grid], dtype=np.float32
        )
        points = points[points[:, 1] >= row[1]]
        points = points[RULED.region(row[None].repeat(len(points), 0)).contains(points)]
        log = np.log(np.clip(model.predict_proba(points), 1e-12, None))
        far = np.abs(points.astype(np.float64) - row)
        parts = [far[:, [0, 1, 5]] / scale[[0, 1, 5]], far[:, 2:5].max(1, keepdims=True),
                 far[:, 6:].max(1, keepdims=True)]  # fmt: skip
        cost = np.hstack(parts).sum(1) + BETA * (np.hstack(parts) > 1e-6).sum(1)
        best.append(cost[log[:, 1] - log[:, 0] >= MARGIN].min(initial=np.inf))
    best = np.array(best)
    infeasible = result.status == "infeasible"
    deviation.rows(infeasible != np.isinf(best), oracle="enumeration of all cells")
    cost = result.bound[result.found]
    assert (result.proof[result.found] == "optimal").all()
    deviation.excess(
        cost, best[result.found], oracle="enumeration of all cells", limit=1e-5, below=1e-5
    )


@pytest.mark.parametrize("bounds", BOUNDS)
def test_rows_are_infeasible_exactly_when_no_cell_will_do(bounds, deviation):
    model, train = ensemble(KINDS["forest"]())
    space = SPACE.with_changes(
        a={"direction": "down"}, c={"mutable": False}, d={"direction": "up"}
    )
    x = train[model.predict(train) == 0][:40]
    result = ExactTree(wrap(model, space=space), bounds=bounds).fit(train).explain(x, 1)

    def allowed(row):
        def keep(p):
            return (p[:, 0] <= row[0]) & (p[:, 5] >= row[5]) & (p[:, 2:5] == row[2:5]).all(1)

        return keep

    scale = mad_scale(train, space)
    best = np.array([brute_force(model, row, 1, scale, allowed(row)) for row in x])
    assert 0 < np.isinf(best).sum() < len(best)
    wrong = (result.status == "infeasible") != np.isinf(best)
    deviation.rows(wrong, oracle="enumeration of all cells")


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("nodes", [1, 10, 100])
def test_bounds_never_exceed_the_optimum(nodes, bounds, deviation):
    """At every node limit the bound is at most the cost that enumeration finds."""
    model, train = ensemble(KINDS["forest"](), seed=3)
    x = train[model.predict(train) == 0][:10]
    wrapped, scale = wrap(model, space=SPACE), mad_scale(train, SPACE)
    result = ExactTree(wrapped, nodes=nodes, bounds=bounds).fit(train).explain(x, 1)
    best = np.array([brute_force(model, row, 1, scale) for row in x])
    over = np.maximum(result.bound - best, 0.0)
    deviation(over, oracle="enumeration of all cells", limit=1e-6, unit="bound above optimum")
    claims = result.proof == "optimal"
    cost = costs(result, x, scale)
    assert (cost[claims] <= best[claims] + 1e-6).all()


def test_order_of_trees_and_features_does_not_matter(deviation):
    model, train = ensemble(KINDS["forest"](), seed=7)
    x = train[model.predict(train) == 0][:10]
    first = ExactTree(wrap(model, space=SPACE)).fit(train).explain(x, 1)
    model.estimators_ = model.estimators_[::-1]
    second = ExactTree(wrap(model, space=SPACE)).fit(train).explain(x, 1)
    deviation.absolute(second.bound, first.bound, oracle="trees in reverse", limit=1e-9)
    turned = [5, 2, 3, 4, 1, 0]  # features d, c, b, a
    mirrored = FeatureSpace(
        (
            Feature(name="d", columns=(0,), weight=2.0),
            Feature(name="c", kind="categorical", columns=(1, 2, 3), categories=("u", "v", "w")),
            Feature(name="b", kind="integer", columns=(4,), step=0.1, direction="up"),
            Feature(name="a", columns=(5,)),
        )
    )

    flat = RandomForestClassifier(6, max_depth=3, random_state=0).fit(
        train[:, turned], [0, 1] * 150
    )
    for mine, theirs in zip(flat.estimators_, model.estimators_, strict=True):
        state = theirs.tree_.__getstate__()
        inner = state["nodes"]["feature"] >= 0
        state["nodes"]["feature"][inner] = np.argsort(turned)[state["nodes"]["feature"][inner]]
        mine.tree_.__setstate__(state)
    wrapped = wrap(flat, space=mirrored)
    third = ExactTree(wrapped).fit(train[:, turned]).explain(x[:, turned], 1)
    deviation.absolute(third.bound, first.bound, oracle="features in reverse", limit=1e-9)


def test_one_tree_without_beta_is_the_nearest_leaf(deviation):
    """One tree, beta 0: the cost is that of the nearest box of a leaf that says yes."""
    model, train = ensemble(KINDS["tree"](), seed=2)
    x = train[model.predict(train) == 0][:15]
    result = ExactTree(wrap(model, space=SPACE), beta=0.0).fit(train).explain(x, 1)
    scale = mad_scale(train, SPACE)
    view = wrap(model, space=SPACE).trees_()
    yes = np.flatnonzero(view.value[:, 1] > view.value[:, 0])
    best = []
    for row in x:
        costs = []
        for leaf in yes:
            low, high = view.boxes.low[leaf], view.boxes.high[leaf]
            total, fine = 0.0, True
            for a, f in enumerate(SPACE):
                if f.one_hot:
                    held = view.boxes.mask[leaf]
                    total += 0.0 if held[row[2:5].argmax()] else 1.0
                    fine &= bool(held.any())
                    continue
                edges = view.axes.edges[a].astype(np.float64)
                start = (
                    -np.inf
                    if low[a] == 0
                    else np.nextafter(view.axes.edges[a][low[a] - 1], np.float32(np.inf))
                )
                stop = np.inf if high[a] == len(edges) else edges[high[a]]
                value = row[f.columns[0]]
                if f.step:
                    grid = np.float32(0.1) * np.arange(11, dtype=np.float32)
                    grid = grid[(grid >= start) & (grid <= stop) & (grid >= value - 1e-7)]
                    inside = start <= value <= stop
                    fine &= inside or len(grid) > 0
                    near = value if inside or not len(grid) else grid[0]
                else:
                    near = np.clip(value, start, stop)
                    fine &= 0 <= near <= 1
                total += f.weight * abs(float(near) - float(value)) / scale[f.columns[0]]
            costs.append(total if fine else np.inf)
        best.append(min(costs))
    cost = result.bound
    deviation.excess(
        np.maximum(cost, 1e-9), np.maximum(best, 1e-9), oracle="nearest leaf box", limit=1e-5,
        below=1e-5,
    )  # fmt: skip


def test_answers_are_never_dearer_than_those_of_cells(deviation):
    model, train = ensemble(GradientBoostingClassifier(n_estimators=25, random_state=0))
    x = train[model.predict(train) == 0][:40]
    wrapped, scale = wrap(model, space=SPACE), mad_scale(train, SPACE)
    fast = CellSearch(wrapped).fit(train).explain(x, 1)
    exact = ExactTree(wrapped).fit(train).explain(x, 1)
    cost = [costs(r, x, scale) for r in (fast, exact)]
    over = np.maximum(cost[1] - cost[0], 0)
    deviation(over, oracle="cells", limit=1e-9, unit="cost above")


def test_a_time_limit_never_makes_a_wrong_proof():
    model, train = ensemble(KINDS["forest"](), seed=3)
    x = train[model.predict(train) == 0][:10]
    scale = mad_scale(train, SPACE)
    best = np.array([brute_force(model, row, 1, scale) for row in x])
    for limit in (1e-4, 1e-2, 0.1):
        result = ExactTree(wrap(model, space=SPACE), time_limit=limit).fit(train).explain(x, 1)
        assert "infeasible" not in set(result.status)
        if result.bound is not None:
            known = ~np.isnan(result.bound)
            assert (result.bound[known] <= best[known] + 1e-6).all()
