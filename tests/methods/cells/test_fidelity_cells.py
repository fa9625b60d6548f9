"""Coordinate search over cells: profiles against the models, answers against enumeration."""

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier

from cel.cf_methods.local_methods import CellSearch, ExactTree
from cel.models import wrap
from cel.search.branch import BoxSearch
from cel.search.profiles import profile, sums_at
from cel.space import Feature, FeatureSpace
from cel.space.constraints import Implication
from cel.space.distances import changed_features, mad_scale

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

BETA = 0.05
SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="b", kind="integer", columns=(1,), step=0.1),
        Feature(name="c", kind="categorical", columns=(2, 3, 4), categories=("u", "v", "w")),
        Feature(name="d", columns=(5,)),
    )
)


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    job = np.eye(3)[rng.integers(0, 3, n)]
    parts = [rng.random(n), rng.integers(0, 11, n) / 10, job, rng.random(n)]
    return np.column_stack(parts).astype(np.float32)


def fitted(model, classes=2, seed=0):
    x = rows(400, seed)
    noise = np.random.default_rng(seed + 1).normal(size=400) * 0.2
    score = x[:, 0] + x[:, 1] - x[:, 2] + 0.5 * x[:, 4] - x[:, 5] * x[:, 0] + noise
    y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    return model.fit(x, y), x


