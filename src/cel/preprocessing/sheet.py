"""What a table says beyond its features: columns that only travel along, and their digits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from cel.space import FeatureSpace

__all__ = ["Sheet", "carried_columns", "decimals_of", "on_grids"]

MOST_DECIMALS = 9
FINEST_GRID = 1e-5  # of the range: what 32-bit codes of a grid can tell apart with ease
MANY_LEVELS = 50  # more levels than this in more than half of the rows are names, not categories
SAMPLE = 1000


@dataclass(frozen=True)
class Sheet:
    """The training table as its owner knows it.

    Attributes:
        names: the columns that the model is shown, in the owner's order.
        carried: those of them that are no features: dates, identifiers, free text, ...
        decimals: number column -> digits after the point of all its values.
    """

    names: tuple[str, ...]
    carried: tuple[str, ...] = ()
    decimals: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, frame: pd.DataFrame, carried: Collection[str] = ()) -> Sheet:
        """Read a training table.

        >>> Sheet.of(pd.DataFrame({"price": [9.99, 5.0], "id": ["a", "b"]}), ["id"]).decimals
        mappingproxy({'price': 2})
        """
        names = tuple(str(n) for n in frame.columns)
        kept = {n: decimals_of(frame[n]) for n in names if n not in carried}
        digits = {n: d for n, d in kept.items() if d is not None}
        return cls(names, tuple(n for n in names if n in carried), MappingProxyType(digits))

    def to_dict(self) -> dict[str, Any]:
        """Return the sheet as JSON values."""
        return {
            "names": list(self.names),
            "carried": list(self.carried),
            "decimals": dict(self.decimals),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Sheet:
        """Return the sheet that `to_dict` wrote."""
        digits = MappingProxyType(dict(data["decimals"]))
        return cls(tuple(data["names"]), tuple(data["carried"]), digits)


def decimals_of(values: pd.Series) -> int | None:
    """Return the digits after the point that all numbers of a column need, None for very many.

    >>> decimals_of(pd.Series([0.25, 3.5])), decimals_of(pd.Series([1, 2]))
    (2, 0)
    >>> decimals_of(pd.Series([1 / 3])) is None
    True
    """
    if pd.api.types.is_bool_dtype(values.dtype) or not pd.api.types.is_numeric_dtype(values.dtype):
        return None
    if pd.api.types.is_integer_dtype(values.dtype):
        return 0
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    if values.dtype == np.float32:  # 0.1 as a 32-bit number means 0.1
        numbers = np.array([float(str(v)) for v in values.to_numpy()[:SAMPLE]])
    numbers = numbers[np.isfinite(numbers)]
    for digits in range(MOST_DECIMALS + 1):
        few = numbers[:SAMPLE]
        if (np.round(few, digits) == few).all() and (np.round(numbers, digits) == numbers).all():
            return digits
    return None


def on_grids(space: FeatureSpace, decimals: Mapping[str, int]) -> FeatureSpace:
    """Give continuous raw features the grid of their column's digits where codes can hold it.

    A search then proposes what can be shown: cents for cents, whole numbers for whole numbers.
    """
    features = []
    for f in space:
        step = 10.0 ** -decimals[f.name] if f.name in decimals else None
        coarse = step is not None and step >= FINEST_GRID * max(f.upper - f.lower, step)
        if f.kind == "continuous" and f.step is None and coarse:
            f = replace(f, step=step, anchor=0.0)  # noqa: PLW2901
        features.append(f)
    return FeatureSpace(tuple(features), space.constraints)


def carried_columns(frame: pd.DataFrame, *, max_categories: int = 1000) -> tuple[str, ...]:
    """Return the columns that cannot be features: they only travel along with their rows.

    Dates and times, text with a value of its own for most rows, objects that are neither text
    nor numbers (`Decimal`), and columns without any value.

    >>> table = pd.DataFrame({"age": [30, 40], "born": pd.to_datetime(["1990-01-01"] * 2)})
    >>> carried_columns(table)
    ('born',)
    """
    return tuple(str(name) for name in frame.columns if _travels(frame[name], max_categories))


def _travels(values: pd.Series, max_categories: int) -> bool:
    dtype: Any = values.dtype
    if values.isna().all():
        return True
    if pd.api.types.is_bool_dtype(dtype):
        return False
    if pd.api.types.is_numeric_dtype(dtype):
        return pd.api.types.is_complex_dtype(dtype) or "decimal" in str(dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        return len(dtype.categories) > max_categories or not _plain(dtype.categories.tolist())
    if not (dtype == np.dtype(object) or pd.api.types.is_string_dtype(dtype)):
        return True
    try:
        levels = values.dropna().unique().tolist()
    except TypeError:  # lists and other things that cannot be compared
        return True
    many = len(levels) > MANY_LEVELS and 2 * len(levels) > len(values)
    return many or len(levels) > max_categories or not _plain(levels)


def _plain(levels: Sequence[Any]) -> bool:
    return all(isinstance(v, str | bool | int | float | np.generic) for v in levels)
