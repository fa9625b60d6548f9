"""Held-out log-likelihood of two densities for mixed rows.

(a) DequantizedFlow: variational dequantization and a masked autoregressive flow, importance-
    weighted bound;
(b) MixedDensity: log P(choices) + log p(numbers given choices), exact.

Both are densities over the same encoded rows: counting measure on categories, Lebesgue measure on
numbers, the probability of a coarse grid point divided by its step. Both add noise of 0.02 to the
other numbers in training. Run with CEL_DATA set:

    python benchmarks/densities.py [--folds 3,4] [--preset default] [--epochs N] [DATASET ...]

The schedule of (b) was chosen by looking at folds 0 to 2; folds 3 and 4 judge both.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from cel.datasets import load_dataset
from cel.datasets.mixed import MixedDistribution
from cel.models.generative import DequantizedFlow, MixedDensity

DATASETS = ("mixed", "law", "german_credit", "adult")


def exact(split):
    """Return the mean exact log-density of the test rows of the known dataset, encoded units."""
    ends = np.repeat(split.train.X[:1], 2, axis=0)
    names = MixedDistribution.continuous
    columns = [split.space[name].columns[0] for name in names]
    ends[0, columns], ends[1, columns] = 0.0, 1.0
    raw = split.pipeline.inverse_transform(ends)
    widths = sum(np.log(abs(np.diff(raw[name].to_numpy())[0])) for name in names)
    steps = sum(np.log(f.step) for f in split.space if f.step)
    known = MixedDistribution().log_density(split.test.frame, split.test.y)
    return float(known.mean() + widths - steps)


def measure(model, split):
    start = time.perf_counter()
    model.fit(
        split.train.X, split.train.y, space=split.space, valid=(split.valid.X, split.valid.y)
    )
    seconds = time.perf_counter() - start
    context = torch.tensor(split.test.y)
    with torch.no_grad():
        log_p = torch.cat(
            [
                model.log_prob(x, c)
                for x, c in zip(
                    torch.tensor(split.test.X).split(2048), context.split(2048), strict=True
                )
            ]
        )
    return float(log_p.mean()), float(log_p.min()), seconds, len(model.history_)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=DATASETS)
    parser.add_argument("--folds", default="3,4")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--epochs", type=int, default=None)
    args = parser.parse_args()
    options = {"preset": args.preset, "epochs": args.epochs}
    header = ["dataset", "features", "(a) bound", "(b) exact", "true", "b - a per feature"]
    header += ["least (a)", "least (b)", "seconds (a)", "seconds (b)"]
    print("|", " | ".join(header), "|")
    print("|" + "---|" * len(header))
    for name in args.datasets:
        results, truth, count = [], [], 0
        for fold in map(int, args.folds.split(",")):
            split = load_dataset(name).fold(fold)
            count = len(split.space)
            results.append([measure(m(**options), split) for m in (DequantizedFlow, MixedDensity)])
            truth.append(exact(split) if name == "mixed" else float("nan"))
        (a, low_a, time_a, _), (b, low_b, time_b, _) = np.array(results).mean(0)
        numbers = (a, b, np.mean(truth), (b - a) / count, low_a, low_b, time_a, time_b)
        cells = " | ".join("-" if np.isnan(v) else f"{v:.3f}" for v in numbers)
        print(f"| {name} | {count} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
