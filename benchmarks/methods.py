"""Rows per CPU-second and quality of the local methods, against one row at a time and dice-ml.

    python benchmarks/methods.py [--datasets moons,wine,...] [--methods wachter,dice:random,...]
        [--no-dice-ml] [--linear] [--free] [--markdown] [--out FILE.csv] [--write]

Everything in one run on one thread, so that the ratios mean something. `rows/s n=1` is the same
method called row by row, on as many rows as fit into a few seconds; `n=100` and `n=1000` are one
call each, and the quality is that of the last one. Datasets with fewer rows to explain than that
are drawn from with replacement, and nothing else is done: a repeated row is searched again each
time, but random streams are keyed by the content of a row, so that it gets the same answer.

`--linear` explains a logistic regression instead of a network.

`--free` lets every column move in [0, 1] and knows nothing of integers, directions or relations.
`--out` appends the lines of each dataset as soon as it is finished and skips datasets that are in
the file already; the tables printed at the end are those of the whole file. The lines of dice-ml
(see `dice_baseline.py`) go to FILE_dice.csv. `--write` measures the lines of docs/performance.md
and puts its tables there.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import pandas as pd
import torch

from cel.cf_methods import METHODS
from cel.datasets import load_dataset
from cel.metrics import MetricsOrchestrator
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.models.generative import default_density
from cel.protocols import Need, Scope, Task
from cel.result import EvaluationContext
from cel.space import FeatureSpace
from marked import put_between

DATASETS = ["heloc", "moons", "wine", "german_credit", "law"]
SIZES = [100, 1000]
ROW_BY_ROW_S = 5.0
SHOWN = ["coverage", "validity", "l2", "sparsity", "density_percentile"]
DICE = ["gradient", "random", "genetic", "kdtree"]
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
ON_PAGE = (
    "artelt,cadex,cchvae,cearm,cegp,cem,dice:gradient,dice:random,dice:random10,dice:genetic,"
    "dice:kdtree,ppcef,sace,wachter"
)
# On HELOC: rows per CPU-second that were asked for, then those and L2 of the authors' library.
ASKED = {
    "wachter": (None, 0.39, 0.47),
    "cem": (None, 0.53, 0.41),
    "cegp": (None, 0.16, 0.22),
    "cadex": (None, 47, 0.16),
    "dice:random": (None, 8.5, 0.69),
    "dice:random10": (500, None, None),
    "ppcef": (500, 2.8, 0.27),
    "cearm": (300, None, None),
    "artelt": (800, None, None),
    "cchvae": (1000, None, None),
}


def cpu(function):
    """Return (result, CPU seconds of this process)."""
    started = time.process_time()
    out = function()
    return out, time.process_time() - started


def setting(name, linear=False):
    """Return split, model, density, context of the metrics, rows to explain and wanted class."""
    split = load_dataset(name, binary=True).split()
    kind = LogisticRegression if linear else MLPClassifier
    model = kind().fit(split.loader("train"))
    labels = {
        p: model.predict_proba(getattr(split, p).X).argmax(1) for p in ("train", "valid", "test")
    }
    density = default_density(split.space).fit(
        split.train.X, labels["train"], space=split.space, valid=(split.valid.X, labels["valid"])
    )
    context = EvaluationContext(
        model=model, density=density, x_train=split.train.X, y_train=labels["train"],
        x_test=split.test.X, y_test=labels["test"],
    )  # fmt: skip
    goal = split.target.desired_position or 0
    order = np.random.default_rng(0)  # parts of a split are in the order of their content
    pool = np.concatenate(
        [split.test.X[labels["test"] != goal], split.train.X[labels["train"] != goal]]
    )
    return split, model, density, context, order.permutation(pool), split.target.classes[goal]


def draw(pool, n):
    """Return n rows: the first ones, or, where there are too few, n drawn with replacement."""
    if len(pool) >= n:
        return pool[:n]
    return pool[np.random.default_rng(0).integers(len(pool), size=n)]


def build(name, model, density, **extra):
    """Return the method of a line.

    "dice:random10" sets the search and the size of its sets, "ppcef:0.25" the quantile.
    """
    name, _, variant = name.partition(":")
    cls = METHODS.get(name)
    if Need.DENSITY in cls.needs:
        extra["gen_model"] = density
    if name == "artelt":
        extra["extension"] = "scp"
    if variant:
        extra |= _dice(variant) if name == "dice" else {"quantile": float(variant)}
    return cls(model, **extra)


def _dice(variant):
    search, size = re.fullmatch(r"([a-z]+)(\d*)", variant).groups()
    return {"method": search} | ({"total_CFs": int(size)} if size else {})


def method_line(name, dataset, split, model, density, context, pool, goal, free=False):
    """Return speed and quality of one method on one dataset."""
    data, space = split, {}
    if free:
        data, goal = split.train.X, list(split.target.classes).index(goal)
        space = {"space": FeatureSpace.continuous(pool.shape[1])}
    method, fit_s = cpu(lambda: build(name, model, density, **space).fit(data))
    line = {"dataset": dataset, "method": name, "fit_s": fit_s}
    method.explain(pool[-1:], goal)  # whatever is imported or compiled on first use
    single, used = 0, 0.0
    while used < ROW_BY_ROW_S and single < min(len(pool), 200):
        _, seconds = cpu(lambda i=single: method.explain(pool[i : i + 1], goal))
        single, used = single + 1, used + seconds
    line["rows/s n=1"] = single / used
    for n in SIZES:
        rows = draw(pool, n)
        result, seconds = cpu(lambda rows=rows: method.explain(rows, goal))
        line[f"rows/s n={n}"] = n / seconds
    line["ratio"] = line[f"rows/s n={SIZES[-1]}"] / line["rows/s n=1"]
    scores = MetricsOrchestrator(metrics=SHOWN).compute(result.with_context(context))
    return line | {n: scores[n] for n in SHOWN}


def local_methods(linear=False):
    """Return the names of all lines that work for a network, or for a linear model."""
    refused = {Need.TREES} if linear else {Need.TREES, Need.LINEAR_MODEL}
    names = [
        n
        for n, c in METHODS.items()
        if c.scope is Scope.LOCAL and Task.CLASSIFICATION in c.tasks and not c.needs & refused
    ]
    return [m for n in names for m in ([f"dice:{v}" for v in DICE] if n == "dice" else [n])]


def asked_table(table):
    """Return the lines of HELOC beside what was asked, and beside the authors' library."""
    ours = table[table["dataset"] == "heloc"].set_index("method")
    lines = []
    for name, (asked, theirs, l2) in ASKED.items():
        rate = float(ours.loc[name, "rows/s n=1000"])
        lines.append({
            "method": name, "rows/s": rate, "asked": float(asked or np.nan),
            "the authors' library, rows/s": float(theirs or np.nan),
            "times as fast": rate / theirs if theirs else np.nan,
            "l2": float(ours.loc[name, "l2"]), "theirs": float(l2 or np.nan),
        })  # fmt: skip
    return pd.DataFrame(lines)


