"""Rows with missing numbers: the trees' own way of gaps, as the model goes."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from cel.cf_methods.local_methods import CellSearch, ExactTree
from cel.errors import UnsupportedError
from cel.models import wrap
from cel.models.trees import model_matrix
from cel.space.distances import mad_scale

BETA = 0.05


def lightgbm(**settings):
    module = pytest.importorskip("lightgbm")
    return module.LGBMClassifier(
        n_estimators=8, num_leaves=6, min_child_samples=10, verbose=-1, n_jobs=1, **settings
    )


def xgboost():
    module = pytest.importorskip("xgboost")
    return module.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1)


def catboost(**settings):
    module = pytest.importorskip("catboost")
    quiet = {"verbose": 0, "thread_count": 1, "allow_writing_files": False, "random_seed": 0}
    return module.CatBoostClassifier(iterations=8, depth=3, learning_rate=0.5, **quiet, **settings)


MAKE = {
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "catboost": catboost,
    "catboost, gaps above": lambda: catboost(nan_mode="Max"),
    "histograms": lambda: HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=6),
    "forest": lambda: RandomForestClassifier(8, max_depth=3, random_state=0),
    "filled before": lambda: make_pipeline(
        SimpleImputer(), RandomForestClassifier(8, max_depth=3, random_state=0)
    ),
}


def table(n=400, seed=0):
    """Two numbers with gaps that mean something, and one without."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.random((n, 3)).round(3), columns=["a", "b", "c"])
    score = frame["a"] + frame["b"] - frame["c"]
    frame.loc[rng.random(n) < 0.25, "a"] = np.nan
    frame.loc[rng.random(n) < 0.15, "b"] = np.nan
    score = score - 0.3 * frame["a"].isna() + 0.2 * frame["b"].isna()
    return frame, (score > score.median()).astype(int).to_numpy()


@pytest.fixture(scope="module", params=MAKE)
def fitted(request):
    frame, y = table()
    model = MAKE[request.param]().fit(frame, y)
    wrapped = wrap(model, frame)
    return frame, model, wrapped, wrapped.pipeline_.transform(frame)


def test_trees_score_rows_with_gaps_as_the_model_does(fitted):
    frame, model, wrapped, x = fitted
    assert frame.isna().any(axis=1).mean() > 0.3
    ours = np.exp(wrapped.trees_().scores(x))
    np.testing.assert_allclose(ours, model.predict_proba(frame), atol=1e-5)


def listed(wrapped, row, known):
    """The encoded points that a row may go to, on a coarse grid of numbers, and its own values."""
    space, frame = wrapped.space_, wrapped.pipeline_.inverse_transform(row[None])
    ends = [
        wrapped.pipeline_.transform(frame.assign(**dict.fromkeys("abc", v)))[0] for v in (0.0, 1.0)
    ]
    steps = np.linspace(0, 1, 9)
    place = [space[n].columns[0] for n in "abc"]
    values = [np.append(ends[0][k] + steps * (ends[1][k] - ends[0][k]), row[k]) for k in place]
    gaps = [[False] if known[k] else [False, True] for k in range(2)]
    points = []
    for *numbers, gap_a, gap_b in itertools.product(*values, *gaps):
        point = row.copy()
        point[place] = numbers
        for n, gap in (("a", gap_a), ("b", gap_b)):
            point[list(space[f"{n}__missing"].columns)] = (not gap, gap)
        points.append(point)
    return np.array(points, dtype=np.float32)


