"""Small problems with tree ensembles, for methods that read trees and for those that prove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from cel.models.adapters import wrap
from cel.protocols import Task
from cel.space import Feature, FeatureSpace
from cel.testing.problems import PROBLEMS, ToyProblem

__all__ = ["TREE_PROBLEMS"]

TREES = 12


def _grown(name: str, like: str, trees: Any, **changes: Any) -> ToyProblem:
    """Return a problem with trees that were fitted to what its model predicts."""
    p = PROBLEMS[like]()
    labels = p.model.predict(p.x_train)
    regression = p.task is Task.REGRESSION
    trees.fit(p.x_train, labels[:, 0] if regression else labels)
    model = wrap(trees, space=p.space, task=p.task)
    rows = np.concatenate([p.x, p.x_train])
    open_ = np.ones(len(rows), dtype=bool) if regression else model.predict(rows) != p.target
    return replace(p, name=name, model=model, x=rows[open_][:12], **changes)


def _related_trees() -> ToyProblem:
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = HistGradientBoostingClassifier(max_iter=TREES, max_leaf_nodes=8, random_state=0)
    return _grown("trees_related", "related", trees)


def _regression_trees() -> ToyProblem:
    from sklearn.ensemble import HistGradientBoostingRegressor

    trees = HistGradientBoostingRegressor(
        max_iter=TREES, max_leaf_nodes=8, learning_rate=0.3, random_state=0
    )
    return _grown("trees_histograms", "regression", trees)


def _lightgbm() -> ToyProblem:
    from lightgbm import LGBMClassifier

    trees = LGBMClassifier(n_estimators=TREES, num_leaves=8, random_state=0, n_jobs=1, verbose=-1)
    return _grown("trees_lightgbm", "mixed", trees)


def _xgboost() -> ToyProblem:
    from xgboost import XGBClassifier

    trees = XGBClassifier(n_estimators=TREES // 2, max_depth=3, random_state=0, n_jobs=1)
    return _grown("trees_xgboost", "three_classes", trees)


def _tree_table() -> ToyProblem:
    """A table with labels in its columns and in its outcome, gaps among its numbers."""
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(8)
    n, homes = 260, ("own", "rent", "none")
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "income": np.round(rng.lognormal(8, 0.6, n), 2),
            "home": rng.choice(homes, n),
            "debt": np.round(rng.random(n) * 5000, 2),
        }
    )
    score = frame["income"] / 3000 - frame["debt"] / 3000 + (frame["home"] == "own")
    frame.loc[rng.random(n) < 0.1, "debt"] = np.nan
    space = FeatureSpace(
        (
            Feature(name="age", kind="integer", lower=18, upper=90, step=1, mutable=False),
            Feature(name="income", columns=(1,), lower=0, upper=np.inf),
            Feature(name="home", kind="categorical", columns=(2,), categories=homes),
            Feature(name="debt", columns=(3,), lower=0, upper=np.inf, direction="down"),
        )
    )  # fmt: skip
    columns = ColumnTransformer(
        [("labels", OneHotEncoder(), ["home"])], remainder="passthrough", sparse_threshold=0
    )
    trees = RandomForestClassifier(TREES, max_depth=4, random_state=0)
    labels = np.where(score > score.median(), "yes", "no")
    model = wrap(make_pipeline(columns, trees).fit(frame, labels), frame, space=space)
    assert model.pipeline_ is not None
    assert model.space_ is not None
    rows = model.pipeline_.transform(frame)
    return ToyProblem(
        name="trees_table", task=Task.CLASSIFICATION, model=model, space=model.space_,
        x_train=rows[24:], x=rows[model.predict(rows) != "yes"][:12],
        target=list(model.classes_).index("yes"), pipeline=model.pipeline_,
    )  # fmt: skip


_EXTRA = {"trees_lightgbm": ("lightgbm", _lightgbm), "trees_xgboost": ("xgboost", _xgboost)}
TREE_PROBLEMS: dict[str, Callable[[], ToyProblem]] = {
    "trees_related": _related_trees,
    "trees_table": _tree_table,
    "trees_histograms": _regression_trees,
} | {name: make for name, (package, make) in _EXTRA.items() if find_spec(package) is not None}
