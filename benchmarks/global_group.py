"""AReS, GLOBE-CE, GLANCE and T-CREx: quality on every dataset, growth, and published anchors.

    CEL_DATA=... OMP_NUM_THREADS=1 python benchmarks/global_group.py [table] [growth] [anchors]
        [--datasets adult,...] [--models lr,mlp] [--methods ares,...] [--json FILE]

`table` fits every method on the affected training rows of the first fold and scores it on its test
rows: share of affected rows with a candidate (coverage), share that reaches the target (validity),
mean cost in bins (a tenth of a training range, or one changed category) and changed features of
those, units, and processor seconds of fitting and of explaining on one thread. `growth` shows the
seconds against rows and columns. `anchors` repeats settings of the authors' notebooks on the same
kind of model and shows their numbers beside ours; there, all features are free and rows are scored
that were fitted on.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from cel import wrap
from cel.cf_methods import METHODS
from cel.cf_methods.explanations.edits import Price
from cel.datasets import load_dataset
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.protocols import Task
from cel.space import FeatureSpace
from cel.space.distances import changed_features

DATASETS = (
    "adult", "audit", "bank_marketing", "blobs", "credit_default", "digits", "german_credit",
    "give_me_some_credit", "heloc", "law", "lending_club", "moons", "wine",
)  # fmt: skip
MODELS = {"lr": LogisticRegression, "mlp": MLPClassifier}
RUNS = {
    "ares": ("ares", {}),
    "globe_ce": ("globe_ce", {}),
    "glance s=1": ("glance", {"n_actions": 1}),
    "glance s=4": ("glance", {"n_actions": 4}),
    "tcrex": ("tcrex", {}),
}


def measure(name, settings, model, data, X, target, space, train):
    """Fit, explain and measure one method."""
    start = time.process_time()
    method = METHODS.get(name)(model, **settings).fit(data)
    explanation = method.explanation(target)
    middle = time.process_time()
    result = method.explain(X, target)
    end = time.process_time()
    rows, found = result.explained, result.found
    before, after = (torch.as_tensor(a[found]) for a in (result.x_origs, result.x_cfs))
    price = Price.of(space, torch.as_tensor(train))
    some = bool(found.any())
    return {
        "affected": int(rows.sum()),
        "coverage": float(result.has_candidate[rows].mean()) if rows.any() else float("nan"),
        "validity": float(found[rows].mean()) if rows.any() else float("nan"),
        "cost": float(price(before, after).mean()) if some else float("nan"),
        "changed": float(changed_features(before, after, space).sum(1).float().mean())
        if some
        else float("nan"),
        "units": len(explanation),
        "fit_s": middle - start,
        "explain_s": end - middle,
        "rule_accuracy": explanation.logs.get("held_out_accuracy"),
        "reason": explanation.reason,
    }


def show(lines, columns):
    """Print a Markdown table."""
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for line in lines:
        cells = [line.get(c) for c in columns]
        text = [f"{c:.3g}" if isinstance(c, float) else "" if c is None else str(c) for c in cells]
        print("| " + " | ".join(text) + " |", flush=True)


def table(datasets, models, methods):
    lines = []
    for name in datasets:
        dataset = load_dataset(name, binary=True)
        split = dataset.split()
        for kind in models:
            model = MODELS[kind]().fit(dataset.train_dataloader())
            for run in methods:
                method, settings = RUNS[run]
                numbers = measure(
                    method, settings, model, split, split.test, split.target.desired,
                    split.space, split.train.X,
                )  # fmt: skip
                lines.append({"dataset": name, "model": kind, "method": run} | numbers)
    columns = (
        "dataset", "model", "method", "affected", "coverage", "validity", "cost", "changed",
        "units", "fit_s", "explain_s", "rule_accuracy",
    )  # fmt: skip
    show(lines, columns)
    return lines


class Logistic:
    """A fixed logistic model of any width, without gradients."""

    task = Task.CLASSIFICATION
    classes_ = np.arange(2)

    def __init__(self, width, seed=0):
        self.w = np.random.default_rng(seed).normal(size=width)

    def predict_proba(self, X):
        z = 8 * (np.asarray(X) - 0.5) @ self.w / np.sqrt(len(self.w)) - 0.5
        p = 1 / (1 + np.exp(-z))
        return np.stack([1 - p, p], 1)

    def predict(self, X):
        return self.predict_proba(X).argmax(1)


def growth(methods):
    """Seconds against rows (fitted and explained) and columns."""
    lines = []
    sizes = [(n, 20) for n in (1000, 3000, 10_000, 30_000)]
    sizes += [(5000, d) for d in (10, 20, 50, 100, 200)]
    for n, d in [(500, 5), *sizes]:  # the first loads the code
        X = np.random.default_rng(0).random((n, d)).astype(np.float32)
        space = FeatureSpace.continuous(d)
        line = {"rows": n, "columns": d}
        for run in methods:
            method, settings = RUNS[run]
            line[run] = sum(
                measure(method, settings | {"space": space}, Logistic(d), X, X, 1, space, X)[key]
                for key in ("fit_s", "explain_s")
            )
        lines.append(line)
    lines = lines[1:]
    show(lines, ("rows", "columns", *methods))
    for run in methods:
        small, large = (next(x[run] for x in lines if x["rows"] == n) for n in (1000, 30_000))
        print(f"{run}: 30 times the rows take {large / small:.1f} times as long")
    return lines


def free(space, unbounded=False):
    """Return the space without constraints, as the notebooks have it."""
    features = []
    for f in space:
        changes = {"mutable": True, "direction": "any", "allowed": None}
        if unbounded and not f.is_categorical:
            changes |= {"lower": -np.inf, "upper": np.inf}
        features.append(replace(f, **changes))
    return FeatureSpace(tuple(features))


def anchors():
    lines = []
    for name, settings, theirs in _linear_anchors():
        dataset = load_dataset(name)
        split = dataset.split()
        model = LogisticRegression().fit(dataset.train_dataloader())
        for method, options, published in zip(("ares", "globe_ce"), settings, theirs, strict=True):
            space = free(split.space, unbounded=method == "globe_ce")
            numbers = measure(
                method, options | {"space": space}, model, split, split.train,
                split.target.desired, space, split.train.X,
            )  # fmt: skip
            lines.append({"dataset": name, "model": "lr", "run": method, "published": published})
            lines[-1] |= numbers
    lines += _boosted_anchors()
    columns = ("dataset", "model", "run", "affected", "published", "validity", "cost", "units")
    show(lines, columns)
    return lines


def _linear_anchors():
    ares = {"bins": 10, "support": 0.2, "max_rows": None, "weights": (1.0, 10.0)}
    random = {
        "generator": "random", "select": "fixed", "clip": False, "n_sample": 2000,
        "magnitude": 1.0, "max_rows": None,
    }  # fmt: skip
    return (
        (
            "german_credit",
            (ares, random | {"n_features": 5, "power": 5.0}),
            ("84.4 % at 1.0", "95.0 % at 1.09"),
        ),
        ("heloc", (ares, random | {"n_features": 2}), ("96.9 % at 1.62", "99.9 % at 0.42")),
    )


def _boosted_anchors():
    import xgboost

    split = load_dataset("adult").split()
    tree = xgboost.XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1, random_state=0)
    tree.fit(split.train.X, split.train.y)
    space = free(split.space)
    model = wrap(tree, space=space, classes=(0, 1))
    runs = {
        "glance k=40 m=10 s=3": (
            {"n_actions": 3, "initial_clusters": 40, "n_local": 10}, "100 % at 5.81 (DiCE)",
        ),
        "glance random k=100 m=10 s=3": (
            {"n_actions": 3, "n_local": 10, "generator": "random"}, "100 % at 2.25",
        ),
        "glance tree": ({"variant": "tree", "n_local": 10}, "100 % at 4.27"),
    }  # fmt: skip
    lines = []
    for run, (settings, published) in runs.items():
        numbers = measure(
            "glance", settings | {"space": space}, model, split, split.train, 1, space,
            split.train.X,
        )  # fmt: skip
        lines.append({"dataset": "adult", "model": "xgboost", "run": run, "published": published})
        lines[-1] |= numbers
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["table", "growth", "anchors"])
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--methods", default=",".join(RUNS))
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # one dataset says that its file is a subset
    torch.set_num_threads(1)
    methods = args.methods.split(",")
    parts = {
        "table": lambda: table(args.datasets.split(","), args.models.split(","), methods),
        "growth": lambda: growth(methods),
        "anchors": anchors,
    }
    numbers = {}
    for part in args.parts:
        print(f"\n## {part}\n")
        numbers[part] = parts[part]()
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
