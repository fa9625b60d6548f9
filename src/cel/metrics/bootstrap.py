"""Bootstrap intervals of means and medians."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import numpy as np

__all__ = ["bootstrap_interval"]

CHUNK_VALUES = 2**22
KEPT_VALUES = 2**16  # draws for so few values are kept: rankings ask for the same again and again


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
    small = n * len(known) <= KEPT_VALUES
    means = []
    for place in _kept_draws(len(known), n, seed) if small else _draws(len(known), n, seed):
        drawn = known[place]
        means.append(np.median(drawn, axis=1) if aggregate == "median" else drawn.mean(axis=1))
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail], method="nearest")
    return float(low), float(high)


def _draws(count: int, n: int, seed: int) -> Iterator[np.ndarray]:
    """Yield places (k, count) of resampled values, n rows of them in all."""
    random = np.random.default_rng(seed)
    size = max(1, CHUNK_VALUES // count)
    for start in range(0, n, size):
        yield random.integers(count, size=(min(size, n - start), count))


@lru_cache(maxsize=32)
def _kept_draws(count: int, n: int, seed: int) -> tuple[np.ndarray, ...]:
    return tuple(_draws(count, n, seed))