MODELS = {
    "forest": lambda: RandomForestClassifier(10, max_depth=5, random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(10, max_depth=5, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=10, random_state=0),
    "lightgbm": lambda: lightgbm.LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=10, max_depth=4, n_jobs=1),
    "wide trees": lambda: DecisionTreeClassifier(min_samples_leaf=1, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_profiles_equal_the_model_at_every_cell(name, deviation):
    """Every cell of every feature, scored by the real model at a value inside it."""
    model, train = fitted(MODELS[name](), seed=3)
    wrapped = wrap(model, space=SPACE)
    view = wrapped.trees_()
    tables = np.stack([view.bits.table(view.value[:, k]) for k in range(2)])
    for row in train[:6]:
        ours = profile(view.bits, tables, view.axes.cells(row[None]))[0] + view.base
        ours = ours if view.link == "mean" else softmax(ours)
        points, cells = [], []
        for a, f in enumerate(SPACE):
            for c in range(view.axes.offset[a], view.axes.offset[a + 1]):
                x, local = row.copy(), c - view.axes.offset[a]
                if f.one_hot:
                    x[2:5] = np.eye(3)[local]
                else:
                    edges = view.axes.edges[a]
                    x[f.columns[0]] = edges[local] if local < len(edges) else 2.0
                points.append(x)
                cells.append(c)
        real = wrapped.predict_proba(np.array(points))
        deviation.absolute(ours[cells], real, oracle="the model at every cell", limit=5e-6)


def softmax(s):
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def price(points, x, scale):
    far = np.abs(points.astype(np.float64) - x)
    numbers = far[:, [0, 1, 5]] / scale[[0, 1, 5]]
    category = far[:, 2:5].max(1) > 0.5
    return numbers.sum(1) + category + BETA * ((numbers > 0).sum(1) + category)


def costs(result, x, scale):
    pairs = zip(result.x_cfs, x, strict=True)
    return np.array([price(cf[None], row, scale)[0] for cf, row in pairs])


def test_a_single_tree_gives_its_cheapest_leaf(deviation):
    """One tree has no sums: greedy walks end at the nearest leaf that says yes."""
    model, train = fitted(DecisionTreeClassifier(max_depth=5, random_state=0))
    x = train[model.predict(train) == 0][:40]
    wrapped, scale = wrap(model, space=SPACE), mad_scale(train, SPACE)
    ours = costs(CellSearch(wrapped, starts=12).fit(train).explain(x, 1), x, scale)
    best = costs(ExactTree(wrapped).fit(train).explain(x, 1), x, scale)
    deviation(ours.mean() / best.mean() - 1, oracle="cheapest leaf", limit=0.05, unit="mean cost")


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["forest", "boosting", "lightgbm", "xgboost"])
def test_costs_are_near_the_optimum_and_never_below_it(name, classes, deviation):
    model, train = fitted(MODELS[name](), classes)
    x = train[model.predict(train) != 1][:60]
    wrapped, scale = wrap(model, space=SPACE), mad_scale(train, SPACE)
    fast = CellSearch(wrapped).fit(train).explain(x, 1)
    exact = ExactTree(wrapped).fit(train).explain(x, 1)
    proved = exact.proof == "optimal"
    assert proved.sum() >= 30
    assert fast.found[exact.found].all()
    ours, best = costs(fast, x, scale)[proved], costs(exact, x, scale)[proved]
    assert (ours >= best * (1 - 1e-6) - 1e-9).all()
    deviation(ours.mean() / best.mean() - 1, oracle="proved optimum", limit=0.05, unit="mean cost")


def test_no_changed_feature_has_a_cheaper_cell_that_suffices(deviation):
    """Answers are 1-minimal: every cheaper value of every changed feature loses the class."""
    model, train = fitted(MODELS["boosting"]())
    x = train[model.predict(train) == 0][:40]
    wrapped, scale = wrap(model, space=SPACE), mad_scale(train, SPACE)
    result = CellSearch(wrapped).fit(train).explain(x, 1)
    view, wrong = wrapped.trees_(), 0
    for cf, row in zip(result.x_cfs, x, strict=True):
        for a in np.flatnonzero(changed_features(cf[None], row[None], SPACE)[0]):
            f = SPACE.features[a]
            if f.one_hot:
                values = [row[2:5]]
            else:
                edges = view.axes.edges[a]
                near = np.concatenate(
                    [edges, np.nextafter(edges, np.float32(9)), [row[f.columns[0]]]]
                )
                if f.step:
                    near = np.float32(0.1) * np.arange(11, dtype=np.float32)
                values = [[v] for v in near if 0 <= v <= 1]
            points = np.repeat(cf[None], len(values), 0)
            points[:, list(f.columns)] = values
            cheaper = price(points, row, scale) < price(cf[None], row, scale)[0] - 1e-9
            proba = model.predict_proba(points)
            wrong += int((cheaper & (proba[:, 1] - proba[:, 0] > 1e-3)).any())
    deviation.rows(wrong, oracle="the model at every cheaper cell")


RULED = FeatureSpace(
    (*SPACE.features, Feature(name="sex", kind="categorical", columns=(6, 7),
                              categories=("f", "m"), mutable=False)),
    (Implication("c", ("w",), "sex", ("f",)),),
)  # fmt: skip


def test_implications_are_never_broken(deviation):
    """A category that only women can have is never offered to men, though the model likes it."""
    train = rows(400, 5)
    sex = np.eye(2)[np.where(train[:, 4] > 0, 0, np.arange(400) % 2)]
    train = np.column_stack([train, sex]).astype(np.float32)
    y = (train[:, 4] + 0.8 * train[:, 0] + 0.2 * train[:, 1] > 0.8).astype(int)
    model = GradientBoostingClassifier(n_estimators=15, random_state=0).fit(train, y)
    men = train[(model.predict(train) == 0) & (train[:, 7] > 0)][:60]
    result = CellSearch(wrap(model, space=RULED)).fit(train).explain(men, 1)
    assert result.found.mean() > 0.5
    deviation.rows(
        (result.x_cfs[result.found][:, 4] > 0.5).sum(), oracle="implication of the space"
    )


def test_whole_numbers_stay_whole_and_no_answer_flips(deviation):
    """Answers in raw tables: whole numbers are whole, and the frame path agrees on every one."""
    rng = np.random.default_rng(0)
    n = 1500
    frame = pd.DataFrame(
        {
            "income": np.round(rng.gamma(2.0, 900.0, n), 2),
            "age": rng.integers(18, 80, n),
            "job": pd.Categorical(rng.choice(["office", "farm", "sea"], n)),
            "rate": rng.random(n),
        }
    )
    score = frame["income"] / 900 - frame["age"] / 30 + (frame["job"] == "sea") * 2
    y = (score + rng.normal(size=n) > 1).astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=30, verbose=-1, n_jobs=1).fit(frame, y)
    wrapped = wrap(model, frame)
    rows = frame[model.predict(frame) == 0].head(1000)
    result = CellSearch(wrapped).fit(frame).explain(rows, 1)
    answers = result.to_frame()
    assert result.found.mean() > 0.95
    assert pd.api.types.is_integer_dtype(answers["age"].dtype)
    deviation.rows((model.predict(answers) != 1).sum(), oracle="the model on decoded tables")


