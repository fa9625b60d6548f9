"""Columns as they were read, before they are checked against a card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cel.datasets.labels import Labels
from cel.datasets.specs import DatasetCard
from cel.protocols import Task

__all__ = ["Column", "Raw", "RawBuffer", "columns_of", "convert", "missing"]

_GROWTH = 1.25


@dataclass(frozen=True)
class Column:
    """A column to read: its header, the name it gets, and its labels unless it holds numbers."""

    header: str
    name: str
    labels: Labels | None = None
    coerce: bool = False


@dataclass(frozen=True)
class Raw:
    """Columns as they were read.

    Attributes:
        values: name -> (n,) float64 numbers (NaN is missing) or int16 positions (-1 is missing).
        rows: (n,) row numbers in the file.
        gaps: name -> number of missing values, dropped rows included.
        total: number of rows, dropped ones included.
    """

    values: dict[str, np.ndarray]
    rows: np.ndarray
    gaps: dict[str, int]
    total: int


def columns_of(card: DatasetCard) -> list[Column]:
    """Return the columns that a card needs: features first, then the target."""
    coerce = card.read.coerce
    found = []
    for f in card.features:
        labels = Labels.of(f.header, f.categories) if f.is_label else None
        found.append(Column(f.header, f.name, labels, f.header in coerce))
    for name in card.target.columns:
        groups = tuple(c.values or (c.label,) for c in card.target.classes)
        labels = Labels(name, groups) if card.task is Task.CLASSIFICATION else None
        found.append(Column(name, name, labels, name in coerce))
    return found


def missing(column: np.ndarray) -> np.ndarray:
    """Tell where a column has no value, shape (n,)."""
    return np.isnan(column) if column.dtype.kind == "f" else column < 0


def convert(
    frame: pd.DataFrame, columns: Sequence[Column], where: str, *, drop: bool, first: int = 0
) -> Raw:
    """Convert a block of rows whose first one is number `first`; `drop` leaves out gaps."""
    values = {c.name: _convert(frame[c.header], c, where) for c in columns}
    rows = np.arange(first, first + len(frame))
    holes = {name: missing(column) for name, column in values.items()}
    gaps = {name: int(hole.sum()) for name, hole in holes.items()}
    if drop and any(gaps.values()):
        keep = np.flatnonzero(~np.logical_or.reduce(list(holes.values())))
        values = {name: column[keep] for name, column in values.items()}
        rows = rows[keep]
    return Raw(values, rows, gaps, len(frame))


def _convert(values: pd.Series, column: Column, where: str) -> np.ndarray:
    if column.labels is not None:
        return column.labels.codes(values, where)
    if column.coerce:
        values = pd.to_numeric(values, errors="coerce")
    return values.to_numpy(dtype=np.float64)


class RawBuffer:
    """Blocks put one below the other, in arrays that are reserved beforehand or grow in place."""

    def __init__(self) -> None:
        self._arrays: dict[str | None, np.ndarray] = {}  # None: the row numbers
        self._gaps: dict[str, int] = {}
        self._size = self._reserved = 0
        self.total = 0

    def reserve(self, rows: int) -> None:
        """Expect about so many more rows; reserved memory costs nothing until it is written."""
        self._reserved = self._size + rows

    def append(self, block: Raw) -> None:
        """Add the rows of a block."""
        size = self._size + len(block.rows)
        for name, values in ((None, block.rows), *block.values.items()):
            array = self._arrays.get(name)
            if array is None:
                array = np.empty(max(size, self._reserved), dtype=values.dtype)
                self._arrays[name] = array
            if size > len(array):
                array.resize(max(size, int(_GROWTH * len(array))), refcheck=False)
            array[self._size : size] = values
        for name, count in block.gaps.items():
            self._gaps[name] = self._gaps.get(name, 0) + count
        self._size = size
        self.total += block.total

    def finish(self) -> Raw:
        """Return all rows; the buffer must not be used any more."""
        for array in self._arrays.values():
            array.resize(self._size, refcheck=False)
        rows = self._arrays.pop(None)
        values = {name: array for name, array in self._arrays.items() if name is not None}
        return Raw(values, rows, self._gaps, self.total)
