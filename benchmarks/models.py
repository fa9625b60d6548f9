"""Held-out quality of predictors and densities for both presets, mean over folds.

    CEL_DATA=... python benchmarks/models.py [-j JOBS] [--datasets a,b] [--folds 0,1] [--out FILE]

Predictors: accuracy or R2 on the test rows. Densities: mean log-likelihood per feature of test
rows under the class (or value) that the predictor gives them. Seconds are CPU seconds of one fold.
Every training is written to the file as it ends; a second call only does what is missing.
`--presets paper,printed` compares the density that suits a table, trained as printed, with that of
suite `paper`, which has the printed flow everywhere; no predictors are trained for it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import pandas as pd
import torch

from cel.benchmark import load_suite
from cel.datasets import load_dataset
from cel.models.generative import default_density
from cel.protocols import Task

DATASETS = [
    "adult", "bank_marketing", "credit_default", "lending_club", "scm20d", "heloc",
    "give_me_some_credit", "law", "digits", "german_credit", "audit", "blobs", "moons", "mixed",
    "wine", "concrete", "synthetic", "diabetes", "yacht",
]  # fmt: skip
PRESETS = ("default", "paper")
PRINTED = "printed"  # the density of suite `paper`


def outcome(model, x, task):
    return model.predict_proba(x).argmax(1) if task is Task.CLASSIFICATION else model.predict(x)


def quality(model, rows, task):
    predicted = outcome(model, rows.X, task)
    if task is Task.CLASSIFICATION:
        return float((predicted == rows.y).mean())
    residual = ((predicted - rows.y) ** 2).sum(0) / ((rows.y - rows.y.mean(0)) ** 2).sum(0)
    return float(1 - residual.mean())


def line(dataset, fold, name, preset, limit):
    from cel.models import MODELS

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    split = load_dataset(dataset, binary=True).fold(fold)
    task = split.target.task
    options = {"preset": preset, "time_limit": limit}
    started = time.process_time()
    if name == "density":
        base = "lr" if task is Task.CLASSIFICATION else "linear"
        model = MODELS.get(base)().fit(split.loader("train"))
        labels = [outcome(model, p.X, task) for p in (split.train, split.valid, split.test)]
        if preset == PRINTED:
            options |= load_suite("paper").density
        density = default_density(split.space, **options)
        started = time.process_time()
        density.fit(split.train.X, labels[0], space=split.space, valid=(split.valid.X, labels[1]))
        context = torch.as_tensor(np.asarray(labels[2]))
        value = density.log_prob(torch.as_tensor(split.test.X), context).mean() / len(split.space)
        fitted, value = density, float(value)
    else:
        cls = MODELS.get(name)
        fitted = cls(**({} if name in ("lr", "linear") else options)).fit(split.loader("train"))
        value = quality(fitted, split.test, task)
    return {
        "dataset": dataset, "fold": fold, "model": name, "preset": preset, "value": value,
        "cpu_s": time.process_time() - started, "epochs": len(fitted.history_),
    }  # fmt: skip


def trainings(datasets, folds, presets, limit):
    for dataset in datasets:
        regression = dataset in ("scm20d", "concrete", "synthetic", "diabetes", "yacht")
        names = ("mlp_regressor", "linear") if regression else ("mlp", "lr")
        for fold in folds:
            for preset in presets:
                yield dataset, fold, "density", preset, limit
                if PRINTED not in presets:
                    yield dataset, fold, names[0], preset, limit
            if PRINTED not in presets:
                yield dataset, fold, names[1], "default", limit


def run(tasks, jobs, out):
    """Train what the file does not have yet and return all its lines."""
    lines = pd.read_csv(out).to_dict("records") if Path(out).exists() else []
    have = {(m["dataset"], m["fold"], m["model"], m["preset"]) for m in lines}
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=fresh) as pool:
        waiting = [pool.submit(line, *t) for t in tasks if t[:4] not in have]
        for done in as_completed(waiting):
            lines.append(done.result())
            pd.DataFrame(lines).to_csv(out, index=False)
            print(lines[-1], flush=True)
    return pd.DataFrame(lines)


def tables(table, presets):
    """Print the tables of docs/models.md: means over the folds that both presets have."""
    one, other = presets
    wide = table.pivot(
        index=["dataset", "model", "fold"], columns="preset", values=["value", "cpu_s"]
    )
    alone = wide.index.get_level_values("model").isin(["lr", "linear"])
    wide = wide[alone | wide.notna().all(axis=1)]
    means = wide.groupby(["dataset", "model"]).mean()
    for group in (["mlp", "lr"], ["mlp_regressor", "linear"], ["density"]):
        part = means[means.index.get_level_values("model").isin([group[0]])].droplevel("model")
        if part.empty:
            continue
        gap = part["value", one] - part["value", other]
        print("\n| dataset |" + (f" {group[1]} |" if group[1:] else ""), end="")
        print(f" {group[0]} {one} | {other} | gap | seconds {one} | seconds {other} |")
        print("|" + "---|" * (5 + len(group)))
        for name, row in part.iterrows():
            cells = [means.loc[name, m]["value", "default"] for m in group[1:]]
            cells += [row["value", one], row["value", other], gap[name]]
            times = f"{row['cpu_s', one]:.1f} | {row['cpu_s', other]:.1f}"
            print(f"| {name} |", " | ".join(f"{c:.3f}" for c in cells), "|", times, "|")
        total = part["cpu_s"].sum()
        print(f"\ntogether {total[one]:.0f} s {one}, {total[other]:.0f} s {other}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--folds", default="0,1,2,3,4")
    parser.add_argument("--presets", default=",".join(PRESETS))
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for one training")
    parser.add_argument("--out", default="models.csv")
    options = parser.parse_args()
    folds = [int(f) for f in options.folds.split(",")]
    presets = options.presets.split(",")
    tasks = list(trainings(options.datasets.split(","), folds, presets, options.limit))
    tables(run(tasks, options.jobs, options.out), presets)


if __name__ == "__main__":
    main()
