"""Rows that cannot be read, each with its reason, so that the others can be answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cel.preprocessing.category_codes import MISSING, UNKNOWN, encode_labels, has_labels
from cel.preprocessing.pipeline import PreprocessingPipeline
from cel.registry import did_you_mean
from cel.space import Feature

__all__ = ["Readable", "readable_rows"]


@dataclass(frozen=True, eq=False)
class Readable:
    """A table that the pipeline takes, and what had to be left out of it.

    Attributes:
        frame: (n, p) raw features; cells that cannot be read hold some value that can.
        problems: (n,) None, or the reason of a row's first such cell.
        unseen: (n, p) bool, categories that training rows do not have.
    """

    frame: pd.DataFrame
    problems: np.ndarray
    unseen: np.ndarray

    @property
    def bad(self) -> np.ndarray:
        """(n,) bool: rows with a problem."""
        return np.array([p is not None for p in self.problems], dtype=bool)


def readable_rows(frame: pd.DataFrame, pipeline: PreprocessingPipeline) -> Readable:
    """Find the cells that a fitted pipeline would refuse, column by column."""
    n, space = len(frame), pipeline.raw_space_
    problems = np.full(n, None, dtype=object)
    unseen = np.zeros((n, len(space)), dtype=bool)
    columns: dict[str, Any] = {}
    for j, f in enumerate(space):
        gaps = any(s.accepts_missing(f.name) for s in pipeline.steps_)
        raw = frame[f.name].reset_index(drop=True)
        if has_labels(f):
            column, unseen[:, j] = _labels(raw, f, gaps, problems)
        else:
            column = _numbers(raw, f, gaps, problems)
        columns[f.name] = column
    return Readable(pd.DataFrame(columns), problems, unseen)


def _numbers(raw: pd.Series, feature: Feature, gaps: bool, problems: np.ndarray) -> Any:
    dtype: Any = raw.dtype
    known = raw.notna().to_numpy(dtype=bool)
    if pd.api.types.is_numeric_dtype(dtype):
        numbers = raw
    else:
        numbers = pd.to_numeric(raw, errors="coerce")
        text = known & numbers.isna().to_numpy(dtype=bool)
        written = np.array([isinstance(v, str) for v in raw], dtype=bool)
        _tell(problems, text | (known & written), raw, "where numbers are expected")
    values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    endless = np.isinf(values)
    _tell(problems, endless, raw, "which is no finite number")
    if not gaps:
        _tell_gaps(problems, np.isnan(values) & ~known, feature.name)
    bad = endless | (np.isnan(values) & (known | (not gaps)))
    if not bad.any() and numbers is raw:
        return raw
    return np.where(bad, float(np.clip(0.0, feature.lower, feature.upper)), values)


def _labels(
    raw: pd.Series, feature: Feature, gaps: bool, problems: np.ndarray
) -> tuple[Any, np.ndarray]:
    codes = encode_labels(raw, feature.categories)
    unknown = codes == UNKNOWN
    if not gaps:
        _tell_gaps(problems, codes == MISSING, feature.name)
    if feature.kind == "ordinal" and unknown.any():
        hint = did_you_mean(str(raw[unknown].iloc[0]), map(str, feature.categories))
        _tell(problems, unknown, raw, f"which has no place in its order; {hint[:200]}")
    bad = unknown | ((codes == MISSING) & (not gaps))
    if not bad.any():
        return raw, unknown
    column = raw.astype(object)
    column[bad] = feature.categories[0]
    return column, unknown & (feature.kind != "ordinal")


def _tell(problems: np.ndarray, at: np.ndarray, raw: pd.Series, what: str) -> None:
    for row in np.flatnonzero(at):
        if problems[row] is None:
            value = raw.iloc[row]
            value = value.item() if isinstance(value, np.generic) else value
            problems[row] = f"column {raw.name!r} holds {value!r}, {what}"


def _tell_gaps(problems: np.ndarray, at: np.ndarray, name: str) -> None:
    for row in np.flatnonzero(at):
        if problems[row] is None:
            problems[row] = f"column {name!r} has no value here, but has one in every training row"
