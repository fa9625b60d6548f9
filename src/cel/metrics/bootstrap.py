"""Bootstrap intervals of means and medians."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

__all__ = ["bootstrap_interval"]

CHUNK_VALUES = 2**22


def bootstrap_interval(
    values: np.ndarray,
    *,
    level: float = 0.95,
    n: int = 1000,
    seed: int = 0,
    aggregate: Literal["mean", "median"] = "mean",
) -> tuple[float, float]:
    """Return the percentile interval of the mean or median over resampled values (Efron, 1979).

    Resample what is independent: rows for a statement about one run, datasets for a statement
    about methods.

    Args:
        values: (n,); NaN are left out, and (NaN, NaN) is returned if nothing is left.
        level: share of repetitions inside the interval.
        n: number of repetitions.
        seed: seed of the draws.
        aggregate: of each repetition.

    >>> bootstrap_interval(np.array([1.0, 1.0, np.nan]))
    (1.0, 1.0)
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan, math.nan
    random = np.random.default_rng(seed)
    size = max(1, CHUNK_VALUES // len(known))
    means = []
    for start in range(0, n, size):
        drawn = known[random.integers(len(known), size=(min(size, n - start), len(known)))]
        means.append(np.median(drawn, axis=1) if aggregate == "median" else drawn.mean(axis=1))
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail], method="nearest")
    return float(low), float(high)
