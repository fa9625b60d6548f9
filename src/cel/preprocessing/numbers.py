"""Number columns as arrays, and arrays as columns of their original dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cel.errors import DataError
from cel.space import Feature

__all__ = ["decode_numbers", "encode_numbers"]

_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty")
_WHOLE = 1e-6


def encode_numbers(values: pd.Series, name: str) -> np.ndarray:
    """Return a number column as an array (n,), a view where that is possible; missing is NaN.

    >>> encode_numbers(pd.Series([1, None], dtype="Int64"), "age").tolist()
    [1.0, nan]
    """
    dtype: Any = values.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        return values.to_numpy()
    if isinstance(dtype, np.dtype) and dtype.kind == "b":
        return values.to_numpy().astype(np.int8)
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    if pd.api.types.infer_dtype(values, skipna=True) in _NUMBERS or values.isna().all():
        return pd.to_numeric(values.astype(object)).to_numpy(dtype=np.float64)
    raise _not_numbers(values, name)


def _not_numbers(values: pd.Series, name: str) -> DataError:
    bad = values.notna()
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        text = bad & pd.to_numeric(values, errors="coerce").isna()
        bad = text if text.any() else bad
    row = values.index[bad.to_numpy(dtype=bool)][0]
    value = values[bad].iloc[0]
    return DataError(
        f"column {name!r} holds {value!r} in row {row!r}, but numbers are expected "
        f"(its dtype is {values.dtype}); convert it with pandas.to_numeric or declare the feature "
        "categorical"
    )


def decode_numbers(values: np.ndarray, feature: Feature, dtype: Any) -> Any:
    """Return decoded numbers (n,) on the grid of the raw feature, with their original dtype.

    Integer dtypes come back as such when every value is whole; a continuous feature that was read
    from whole numbers and now holds a fraction comes back as float64.

    >>> age = Feature(name="age", kind="integer", lower=18, upper=90, step=1)
    >>> decode_numbers(np.array([20.2, 30.9]), age, np.dtype("int64"))
    array([20, 31])
    """
    if feature.kind == "integer" and feature.step is not None:
        count = np.rint((values - feature.anchor) / feature.step)
        values = feature.anchor + feature.step * count
    if dtype == np.dtype(object):
        return values.astype(object)
    if pd.api.types.is_bool_dtype(dtype):
        return pd.array(np.rint(values) != 0, dtype=dtype).to_numpy()
    if pd.api.types.is_integer_dtype(dtype):
        return _whole(values, dtype)
    if isinstance(dtype, np.dtype) and dtype.kind == "f":
        return values.astype(dtype)
    return pd.Series(values).astype(dtype).array


def _whole(values: np.ndarray, dtype: Any) -> Any:
    known = values[~np.isnan(values)]
    size = np.abs(known).max(initial=1.0)
    whole = np.rint(values)
    if (np.abs(known - np.rint(known)) > _WHOLE * size).any():
        return values
    limits = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
    inside = known.size == 0 or (known.min() >= limits.min - 0.5 and known.max() <= limits.max)
    if isinstance(dtype, np.dtype) and len(known) == len(values):
        return whole.astype(dtype if inside else np.int64)
    if isinstance(dtype, np.dtype):
        return whole
    return pd.Series(whole).astype(dtype if inside else "Int64").array
