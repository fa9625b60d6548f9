"""Bootstrap intervals of means and medians."""

from __future__ import annotations

import math

import numpy as np

from cel.metrics.base import Score

__all__ = ["bootstrap_interval"]

CHUNK_VALUES = 2**22


def bootstrap_interval(score: Score, level: float, n: int, seed: int) -> tuple[float, float]:
    """Return the percentile interval of a score over resampled rows (Efron, 1979)."""
    if score.values is None:
        return math.nan, math.nan
    values = score.values[~np.isnan(score.values)]
    if not len(values):
        return math.nan, math.nan
    random = np.random.default_rng(seed)
    size = max(1, CHUNK_VALUES // len(values))
    means = []
    for start in range(0, n, size):
        drawn = values[random.integers(len(values), size=(min(size, n - start), len(values)))]
        median = score.metric.aggregate == "median"
        means.append(np.median(drawn, axis=1) if median else drawn.mean(axis=1))
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail], method="nearest")
    return float(low), float(high)