def test_rows_with_gaps_are_answered_at_the_least_cost(fitted, deviation):
    """Beside all values of a grid: none of them is cheaper than what is proved."""
    frame, model, wrapped, x = fitted
    below = np.flatnonzero(model.predict(frame) == 0)
    gaps = frame.iloc[below].isna().any(axis=1).to_numpy()
    rows = np.concatenate([below[gaps][:5], below[~gaps][:2]])
    result = ExactTree(wrapped).fit(x).explain(x[rows], 1)
    assert "unread_rows" not in result.logs
    assert (result.proof == "optimal").all()
    assert CellSearch(wrapped).fit(x).explain(x[rows], 1).found.all()
    assert (wrapped.predict(result.x_cfs) == 1).all()
    answers = wrapped.pipeline_.inverse_transform(result.x_cfs)
    known = frame.iloc[rows].notna().to_numpy()
    assert not (answers.isna().to_numpy() & known).any()  # no advice is to lose a value
    space, scale = wrapped.space_, mad_scale(x, wrapped.space_)
    numbers = [space[n].columns[0] for n in "abc"]
    flags = [space[f"{n}__missing"].columns[0] for n in "ab"]
    over, seen = [], 0
    for i, row in enumerate(x[rows]):
        points = listed(wrapped, row, known[i])
        points = points[space.region(row[None].repeat(len(points), 0)).contains(points)]
        points = points[wrapped.predict_proba(points)[:, 1] > 0.5001]
        far = np.abs(points.astype(np.float64) - row)
        cost = (far[:, numbers] / scale[numbers] + BETA * (far[:, numbers] > 1e-6)).sum(1)
        cost += (1 + BETA) * (far[:, flags] > 0.5).sum(1)
        over.append(max(result.bound[i] - cost.min(), 0.0))
        seen += cost.min() < 2 * result.bound[i]
    assert seen >= 4  # the grid comes near
    deviation(np.array(over), oracle="all values on a grid", limit=1e-6, unit="bound above")


def test_lightgbm_takes_gaps_for_zeros_where_training_had_none():
    frame, y = table()
    full = frame.fillna(0.4) - 0.5
    model = lightgbm().fit(full, y)
    gappy = full.where(frame.notna())
    wrapped = wrap(model, gappy)
    x = wrapped.pipeline_.transform(gappy)
    ours = np.exp(wrapped.trees_().scores(x))
    np.testing.assert_allclose(ours, model.predict_proba(gappy), atol=1e-6)
    assert np.abs(ours - model.predict_proba(full)).max() > 0.01


def test_catboost_takes_gaps_for_small_numbers_where_training_had_none():
    """The library says "AsIs": no border is passed; the check on loading sees the other way."""
    frame, y = table()
    full = frame.fillna(0.4)
    model = catboost(nan_mode="Max").fit(full, y)
    gappy = full.where(frame.notna())
    wrapped = wrap(model, gappy)
    ours = np.exp(wrapped.trees_().scores(wrapped.pipeline_.transform(gappy)))
    np.testing.assert_allclose(ours, model.predict_proba(gappy), atol=1e-6)
    low = model.predict_proba(gappy.fillna(-9.0))
    np.testing.assert_allclose(ours, low, atol=1e-6)
    assert np.abs(ours - model.predict_proba(gappy.fillna(9.0))).max() > 0.01


def test_trees_that_send_gaps_the_wrong_way_are_refused(monkeypatch):
    """Conformance is checked on rows with gaps, too, when the trees are read."""
    frame, y = table()
    model = catboost(nan_mode="Max").fit(frame, y)
    parse = model_matrix.parse_catboost

    def turned(given):
        forest = parse(given)
        return replace(forest, missing_left=~forest.missing_left)

    monkeypatch.setattr(model_matrix, "parse_catboost", turned)
    with pytest.raises(UnsupportedError, match="differently from the model"):
        wrap(model, frame).trees_()


@pytest.mark.parametrize("side", ["Min", "Max"])
def test_catboost_parts_gaps_from_numbers(side):
    """Where the outcome is the gap itself, filling it is the cheapest answer."""
    frame, _ = table()
    model = catboost(nan_mode=side).fit(frame, frame["a"].isna().astype(int))
    wrapped = wrap(model, frame)
    x, gaps = wrapped.pipeline_.transform(frame), frame["a"].isna().to_numpy()
    ours = np.exp(wrapped.trees_().scores(x))
    np.testing.assert_allclose(ours, model.predict_proba(frame), atol=1e-6)
    assert ours[gaps, 1].min() > 0.5 > np.median(ours[~gaps, 1])
    filled = ExactTree(wrapped).fit(x).explain(x[gaps][:3], 0)
    assert (filled.proof == "optimal").all()
    assert wrapped.pipeline_.inverse_transform(filled.x_cfs)["a"].notna().all()
