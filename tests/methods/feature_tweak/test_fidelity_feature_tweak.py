"""FeatureTweak: one path at a time, the ensemble decides."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from cel.cf_methods.local_methods import FeatureTweak
from cel.models import wrap
from cel.space import FeatureSpace

SPACE = FeatureSpace.continuous(4)


def case(kind, seed=0, n=20):
    rng = np.random.default_rng(seed)
    x = rng.random((300, 4)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.2 * rng.normal(size=300) > 0.8).astype(int)
    model = kind.fit(x, y)
    return model, x, x[model.predict(x) == 0][:n]


def paths(tree, positive):
    """All boxes of leaves of one scikit-learn tree for which `positive(leaf)` holds."""
    t = tree.tree_
    todo = [(0, np.full(4, -np.inf), np.full(4, np.inf))]
    while todo:
        node, low, high = todo.pop()
        if t.children_left[node] < 0:
            if positive(t.value[node][0]):
                yield low, high
            continue
        j, cut = t.feature[node], t.threshold[node]
        left, right = high.copy(), low.copy()
        left[j], right[j] = min(high[j], cut), max(low[j], cut)
        todo += [(t.children_left[node], low, left), (t.children_right[node], right, high)]


def next_to(cut, side):
    """The 32-bit number nearest to a threshold on its left (at most it) or right (above it)."""
    value = np.float32(cut)
    if side == "left":
        return np.nextafter(value, np.float32(-np.inf)) if value > cut else value
    return np.nextafter(value, np.float32(np.inf)) if value <= cut else value


def by_hand(model, trees, x, spread, eps, positive):
    """The cheapest tweak of a row that the model accepts, one path after the other."""
    best = np.inf
    for tree in trees:
        if positive(tree.tree_.value[tree.apply(x[None])[0]][0]):
            continue  # it votes for the class already
        for low, high in paths(tree, positive):
            z = x.astype(np.float64).copy()
            for j in range(4):
                least, most = next_to(low[j], "right"), next_to(high[j], "left")
                if x[j] <= low[j]:
                    z[j] = min(max(low[j] + eps * spread[j], least), most)
                elif x[j] > high[j]:
                    z[j] = max(min(high[j] - eps * spread[j], most), least)
            z = z.clip(0, 1)
            if ((z <= low) | (z > high)).any():
                continue
            p = np.log(model.predict_proba(z[None].astype(np.float32))[0].clip(1e-12))
            if p[1] - p[0] >= 1e-4:
                best = min(best, np.sqrt((((z - x) / spread) ** 2).sum()))
    return best


@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["tree", "forest", "boosting"])
def test_answers_equal_trying_every_path_by_hand(kind, eps, deviation):
    make = {
        "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
        "forest": RandomForestClassifier(10, max_depth=4, random_state=0),
        "boosting": GradientBoostingClassifier(n_estimators=10, max_depth=3, random_state=0),
    }[kind]
    model, train, x = case(make)
    result = FeatureTweak(wrap(model, space=SPACE), eps=eps).fit(train).explain(x, 1)
    spread = train.astype(np.float64).std(0)
    if kind == "boosting":
        trees, positive = [t[0] for t in model.estimators_], lambda v: v[0] > 0
    else:
        trees = getattr(model, "estimators_", [model])
        positive = lambda v: v[1] > v[0]  # noqa: E731 - one line says it
    best = np.array([by_hand(model, trees, row, spread, eps, positive) for row in x])
    cost = np.sqrt((((result.x_cfs - x) / spread) ** 2).sum(1))
    assert result.found.sum() >= 5
    deviation.rows(result.found != np.isfinite(best), oracle="every path by hand")
    deviation.relative(cost[result.found], best[result.found], oracle="every path by hand",
                       limit=1e-4)  # fmt: skip


def test_a_smaller_distance_to_thresholds_costs_less():
    model, train, x = case(RandomForestClassifier(10, max_depth=4, random_state=0))
    spread = train.std(0)
    costs = []
    for eps in (0.3, 0.1, 0.0):
        result = FeatureTweak(wrap(model, space=SPACE), eps=eps).fit(train).explain(x, 1)
        costs.append((((result.x_cfs - x) / spread) ** 2).sum(1))
        assert (model.predict(result.x_cfs[result.found]) == 1).all()
    both = ~np.isnan(costs[0]) & ~np.isnan(costs[2])
    assert (costs[2][both] <= costs[0][both] + 1e-6).mean() > 0.9
    assert costs[2][both].mean() < costs[0][both].mean()


def test_only_violated_conditions_are_touched():
    """A tree over one feature: the others keep their values bit for bit."""
    rng = np.random.default_rng(1)
    train = rng.random((200, 4)).astype(np.float32)
    model = DecisionTreeClassifier(max_depth=3).fit(train, (train[:, 2] > 0.6).astype(int))
    x = train[model.predict(train) == 0][:10]
    result = FeatureTweak(wrap(model, space=SPACE)).fit(train).explain(x, 1)
    assert result.found.all()
    np.testing.assert_array_equal(result.x_cfs[:, [0, 1, 3]], x[:, [0, 1, 3]])
    gap = result.x_cfs[:, 2] - model.tree_.threshold[0]
    assert np.allclose(gap, 0.1 * train[:, 2].std(), atol=1e-5)


def test_immutable_features_stay():
    model, train, x = case(RandomForestClassifier(10, max_depth=4, random_state=0))
    space = SPACE.with_changes(x0={"mutable": False}, x1={"direction": "up"})
    result = FeatureTweak(wrap(model, space=space)).fit(train).explain(x, 1)
    found = result.found
    assert found.any()
    np.testing.assert_array_equal(result.x_cfs[found, 0], x[found, 0])
    assert (result.x_cfs[found, 1] >= x[found, 1]).all()
