"""The columns of a raw table: their order, dtypes and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import DataError
from cel.preprocessing.category_codes import decode_labels, encode_labels, has_labels
from cel.preprocessing.frame_checks import check_columns, check_labels, check_numbers
from cel.preprocessing.numbers import decode_numbers, encode_numbers
from cel.preprocessing.step import Columns, Step
from cel.space import FeatureSpace
from cel.space.serialize import plain_label

__all__ = ["Schema", "as_frame", "as_matrix", "to_array"]


def as_frame(data: Any, names: Sequence[str]) -> pd.DataFrame:
    """Return raw rows as a DataFrame; arrays (n, p) have their columns in the order of `names`."""
    if isinstance(data, pd.DataFrame):
        return data
    array = to_array(data)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise DataError(
            f"expected a DataFrame or an array with {len(names)} columns, got "
            f"{type(data).__name__} of shape {array.shape}"
        )
    return pd.DataFrame(array, columns=list(names)).infer_objects()


def as_matrix(x: Any, width: int) -> np.ndarray:
    """Return encoded rows as an array (n, width) of finite numbers."""
    array = to_array(x)
    if array.ndim != 2 or array.shape[1] != width:
        raise DataError(f"expected encoded rows of {width} columns, got shape {array.shape}")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        row = int((~finite).argmax())
        raise DataError(f"encoded row {row} holds NaN or an infinity; decode only finite rows")
    return array


def to_array(data: Any) -> np.ndarray:
    """Return an array; tensors are told by what they can do, so that torch stays unloaded."""
    return np.asarray(data.detach().cpu().numpy() if hasattr(data, "detach") else data)


@dataclass(frozen=True)
class Schema:
    """Turns raw tables into columns of numbers and codes, and back.

    Attributes:
        space: the raw features.
        dtypes: column name -> pandas dtype, in table order.
    """

    space: FeatureSpace
    dtypes: Mapping[str, Any]

    @classmethod
    def of(cls, frame: pd.DataFrame, space: FeatureSpace) -> Schema:
        """Take order and dtypes from a table with the columns of `space`."""
        check_columns(frame, space.names)
        return cls(space, {str(n): frame[n].dtype for n in frame.columns})

    def read(self, frame: pd.DataFrame, steps: Sequence[Step]) -> Columns:
        """Return numbers and codes, in the order of the space; what no step accepts is refused."""
        check_columns(frame, self.space.names)
        complete = any(s.stage == 0 and hasattr(s, "features_") for s in steps)
        columns: Columns = {}
        for f in self.space:
            raw = frame[f.name]
            gaps = any(s.accepts_missing(f.name) for s in steps)
            if not has_labels(f):
                columns[f.name] = encode_numbers(raw, f.name)
                check_numbers(columns[f.name], raw, accepts_missing=gaps, complete=complete)
                continue
            columns[f.name] = encode_labels(raw, f.categories)
            check_labels(
                columns[f.name],
                raw,
                f,
                accepts_missing=gaps,
                accepts_unknown=any(s.accepts_unknown(f.name) for s in steps),
                complete=complete,
            )
        return columns

    def write(self, columns: Columns, index: Any = None) -> pd.DataFrame:
        """Return a table in the original order and dtypes from raw numbers and codes."""
        values = {}
        rows = pd.RangeIndex(len(next(iter(columns.values()), ())))
        for name, dtype in self.dtypes.items():
            f = self.space[name]
            if has_labels(f):
                column = decode_labels(columns[name], f.categories, dtype)
            else:
                column = decode_numbers(columns[name].astype(np.float64), f, dtype)
            values[name] = pd.Series(column, rows, column.dtype)  # no guess about objects
        frame = pd.DataFrame(values)
        if index is not None:
            frame.index = pd.Index(index)
        return frame

    def dtypes_to_dict(self) -> dict[str, Any]:
        """Return the dtypes as JSON values."""
        return {name: _dtype_to_plain(dtype) for name, dtype in self.dtypes.items()}

    @classmethod
    def from_dict(cls, space: FeatureSpace, dtypes: Mapping[str, Any]) -> Schema:
        """Return the schema with the dtypes that `dtypes_to_dict` wrote."""
        return cls(space, {name: _dtype_from_plain(d) for name, d in dtypes.items()})


def _dtype_to_plain(dtype: Any) -> Any:
    if isinstance(dtype, pd.CategoricalDtype):
        labels = [plain_label(c) for c in dtype.categories]
        of = _dtype_to_plain(dtype.categories.dtype)
        return {"categories": labels, "of": of, "ordered": bool(dtype.ordered)}
    if isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA:
        return f"string[{dtype.storage}]"
    return str(dtype)


def _dtype_from_plain(data: Any) -> Any:
    if isinstance(data, str):
        return pd.api.types.pandas_dtype(data)
    labels = pd.Index(data["categories"], dtype=_dtype_from_plain(data["of"]))
    return pd.CategoricalDtype(labels, ordered=data["ordered"])
