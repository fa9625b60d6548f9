"""Rows per CPU-second and quality of the local methods, against one row at a time and dice-ml.

    python benchmarks/methods.py [--datasets moons,wine,...] [--methods wachter,...] [--dice-ml]

Everything in one run on one thread, so that the ratios mean something. For n rows: the method on n
rows at once; for the baseline, the same method called row by row on as many rows as fit into the
time given, extrapolated to a rate.
"""

from __future__ import annotations

import argparse
import os
import time

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import pandas as pd
import torch

from cel.cf_methods import METHODS
from cel.datasets import load_dataset
from cel.metrics import MetricsOrchestrator
from cel.models.classifiers import MLPClassifier
from cel.models.generative import default_density
from cel.protocols import Need, Scope, Task
from cel.result import EvaluationContext

DATASETS = ["moons", "wine", "heloc", "german_credit", "law"]
SIZES = [1, 100, 1000]
ROW_BY_ROW_S = 5.0
SHOWN = ["coverage", "validity", "l2", "sparsity", "density_percentile"]


def cpu(function):
    """Return (result, CPU seconds of this process)."""
    started = time.process_time()
    out = function()
    return out, time.process_time() - started


def setting(name):
    split = load_dataset(name, binary=True).split()
    model = MLPClassifier().fit(split.loader("train"))
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
    pool = np.concatenate(
        [split.test.X[labels["test"] != goal], split.train.X[labels["train"] != goal]]
    )
    return split, model, density, context, pool, split.target.classes[goal]


def method_line(name, dataset, split, model, density, context, pool, goal):
    cls = METHODS.get(name)
    extra = {"gen_model": density} if Need.DENSITY in cls.needs else {}
    if name == "artelt":
        extra["extension"] = "scp"
    method, fit_s = cpu(lambda: cls(model, **extra).fit(split))
    line = {"dataset": dataset, "method": name, "fit_s": fit_s}
    single, used = 0, 0.0
    while used < ROW_BY_ROW_S and single < min(len(pool), 200):
        _, seconds = cpu(lambda i=single: method.explain(pool[i : i + 1], goal))
        single, used = single + 1, used + seconds
    line["rows/s n=1"] = single / used
    for n in SIZES[1:]:
        rows = pool[:n]
        result, seconds = cpu(lambda rows=rows: method.explain(rows, goal))
        line[f"rows/s n={len(rows)}"] = len(rows) / seconds
        last = result, len(rows) / seconds
        if len(pool) <= n:
            break
    line["x batch"] = last[1] / line["rows/s n=1"]
    scores = MetricsOrchestrator(metrics=SHOWN).compute(last[0].with_context(context))
    return line | {n: scores[n] for n in SHOWN}


def dice_ml_line(dataset, split, model, pool, goal):
    """dice-ml's random search on the same rows, per counterfactual."""
    import dice_ml

    class Wrapped:
        def predict_proba(self, frame):
            return model.predict_proba(frame.to_numpy(dtype=np.float32))

        def predict(self, frame):
            return self.predict_proba(frame).argmax(1)

    names = [f"f{j}" for j in range(pool.shape[1])]
    frame = pd.DataFrame(split.train.X, columns=names).astype(float)
    frame["y"] = model.predict_proba(split.train.X).argmax(1)
    data = dice_ml.Data(dataframe=frame, continuous_features=names, outcome_name="y")
    wrapped = dice_ml.Model(model=Wrapped(), backend="sklearn", model_type="classifier")
    explainer = dice_ml.Dice(data, wrapped, method="random")
    position = list(split.target.classes).index(goal)
    rows = pd.DataFrame(pool[:10], columns=names).astype(float)
    answer, seconds = cpu(
        lambda: explainer.generate_counterfactuals(
            rows, total_CFs=10, desired_class=int(position), random_seed=0, verbose=False
        )
    )
    made = sum(len(e.final_cfs_df) for e in answer.cf_examples_list if e.final_cfs_df is not None)
    ours = METHODS.get("dice")(model, method="random", total_CFs=10).fit(split)
    result, our_seconds = cpu(lambda: ours.explain(pool[:1000], goal))
    count = int((~np.isnan(result.x_sets).any(-1)).sum())
    return {
        "dataset": dataset, "dice-ml CFs/s": made / seconds, "ours CFs/s": count / our_seconds,
        "ratio": (count / our_seconds) / (made / seconds),
    }  # fmt: skip


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--methods", default="")
    parser.add_argument("--dice-ml", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    chosen = options.methods.split(",") if options.methods else [
        n for n, c in METHODS.items() if c.scope is Scope.LOCAL and Task.CLASSIFICATION in c.tasks
    ]  # fmt: skip
    lines, baseline = [], []
    for dataset in options.datasets.split(","):
        made = setting(dataset)
        for name in chosen:
            lines.append(method_line(name, dataset, *made))
            print(
                pd.DataFrame(lines[-1:]).to_string(index=False, header=len(lines) == 1), flush=True
            )
        if options.dice_ml:
            split, model, _, _, pool, goal = made
            baseline.append(dice_ml_line(dataset, split, model, pool, goal))
    table = pd.DataFrame(lines)
    print(table.to_string(index=False, float_format="%.3g"))
    if baseline:
        print(pd.DataFrame(baseline).to_string(index=False, float_format="%.3g"))
    if options.out:
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