def markdown(table):
    """Return a table of three digits."""
    shown = [[_plain(v) for v in row] for row in table.itertuples(index=False)]
    lines = [list(table.columns), ["---"] * len(table.columns), *shown]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plain(value):
    if not isinstance(value, float):
        return str(value)
    if np.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Lines:
    """Finished lines, in a file if there is one."""

    def __init__(self, path):
        self.path = path
        exists = path is not None and path.exists()
        self.table = pd.read_csv(path) if exists else pd.DataFrame(columns=["dataset"])

    def has(self, dataset):
        return (self.table["dataset"] == dataset).any()

    def add(self, lines):
        new = pd.DataFrame(lines)
        self.table = new if self.table.empty else pd.concat([self.table, new], ignore_index=True)
        if self.path is not None:
            new.to_csv(self.path, mode="a", index=False, header=not self.path.exists())


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--methods")
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--no-dice-ml", action="store_true")
    parser.add_argument("--free", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    usual = ON_PAGE if options.write else ",".join(local_methods(options.linear))
    methods = options.methods or usual
    out = options.out
    ours = Lines(out)
    theirs = Lines(out and out.with_name(f"{out.stem}_dice{out.suffix}"))
    for dataset in options.datasets.split(","):
        if ours.has(dataset) and (options.no_dice_ml or theirs.has(dataset)):
            continue
        made = setting(dataset, options.linear)
        if not ours.has(dataset):
            lines = []
            for name in methods.split(","):
                lines.append(method_line(name, dataset, *made, options.free))
                print({k: _plain(v) for k, v in lines[-1].items()}, flush=True)
            ours.add(lines)
        if not options.no_dice_ml and not theirs.has(dataset):
            from dice_baseline import compare

            split, model, _, _, pool, goal = made
            theirs.add(compare(dataset, split, model, pool, draw(pool, SIZES[-1]), goal))
    for table in (ours.table, theirs.table):
        if len(table):
            show = markdown if options.markdown else lambda t: t.to_string(float_format="%.3g")
            print(show(table), "\n", flush=True)
    if options.write:
        put_between(PAGE, "local methods", markdown(ours.table))
        put_between(PAGE, "asked on heloc", markdown(asked_table(ours.table)))
        if len(theirs.table):
            put_between(PAGE, "dice-ml", markdown(theirs.table))


if __name__ == "__main__":
    main()
