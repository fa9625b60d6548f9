"""Live regions: what they hold, and that the nearest one is found."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from cel.cf_methods.local_methods import ExactTree, LiveRegions, NearestInstance
from cel.models import wrap
from cel.space import Feature, FeatureSpace
from cel.space.distances import mad_scale

BETA = 0.05
SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="b", kind="integer", columns=(1,), step=0.1, direction="up"),
        Feature(name="c", kind="categorical", columns=(2, 3, 4), categories=("u", "v", "w")),
        Feature(name="d", columns=(5,)),
    )
)


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    job = np.eye(3)[rng.integers(0, 3, n)]
    parts = [rng.random(n), rng.integers(0, 11, n) / 10, job, rng.random(n)]
    return np.column_stack(parts).astype(np.float32)


def fitted(model, seed=0):
    x = rows(400, seed)
    noise = np.random.default_rng(seed + 90).normal(size=400) * 0.2
    y = (x[:, 0] + x[:, 1] - x[:, 2] - x[:, 5] * x[:, 0] + noise > 0.5).astype(int)
    return model.fit(x, y), x


def price(points, x, scale):
    far = np.abs(points.astype(np.float64) - x)
    numbers = far[:, [0, 1, 5]] / scale[[0, 1, 5]]
    category = far[:, 2:5].max(1) > 0.5
    return numbers.sum(1) + category + BETA * ((numbers > 0).sum(1) + category)


def costs(result, x, scale):
    pairs = zip(result.x_cfs, x, strict=True)
    return np.array([price(cf[None], row, scale)[0] for cf, row in pairs])


MODELS = {
    "forest": lambda: RandomForestClassifier(10, max_depth=4, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=10, random_state=0),
    "tree": lambda: DecisionTreeClassifier(max_depth=5, random_state=0),
}


def leaves(model, x):
    return np.asarray(model.apply(x)).reshape(len(x), -1)


@pytest.mark.parametrize("name", MODELS)
def test_answers_share_all_leaves_with_a_training_row_of_the_class(name, deviation):
    """By the model's own `apply`: every tree puts the answer where it puts some training row."""
    model, train = fitted(MODELS[name]())
    x = train[model.predict(train) == 0][:40]
    result = LiveRegions(wrap(model, space=SPACE)).fit(train).explain(x, 1)
    assert result.found.mean() > 0.9
    known = {tuple(v) for v in leaves(model, train[model.predict(train) == 1])}
    ours = leaves(model, result.x_cfs[result.found])
    deviation.rows([tuple(v) not in known for v in ours], oracle="leaves of training rows")


def test_the_nearest_region_is_found_by_brute_force(deviation):
    """Random points of the space, grouped by their leaves: none of a live region is cheaper."""
    model, train = fitted(MODELS["forest"]())
    x = train[model.predict(train) == 0][:20]
    wrapped, scale = wrap(model, space=SPACE), mad_scale(train, SPACE)
    result = LiveRegions(wrapped).fit(train).explain(x, 1)
    live = {tuple(v) for v in leaves(model, train[model.predict(train) == 1])}
    view = wrapped.trees_()
    values = []
    for a, f in enumerate(SPACE):
        if f.one_hot:
            values.append([tuple(v) for v in np.eye(3)])
            continue
        edges = view.axes.edges[a]
        near = np.concatenate([edges, np.nextafter(edges, np.float32(9))])
        near = near if f.step is None else np.float32(0.1) * np.arange(11, dtype=np.float32)
        values.append([(v,) for v in near if 0 <= v <= 1])
    rng, cheaper = np.random.default_rng(0), 0
    ours = costs(result, x, scale)
    for i, row in enumerate(x):
        own = [tuple(row[list(f.columns)]) for f in SPACE]
        points = []
        for _ in range(3000):
            chosen = [
                own[a] if rng.random() < 0.5 else v[rng.integers(len(v))]
                for a, v in enumerate(values)
            ]
            points.append(np.concatenate(chosen))
        points = np.array(points, dtype=np.float32)
        points = points[points[:, 1] >= row[1]]
        keep = [tuple(v) in live for v in leaves(model, points)]
        cheaper += int((price(points[keep], row, scale) < ours[i] - 1e-6).any())
    deviation.rows(cheaper, oracle="random points of live regions")


def test_costs_lie_between_the_optimum_and_the_nearest_row(deviation):
    model, train = fitted(MODELS["forest"]())
    x = train[model.predict(train) == 0][:40]
    wrapped, scale = wrap(model, space=SPACE), mad_scale(train, SPACE)
    live = costs(LiveRegions(wrapped).fit(train).explain(x, 1), x, scale)
    exact = costs(ExactTree(wrapped).fit(train).explain(x, 1), x, scale)
    pool = train[model.predict(train) == 1]
    nearest = np.array(
        [price(p, row, scale).min() for row in x for p in [pool[pool[:, 1] >= row[1]]]]
    )
    deviation(np.maximum(exact - live, 0), oracle="proved optimum", limit=1e-9, unit="cost below")
    over = np.maximum(live - nearest, 0)
    deviation(over, oracle="nearest training row", limit=1e-6, unit="cost above")
    found = NearestInstance(wrapped).fit(train).explain(x, 1).found
    assert found.any()


def test_lowering_only_saves(deviation):
    model, train = fitted(MODELS["boosting"]())
    x = train[model.predict(train) == 0][:40]
    wrapped, scale = wrap(model, space=SPACE), mad_scale(train, SPACE)
    plain = costs(LiveRegions(wrapped).fit(train).explain(x, 1), x, scale)
    lowered = costs(LiveRegions(wrapped, lower=True).fit(train).explain(x, 1), x, scale)
    over = np.maximum(lowered - plain, 0)
    deviation(over, oracle="without lowering", limit=1e-9, unit="cost above")
    assert lowered.mean() < plain.mean()


def test_immutable_features_and_directions_hold(deviation):
    model, train = fitted(MODELS["forest"]())
    space = SPACE.with_changes(a={"mutable": False})
    x = train[model.predict(train) == 0][:40]
    result = LiveRegions(wrap(model, space=space)).fit(train).explain(x, 1)
    cf, own = result.x_cfs[result.found], x[result.found]
    assert len(cf) > 5
    deviation.rows((cf[:, 0] != own[:, 0]) | (cf[:, 1] < own[:, 1]), oracle="the row itself")


def test_only_correctly_labelled_rows_lend_their_regions(deviation):
    model, train = fitted(MODELS["forest"]())
    labels = model.predict(train).copy()
    spoiled = np.flatnonzero(labels == 1)[::2]
    labels[spoiled] = 0
    x = train[model.predict(train) == 0][:40]
    result = LiveRegions(wrap(model, space=SPACE)).fit(train, labels).explain(x, 1)
    good = train[(labels == 1) & (model.predict(train) == 1)]
    known = {tuple(v) for v in leaves(model, good)}
    ours = leaves(model, result.x_cfs[result.found])
    deviation.rows([tuple(v) not in known for v in ours], oracle="correctly labelled rows")
