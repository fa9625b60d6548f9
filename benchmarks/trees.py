"""Methods for tree ensembles beside treecf: cost, changes and CPU milliseconds per row.

    CEL_DATA=... OMP_NUM_THREADS=1 python benchmarks/trees.py [--rows 60] [--models lightgbm ...]

Adult in two settings. FREE: every feature may go anywhere. HARD: the card's rules (immutable sex,
race and country; age and education only up) and, besides, marital status, relationship, capital
gain and capital loss fixed and at most 60 hours a week. `own` is the objective of `cells`:
|change| / MAD, 1 per category, 0.05 per changed feature; `L1` is |change| / training range over
numbers. All sides see the same rows, one thread, one run; fitting and reading trees are left out.
treecf is run where it is installed, with the same scales and weights.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from xgboost import XGBClassifier

from cel.cf_methods.local_methods import (
    FOCUS,
    NICE,
    CellSearch,
    ExactTree,
    FeatureTweak,
    LiveRegions,
    NearestInstance,
)
from cel.datasets import load_dataset
from cel.models import wrap
from cel.space.distances import changed_features, mad_scale

BETA = 0.05
FIXED = ("sex", "race", "native-country", "marital-status", "relationship", "capital-gain",
         "capital-loss")  # fmt: skip


def models(split):
    """Fit the ensembles on the raw table."""
    frame, y = split.train.frame, split.train.y
    labels = [n for n in frame if isinstance(frame[n].dtype, pd.CategoricalDtype)]
    ranks = ColumnTransformer([("labels", OrdinalEncoder(), labels)], remainder="passthrough")
    quiet = {"verbose": -1, "n_jobs": 1, "random_state": 0}
    return {
        "lightgbm": lambda: LGBMClassifier(n_estimators=100, **quiet).fit(frame, y),
        "lightgbm 500": lambda: LGBMClassifier(n_estimators=500, **quiet).fit(frame, y),
        "xgboost": lambda: XGBClassifier(
            n_estimators=100, max_depth=5, enable_categorical=True, n_jobs=1
        ).fit(frame, y),
        "random forest": lambda: make_pipeline(
            ranks, RandomForestClassifier(100, max_depth=6, random_state=0)
        ).fit(frame, y),
    }


def spaces(space):
    free = {f.name: {"mutable": True, "direction": "any"} for f in space if not f.is_categorical}
    free |= {f.name: {"mutable": True} for f in space if f.is_categorical}
    hours = space["hours-per-week"]
    top = hours.anchor + hours.step * (60 - 1)  # the grid begins at one hour
    hard = {n: {"mutable": False} for n in FIXED}
    hard["hours-per-week"] = {"upper": min(top, hours.upper)}
    return {"FREE": space.with_changes(**free), "HARD": space.with_changes(**hard)}


def measures(x, cf, space, scale):
    """Return (own objective, L1, changes) of answers (m, d)."""
    numeric = space.numeric_columns
    far = np.abs(cf.astype(np.float64) - x)
    moved = changed_features(cf, x, space)
    labels = np.array([f.is_categorical for f in space])
    own = (far[:, numeric] / scale[numeric]).sum(1) + moved[:, labels].sum(1)
    return own + BETA * moved.sum(1), far[:, numeric].sum(1), moved.sum(1)


def line(name, setting, method, result, x, space, scale, seconds):
    found = result["found"]
    own, l1, changes = measures(x[found], result["cf"][found], space, scale)
    print(
        f"{name:14} {setting} {method:18} found {found.sum():4d}/{len(found)} "
        f"impossible {result.get('impossible', 0):3d} optimal {result.get('optimal', 0):4d} "
        f"own {own.mean():6.3f} L1 {l1.mean():6.4f} changes {changes.mean():5.2f} "
        f"ms/row {1e3 * seconds / len(found):8.2f}",
        flush=True,
    )
    return own


def ours(name, wrapped, split, x, scale):
    for setting, space in spaces(split.space).items():
        for label, method in (
            ("cells", CellSearch(wrapped, space=space)),
            ("exact_tree", ExactTree(wrapped, space=space, nodes=500)),
            ("exact_tree leaves", ExactTree(wrapped, space=space, nodes=500, bounds="leaves")),
            ("live_regions", LiveRegions(wrapped, space=space)),
            ("nice", NICE(wrapped, space=space)),
            ("nearest", NearestInstance(wrapped, space=space)),
            ("feature_tweak", FeatureTweak(wrapped, space=space)),
            ("focus", FOCUS(wrapped, space=space)),
        ):
            method.fit(split)
            wrapped.trees_()
            started = time.process_time()
            r = method.explain(x, 1)
            seconds = time.process_time() - started
            told = {"found": r.found, "cf": r.x_cfs, **r.proofs()}
            told["impossible"] = told["infeasible"]
            line(name, setting, label, told, x, space, scale, seconds)


def treecf_rows(name, model, split, x, scale):
    """treecf's genetic and exact searches, without constraints (FREE)."""
    try:
        import treecf
    except ImportError:
        print("treecf is not installed: left out")
        return
    frame = split.train.frame
    codes = frame.apply(lambda c: c.cat.codes if hasattr(c, "cat") else c).to_numpy(float)
    raw = split.pipeline.inverse_transform(x)
    rows = raw.apply(lambda c: c.cat.codes if hasattr(c, "cat") else c).to_numpy(float)
    names = [str(n) for n in frame.columns]
    whole = {str(n): "integer" for n in frame if not hasattr(frame[n], "cat")}
    explainer = treecf.Explainer(model, background=codes, value_policy=whole)
    target = treecf.Target.probability(range=(0.5 + 1e-4, 1.0))
    for backend in ("genetic", "exact"):
        cf, found = np.full(x.shape, np.nan, np.float32), np.zeros(len(x), dtype=bool)
        started = time.process_time()
        answers = [
            explainer.explain(r, target, backend=backend, sparsity_weight=BETA, seed=0,
                              time_budget_s=2.0)
            for r in rows
        ]  # fmt: skip
        seconds = time.process_time() - started
        for i, answer in enumerate(answers):
            values = getattr(answer, "x_cf", getattr(answer, "x", None))
            if values is None:
                continue
            row = raw.iloc[[i]].copy()
            for j, n in enumerate(names):
                v = float(np.asarray(values).ravel()[j])
                known = frame[n].cat.categories if hasattr(frame[n], "cat") else None
                row[n] = pd.Categorical([known[int(v)]], dtype=frame[n].dtype) if (
                    known is not None
                ) else np.array([round(v)], dtype=frame[n].dtype)  # fmt: skip
            cf[i] = split.pipeline.transform(row)[0]
            found[i] = model.predict(row)[0] == 1
        told = {"found": found, "cf": cf}
        line(name, "FREE", f"treecf {backend}", told, x, split.space, scale, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--models", nargs="*", default=["lightgbm", "xgboost", "random forest"])
    options = parser.parse_args()
    split = load_dataset("adult").split()
    scale = mad_scale(split.train.X, split.space)
    for name, make in models(split).items():
        if name not in options.models:
            continue
        model = make()
        wrapped = wrap(model, split)
        below = np.flatnonzero(wrapped.predict_proba(split.test.X).argmax(1) == 0)
        rows = np.random.default_rng(0).permutation(below)[: options.rows]
        x = split.test.X[rows]
        ours(name, wrapped, split, x, scale)
        if name.startswith("lightgbm"):
            treecf_rows(name, model, split, x, scale)


if __name__ == "__main__":
    main()
