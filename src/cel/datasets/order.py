"""An order of rows that depends on what they hold, not on where they stand in the file."""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["balanced_sample", "content_order", "random_sample"]


def content_order(frame: pd.DataFrame, y: np.ndarray) -> np.ndarray:
    """Return the permutation (n,) that sorts rows by the hash of their features and targets.

    Equal rows stay in file order, which is harmless: they cannot be told apart.

    >>> a = pd.DataFrame({"x": [1.0, 2.0, 3.0]})
    >>> b, y = a.iloc[::-1], np.array([0, 1, 0])
    >>> first, second = content_order(a, y), content_order(b, y[::-1])
    >>> a["x"].iloc[first].tolist() == b["x"].iloc[second].tolist()
    True
    """
    rows = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    targets = pd.util.hash_pandas_object(pd.DataFrame(y), index=False).to_numpy()
    return np.lexsort((targets, rows))


def random_sample(frame: pd.DataFrame, y: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return the sorted positions of `size` rows, the same ones for any order of the rows."""
    order = content_order(frame, y)
    return np.sort(np.random.default_rng(seed).permutation(order)[:size])


def balanced_sample(frame: pd.DataFrame, y: np.ndarray, seed: int) -> np.ndarray:
    """Return the sorted positions of as many rows of each class as the smallest class has."""
    order = np.random.default_rng(seed).permutation(content_order(frame, y))
    classes = pd.Series(y[order])
    size = int(classes.value_counts().min())
    return np.sort(order[(classes.groupby(classes).cumcount() < size).to_numpy()])
