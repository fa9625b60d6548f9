"""Cells of pandas columns: which are equal, and new ones put in without touching the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

__all__ = ["equal_cells", "put_cells"]


def equal_cells(before: pd.Series, values: Any) -> np.ndarray:
    """(n,) bool: which values equal the cells of a column; two gaps are equal.

    >>> equal_cells(pd.Series([1, 2]), np.array([1.0, 3.0])).tolist()
    [True, False]
    """
    plain = isinstance(before.dtype, np.dtype) and before.dtype.kind in "iuf"
    if plain and isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        had = before.to_numpy()
        return np.asarray((had == values) | ((had != had) & (values != values)))
    old, new = before.astype(object).to_numpy(), pd.Series(values).astype(object).to_numpy()
    gap_old, gap_new = pd.isna(old), pd.isna(new)
    out = np.asarray(gap_old & gap_new)
    both = ~gap_old & ~gap_new
    out[both] = np.asarray(old[both] == new[both], dtype=bool)
    return out


def put_cells(before: pd.Series, at: np.ndarray, values: Any) -> pd.Series:
    """Return the column with some cells replaced and its dtype kept wherever it can hold them.

    >>> column, at = pd.Series([10**15 + 1, 2]), np.array([False, True])
    >>> put_cells(column, at, np.array([0.0, 5.0])).tolist()
    [1000000000000001, 5]
    """
    if not at.any():
        return before
    new = pd.Series(values).astype(object).to_numpy()[at]
    dtype: Any = before.dtype
    if isinstance(dtype, np.dtype):
        return _put_numpy(before, at, new, dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        extra = [v for v in dict.fromkeys(new.tolist()) if v not in dtype.categories]
        before = before.cat.add_categories(extra) if extra else before
    out = before.array.copy()
    if pd.api.types.is_integer_dtype(dtype) and not all(float(v).is_integer() for v in new):
        return _put_numpy(before, at, new, np.dtype(object))
    if pd.api.types.is_integer_dtype(dtype):
        new = np.array([int(v) for v in new], dtype=object)
    out[at] = new.tolist()
    return pd.Series(out, index=before.index, name=before.name)


def _put_numpy(before: pd.Series, at: np.ndarray, new: np.ndarray, dtype: Any) -> pd.Series:
    kept = before.to_numpy() if isinstance(before.dtype, np.dtype) else before.array
    if dtype.kind in "iu":
        whole = all(float(v).is_integer() for v in new)
        limits = np.iinfo(dtype)
        if not whole:
            dtype = np.dtype(object)  # a float column could not hold large integers untouched
        elif not all(limits.min <= int(v) <= limits.max for v in new):
            dtype = np.dtype(np.int64)
        new = np.array([int(v) for v in new], dtype=object) if whole else new
    elif dtype.kind == "b" and not all(isinstance(v, bool | np.bool_) for v in new):
        dtype = np.dtype(object)
    elif dtype.kind == "f":
        new = new.astype(dtype)
    out = np.array(kept, dtype=dtype, copy=True)
    out[at] = new
    return pd.Series(out, index=before.index, name=before.name, dtype=out.dtype)
