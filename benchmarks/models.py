"""Held-out quality of predictors and densities for both presets, one fold of every dataset.

    CEL_DATA=... python benchmarks/models.py [-j JOBS] [--datasets a,b] [--out models.csv]

Predictors: accuracy or R2 on the test rows. Densities: mean log-likelihood per feature of test
rows under the class (or value) that the predictor gives them. Seconds are CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from cel.datasets import load_dataset
from cel.models.generative import default_density
from cel.protocols import Task

DATASETS = [
    "adult", "bank_marketing", "credit_default", "lending_club", "scm20d", "heloc",
    "give_me_some_credit", "law", "digits", "german_credit", "audit", "blobs", "moons", "mixed",
    "wine", "concrete", "synthetic", "diabetes", "yacht",
]  # fmt: skip
PRESETS = ("default", "paper")


def outcome(model, x, task):
    return model.predict_proba(x).argmax(1) if task is Task.CLASSIFICATION else model.predict(x)


def quality(model, rows, task):
    predicted = outcome(model, rows.X, task)
    if task is Task.CLASSIFICATION:
        return float((predicted == rows.y).mean())
    residual = ((predicted - rows.y) ** 2).sum(0) / ((rows.y - rows.y.mean(0)) ** 2).sum(0)
    return float(1 - residual.mean())


def line(dataset, name, preset, limit):
    from cel.models import MODELS  # here, because joblib would ship a half-filled registry

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    split = load_dataset(dataset, binary=True).split()
    task = split.target.task
    options = {"preset": preset, "time_limit": limit}
    started = time.process_time()
    if name == "density":
        base = "lr" if task is Task.CLASSIFICATION else "linear"
        model = MODELS.get(base)().fit(split.loader("train"))
        labels = [outcome(model, p.X, task) for p in (split.train, split.valid, split.test)]
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
        "dataset": dataset, "model": name, "preset": preset, "value": value,
        "cpu_s": time.process_time() - started, "epochs": len(fitted.history_),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for one training")
    parser.add_argument("--out", default="models.csv")
    options = parser.parse_args()
    tasks = []
    for dataset in options.datasets.split(","):
        regression = dataset in ("scm20d", "concrete", "synthetic", "diabetes", "yacht")
        names = ("mlp_regressor", "linear") if regression else ("mlp", "lr")
        tasks += [(dataset, "density", p) for p in PRESETS]
        tasks += [(dataset, names[0], p) for p in PRESETS] + [(dataset, names[1], "default")]
    made = Parallel(n_jobs=options.jobs, return_as="generator_unordered")(
        delayed(line)(*t, options.limit) for t in tasks
    )
    lines = []
    for one in made:
        lines.append(one)
        pd.DataFrame(lines).to_csv(options.out, index=False)
        print(one, flush=True)
    table = pd.DataFrame(lines)
    for column in ("value", "cpu_s", "epochs"):
        print(column)
        print(table.pivot(index="dataset", columns=["model", "preset"], values=column).to_string())


if __name__ == "__main__":
    main()
