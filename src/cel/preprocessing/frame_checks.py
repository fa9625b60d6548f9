"""Checks of a raw table against its feature space, with errors that name column, value and row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import DataError
from cel.preprocessing.category_codes import MISSING, UNKNOWN, has_labels
from cel.registry import did_you_mean
from cel.space import Feature

__all__ = ["check_columns", "check_labels", "check_numbers", "check_some_value"]

_LONGEST_HINT = 200


def check_columns(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Raise unless the columns of `frame` are exactly `names`, in any order."""
    names = list(names)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"column {twice[0]!r} occurs twice; rename or drop one of the two")
    missing = [n for n in names if n not in frame.columns]
    extra = [c for c in frame.columns if c not in names]
    if missing:
        hint = did_you_mean(missing[0], map(str, extra)) if extra else "add it to the table"
        raise DataError(f"column {missing[0]!r} is missing; {hint}")
    if extra:
        raise DataError(f"unknown column {extra[0]!r}; drop it or add a feature of this name")


def check_numbers(
    values: np.ndarray, raw: pd.Series, *, accepts_missing: bool, complete: bool
) -> None:
    """Raise if a number column holds an infinity, or NaN where no step takes it.

    Args:
        values: (n,) numbers.
        raw: (n,) the column they were read from, for the message.
        accepts_missing: whether some step handles missing values of this column.
        complete: whether a fitted imputer saw this column without missing values.
    """
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    bad = np.isinf(values) if accepts_missing else ~np.isfinite(values)
    if not bad.any():
        return
    value = float(values[bad][0])
    cure = "replace infinite values" if np.isinf(value) else _missing_cure(raw.name, complete)
    raise DataError(f"column {raw.name!r} holds {value} in row {_row(raw, bad)!r}; {cure}")


def check_labels(
    codes: np.ndarray,
    raw: pd.Series,
    feature: Feature,
    *,
    accepts_missing: bool,
    accepts_unknown: bool,
    complete: bool,
) -> None:
    """Raise if a label column holds a missing or an unlisted value that no step takes."""
    if not len(codes) or codes.min() >= 0:
        return
    unknown = codes == UNKNOWN
    if unknown.any() and not accepts_unknown:
        value = _plain(raw[unknown].iloc[0])
        hint = did_you_mean(str(value), map(str, feature.categories))
        hint = hint if len(hint) <= _LONGEST_HINT else hint[:_LONGEST_HINT] + " ..."
        raise DataError(
            f"column {feature.name!r} holds the unknown category {value!r} in row "
            f"{_row(raw, unknown)!r}; {hint} (OneHotEncoder(handle_unknown='ignore') accepts it)"
        )
    missing = codes == MISSING
    if missing.any() and not accepts_missing:
        cure = _missing_cure(feature.name, complete)
        row = _row(raw, missing)
        raise DataError(f"column {feature.name!r} has a missing value in row {row!r}; {cure}")


def check_some_value(values: np.ndarray, feature: Feature) -> None:
    """Raise if a column has no value at all."""
    missing = values == MISSING if has_labels(feature) else np.isnan(values)
    if missing.all():
        raise DataError(f"column {feature.name!r} has no value in any row; drop it")


def _missing_cure(name: Any, complete: bool) -> str:
    if not complete:
        return "add an Imputer or drop the rows"
    return (
        "the column was complete when the pipeline was fitted: drop the rows, or fit with "
        f"Imputer(features=[{name!r}, ...])"
    )


def _row(raw: pd.Series, bad: np.ndarray) -> Any:
    return _plain(raw.index[int(bad.argmax())])


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
