"""A thousand random ensembles of seven libraries: a planted answer is never called impossible."""

import numpy as np
import pytest
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier

from cel.cf_methods.local_methods import ExactTree
from cel.models import wrap
from cel.space import Feature, FeatureSpace

catboost = pytest.importorskip("catboost")
lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

MAKE = {
    "forest": lambda s: RandomForestClassifier(5, max_depth=4, random_state=s),
    "extra trees": lambda s: ExtraTreesClassifier(5, max_depth=4, random_state=s),
    "gradient boosting": lambda s: GradientBoostingClassifier(
        n_estimators=5, max_depth=3, learning_rate=0.5, random_state=s
    ),
    "histograms": lambda s: HistGradientBoostingClassifier(
        max_iter=5, min_samples_leaf=5, learning_rate=0.5, random_state=s
    ),
    "adaboost": lambda s: AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=2), n_estimators=5, random_state=s
    ),
    "lightgbm": lambda s: lightgbm.LGBMClassifier(
        n_estimators=5, num_leaves=7, min_child_samples=5, learning_rate=0.5, random_state=s,
        verbose=-1, n_jobs=1,
    ),
    "xgboost": lambda s: xgboost.XGBClassifier(
        n_estimators=5, max_depth=3, learning_rate=0.5, random_state=s, n_jobs=1
    ),
    "catboost": lambda s: catboost.CatBoostClassifier(
        iterations=5, depth=3, learning_rate=0.5, random_seed=s, verbose=0, thread_count=1,
        allow_writing_files=False,
    ),
}  # fmt: skip
CLEAR = 2e-3


def problem(seed):
    """Random rows and labels: an income-like number, a grid, a category, another number."""
    rng = np.random.default_rng(seed)
    n = 80
    job = np.eye(3)[rng.integers(0, 3, n)]
    parts = [rng.random(n), rng.integers(0, 11, n) / 10, job, rng.normal(size=n)]
    x = np.column_stack(parts).astype(np.float32)
    w = rng.normal(size=6)
    y = (x @ w + 0.3 * rng.normal(size=n) > np.median(x @ w)).astype(int)
    return x, y


def space_between(x, y):
    """A space that has little more than the box between a row and its planted answer."""
    pair = sorted({int(x[2:5].argmax()), int(y[2:5].argmax())})
    low, high = np.minimum(x, y) - 1e-6, np.maximum(x, y) + 1e-6
    return FeatureSpace(
        (
            Feature(name="a", columns=(0,), lower=low[0], upper=high[0]),
            Feature(name="b", kind="integer", columns=(1,), step=0.1, lower=low[1], upper=high[1]),
            Feature(
                name="c", kind="categorical", columns=(2, 3, 4), categories=("u", "v", "w"),
                allowed=tuple("uvw"[k] for k in pair),
            ),
            Feature(name="d", columns=(5,), lower=low[5], upper=high[5]),
        )
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKE)
def test_planted_answers_are_never_called_impossible(name, deviation):
    """125 random ensembles; the region is the box between a row and a row of the other class."""
    wrong = seen = found = 0
    for seed in range(125):
        x, y = problem(seed)
        model = MAKE[name](seed).fit(x, y)
        log = np.log(np.clip(model.predict_proba(x), 1e-12, None))
        margin = log[:, 1] - log[:, 0]
        start, end = np.flatnonzero(margin < 0), np.flatnonzero(margin > CLEAR)
        if not len(start) or not len(end):
            continue
        row, planted = x[start[seed % len(start)]], x[end[seed % len(end)]]
        space = space_between(row, planted)
        wrapped = wrap(model, space=space)
        for bounds in ("both", "leaves"):
            result = ExactTree(wrapped, nodes=200, bounds=bounds).fit(x).explain(row[None], 1)
            seen += 1
            wrong += result.status[0] == "infeasible"
            found += bool(result.found[0])
    assert seen >= 200
    assert found == seen - wrong
    deviation.rows(wrong, oracle="planted answer")