def test_menus_change_different_features(deviation):
    model, train = fitted(MODELS["boosting"]())
    x = train[model.predict(train) == 0][:30]
    method = CellSearch(wrap(model, space=SPACE), total_CFs=3).fit(train)
    result = method.explain(x, 1)
    single = CellSearch(wrap(model, space=SPACE)).fit(train).explain(x, 1)
    np.testing.assert_array_equal(result.x_cfs, single.x_cfs)
    doubles, more = 0, 0
    for row, several in zip(x, result.x_sets, strict=True):
        known = several[~np.isnan(several).any(1)]
        more += len(known) > 1
        moved = changed_features(known, np.repeat(row[None], len(known), 0), SPACE)
        doubles += len(np.unique(moved, axis=0)) != len(moved)
        assert (model.predict(known) == 1).all()
    assert more > 15
    deviation.rows(doubles, oracle="sets of changed features")


def test_rows_without_any_good_leaf_are_infeasible(deviation):
    """Only a frozen feature matters: the best leaves that the region meets prove it."""
    train = rows(300, 2)
    y = (train[:, 0] > 0.5).astype(int)
    model = RandomForestClassifier(5, max_depth=2, max_features=None, random_state=0)
    model.fit(train, y)
    space = SPACE.with_changes(a={"mutable": False})
    x = train[model.predict(train) == 0][:20]
    result = CellSearch(wrap(model, space=space)).fit(train).explain(x, 1)
    points = np.array(
        [[0, b, *np.eye(3)[c], d] for b, c, d in itertools.product(
            np.linspace(0, 1, 11), range(3), np.linspace(0, 1, 101))], dtype=np.float32,
    )  # fmt: skip
    reachable = []
    for row in x:
        points[:, 0] = row[0]
        reachable.append((model.predict(points) == 1).any())
    assert not all(reachable)
    wrong = (result.status == "infeasible") & np.array(reachable)
    deviation.rows(wrong, oracle="a grid of points")
    assert (result.status[~np.array(reachable)] == "infeasible").all()


def all_large():
    """A tree that says yes where four whole numbers are large together, and flat elsewhere."""
    grid = np.array(list(itertools.product(range(6), repeat=4)), dtype=np.float32)
    model = DecisionTreeClassifier(random_state=0).fit(grid, (grid > 2).all(1))
    space = FeatureSpace(
        tuple(
            Feature(name=n, kind="integer", columns=(i,), step=1.0, lower=0.0, upper=5.0)
            for i, n in enumerate("abcd")
        )
    )
    return model, grid, space


def test_rows_that_no_walk_answers_are_settled_by_boxes(deviation, monkeypatch):
    """No single move gains and no training row says yes: four moves together do."""
    model, grid, space = all_large()
    no = grid[model.predict(grid) == 0]
    x = no[(no < 2).all(1)]
    wrapped = wrap(model, space=space)
    result = CellSearch(wrapped).fit(no).explain(x, 1)
    assert (result.proof == "optimal").all()
    monkeypatch.setattr(BoxSearch, "run", lambda self, expired: None)
    assert (CellSearch(wrapped).fit(no).explain(x, 1).status == "not_found").all()
    deviation.rows((result.x_cfs != 3).any(1), oracle="the nearest corner")


def test_rows_that_no_walk_answers_are_infeasible_where_boxes_prove_it(deviation):
    """One of the numbers is fixed: rows in which it is small have no answer, the others have."""
    model, grid, space = all_large()
    no = grid[model.predict(grid) == 0]
    stuck = wrap(model, space=space.with_changes(a={"mutable": False}))
    result = CellSearch(stuck).fit(no).explain(no, 1)
    wrong = (result.status == "infeasible") != (no[:, 0] <= 2)
    assert (result.found == (no[:, 0] > 2)).all()
    deviation.rows(wrong, oracle="the corner that must be reached")


def test_a_model_that_was_changed_after_wrapping_is_refused():
    from cel.errors import UnsupportedError

    model, train = fitted(MODELS["boosting"]())
    wrapped = wrap(model, space=SPACE)
    method = CellSearch(wrapped).fit(train)
    x = train[model.predict(train) == 0][:5]
    model.fit(train, 1 - model.predict(train))
    with pytest.raises(UnsupportedError, match="changed after wrapping"):
        method.explain(x, 0)


def test_sums_of_points_are_those_of_profiles(deviation):
    train = rows(400, 8)
    noise = np.random.default_rng(99).integers(0, 2, 400)
    view = wrap(MODELS["wide trees"]().fit(train, noise), space=SPACE).trees_()
    assert view.bits.per_tree > 1
    table = view.bits.table(view.value[:, 1])[None]
    cells = view.axes.cells(train[:20])
    along = profile(view.bits, table, cells)[:, :, 0]
    own = np.take_along_axis(along, cells, 1)
    gap = own - sums_at(view.bits, table, cells)
    deviation.absolute(gap, 0.0, oracle="leaf of each point", limit=1e-9)
