"""Scoring one more method on Adult: 2,000 counterfactuals against 26,000 training rows.

    OMP_NUM_THREADS=1 CEL_DATA=... python benchmarks/metrics.py [--repeat 5] [--json FILE]

The references (outlier detectors, thresholds, MAD, densities of reference rows) are fitted while
the first method is scored; the next methods share them, shown by the counter. The goal is below
2 s on one thread for the default suite. Without Adult's file rows of its shape are generated.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from cel.errors import CelError
from cel.metrics import METRICS, Evaluation, MetricsOrchestrator
from cel.models.classifiers import MLPClassifier
from cel.result import EvaluationContext, ExplanationResult
from cel.space import Feature, FeatureSpace

ROWS, ANSWERS, GOAL = 26_000, 2_000, 2.0
SIZES = (9, 16, 7, 15, 6, 5, 2, 42)  # categories of Adult's labels


def adult() -> tuple[np.ndarray, np.ndarray, np.ndarray, FeatureSpace, str]:
    from cel.datasets import load_dataset

    split = load_dataset("adult").split()
    x = np.vstack([split.train.X, split.valid.X])
    y = np.concatenate([split.train.y, split.valid.y])
    return x, y, split.test.X, split.space, "Adult"


def generated() -> tuple[np.ndarray, np.ndarray, np.ndarray, FeatureSpace, str]:
    random, n = np.random.default_rng(0), ROWS + 6_500
    numbers = random.beta(2, 5, (n, 4)).round(2)
    numbers[:, 1:3] *= random.random((n, 2)) < 0.1
    parts, features, start = [numbers], [], 4
    features += [Feature(name=f"n{j}", columns=(j,)) for j in range(4)]
    for i, size in enumerate(SIZES):
        share = random.dirichlet(np.full(size, 0.5))
        parts.append(np.eye(size)[random.choice(size, n, p=share)])
        names = tuple(f"v{k}" for k in range(size))
        columns = tuple(range(start, start + size))
        features.append(
            Feature(name=f"c{i}", kind="categorical", columns=columns, categories=names)
        )
        start += size
    x = np.hstack(parts).astype(np.float32)
    y = (x @ random.normal(size=x.shape[1]) > 0).astype(np.int64)
    return x[:ROWS], y[:ROWS], x[ROWS:], FeatureSpace(tuple(features)), "generated rows"


class Bell:
    """A Gaussian of each class, for when no flow is at hand."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.mean = torch.tensor(np.stack([x[y == k].mean(0) for k in (0, 1)]))
        self.std = torch.tensor(np.stack([x[y == k].std(0) + 0.05 for k in (0, 1)]))

    def log_prob(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        z = (x - self.mean[context]) / self.std[context]
        return -(z.square() / 2 + self.std[context].log()).sum(-1)


def density(x: np.ndarray, y: np.ndarray) -> tuple[object, str]:
    try:
        from cel.models.generative import MaskedAutoregressiveFlow
    except ImportError:
        return Bell(x, y), "Gaussian"
    return MaskedAutoregressiveFlow(epochs=2).fit(x, y), "MAF"


def answers(
    context: EvaluationContext, x: np.ndarray, space: FeatureSpace, seed: int
) -> ExplanationResult:
    """Take real rows of the other class as counterfactuals, with a little of the person left."""
    random, model = np.random.default_rng(seed), context.model
    assert context.x_train is not None
    assert context.y_train is not None
    rows = x[model.predict_proba(x).argmax(1) == 0][:ANSWERS]
    donors = context.x_train[context.y_train == 1]
    cf = donors[random.integers(len(donors), size=len(rows))].copy()
    numeric = space.numeric_columns
    cf[:, numeric] += 0.1 * (rows[:, numeric] - cf[:, numeric])
    y = model.predict_proba(cf).argmax(1)
    return ExplanationResult(
        x_origs=rows,
        x_cfs=cf,
        y_origs=np.zeros(len(rows), dtype=np.int64),
        y_cf_targets=np.ones(len(rows), dtype=np.int64),
        y_cfs=y,
        status=np.where(y == 1, "found", "invalid").astype(object),
        source_ids=np.arange(len(rows)),
        space=space,
        seconds={"fit": 0.0, "explain": 1.0},
        method=f"method {seed}",
        context=context,
    )


def profile(context: EvaluationContext, result: ExplanationResult, judge: MetricsOrchestrator):
    """Seconds of each metric, asked alone."""
    out = {}
    for choice in judge.choices:
        view = Evaluation(result=result, context=context, references=judge.references)
        started = time.perf_counter()
        METRICS.get(choice.name).score(view)
        out[choice.name] = time.perf_counter() - started
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        measure(options)


def measure(options: argparse.Namespace) -> None:
    try:
        x, y, x_test, space, source = adult() if os.environ.get("CEL_DATA") else generated()
    except CelError as problem:
        print(f"Adult cannot be read ({problem}); rows are generated")
        x, y, x_test, space, source = generated()
    model = MLPClassifier(hidden=(256, 256), epochs=3, lr=1e-3).fit(x, y)
    y_train = model.predict_proba(x).argmax(1)
    flow, kind = density(x, y_train)
    context = EvaluationContext(
        model=model, density=flow, x_train=x, y_train=y_train, x_test=x_test,
        y_test=model.predict_proba(x_test).argmax(1),
    )  # fmt: skip
    judge = MetricsOrchestrator()
    seconds = []
    for seed in range(options.repeat + 1):
        result = answers(context, x_test, space, seed)
        started = time.perf_counter()
        scores = judge.compute(result)
        seconds.append(time.perf_counter() - started)
        if seed == 0:
            first = dict(judge.references.fits)
    again = dict(judge.references.fits) == first
    slowest = sorted(profile(context, result, judge).items(), key=lambda p: -p[1])[:5]
    print(scores)
    print(f"\n{source}: {x.shape[0]} x {x.shape[1]} training rows, {len(result)} answers, {kind}")
    print(f"first method, fitting references {first}: {seconds[0]:.2f} s")
    print(f"one more method: median {np.median(seconds[1:]):.3f} s, worst {max(seconds[1:]):.3f} s"
          f" (goal {GOAL} s); references fitted again: {not again}")  # fmt: skip
    print("slowest: " + ", ".join(f"{n} {s:.3f} s" for n, s in slowest))
    if options.json:
        told = {"source": source, "first_s": seconds[0], "next_s": seconds[1:], "fits": first}
        options.json.write_text(json.dumps(told, indent=1))
    if np.median(seconds[1:]) > GOAL or not again:
        raise SystemExit("the goal is missed")


if __name__ == "__main__":
    main()
