"""Text files become one array per column, in blocks, so that memory stays near the result's."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.datasets.files import open_bytes
from cel.datasets.labels import Labels
from cel.datasets.specs import DatasetCard, ReadSpec
from cel.errors import DataError
from cel.protocols import Task
from cel.registry import did_you_mean

__all__ = ["Column", "Raw", "columns_of", "convert", "missing", "read_columns", "stack"]

_ROWS = 1 << 14  # rows of a block
_MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")


@dataclass(frozen=True)
class Column:
    """A column to read: its header, the name it gets, and its labels unless it holds numbers."""

    header: str
    name: str
    labels: Labels | None = None
    coerce: bool = False


def columns_of(card: DatasetCard) -> list[Column]:
    """Return the columns that a card needs: features first, then the target."""
    coerce = card.read.coerce
    found = [
        Column(
            f.header,
            f.name,
            Labels.of(f.header, f.categories) if f.is_label else None,
            f.header in coerce,
        )
        for f in card.features
    ]
    for name in card.target.columns:
        groups = tuple(c.values or (c.label,) for c in card.target.classes)
        labels = Labels(name, groups) if card.task is Task.CLASSIFICATION else None
        found.append(Column(name, name, labels, name in coerce))
    return found


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


def stack(parts: list[Raw]) -> Raw:
    """Put blocks or files one below the other; emptied on the way, so that memory is held once."""
    names = list(parts[0].values)
    values = {name: np.concatenate([p.values.pop(name) for p in parts]) for name in names}
    gaps = {name: sum(p.gaps[name] for p in parts) for name in names}
    rows = np.concatenate([p.rows for p in parts])
    return Raw(values, rows, gaps, sum(p.total for p in parts))


def read_columns(path: Path, columns: Sequence[Column], card: DatasetCard, form: str) -> Raw:
    """Read the columns of one file; `form` is "csv" or "arff".

    Columns of ARFF files are called by position: "0", "1", ...
    """
    header, start = _header(path, card.read, form)
    _check_header(path, header, columns, card)
    parts: list[Raw] = []
    first, drop = 0, card.rows.missing == "drop"
    try:
        for block in _blocks(path, header, start, columns, card.read):
            parts.append(convert(block, columns, str(path), drop=drop, first=first))
            first += len(block)
    except UnicodeDecodeError as error:
        raise DataError(_not_text(path, error)) from None
    except pd.errors.ParserError as error:
        text = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise DataError(f"{path}: {text}; check the file and `read.separator`") from None
    except DataError:
        raise
    except ValueError as error:
        raise _not_a_number(path, header, start, columns, card.read, error) from None
    if not first:
        raise DataError(f"{path}: holds a header but no rows; fetch it again")
    return stack(parts)


def _header(path: Path, read: ReadSpec, form: str) -> tuple[list[str], int]:
    """Return the column names and the number of lines before the first row."""
    try:
        with io.TextIOWrapper(open_bytes(path), encoding=read.encoding, newline="") as text:
            if form == "arff":
                return _arff_header(text)
            rows = csv.reader(
                text, delimiter=read.separator, skipinitialspace=read.skipinitialspace
            )
            first = next(rows, [])
            return [name.strip().removeprefix("\ufeff") for name in first], rows.line_num
    except UnicodeDecodeError as error:
        raise DataError(_not_text(path, error)) from None


def _arff_header(text: io.TextIOWrapper) -> tuple[list[str], int]:
    count = 0
    for number, line in enumerate(text, start=1):
        word = line.strip().lower()
        count += word.startswith("@attribute")
        if word.startswith("@data"):
            return [str(i) for i in range(count)], number
    return [], 0


def _check_header(
    path: Path, header: list[str], columns: Sequence[Column], card: DatasetCard
) -> None:
    twice = sorted({n for n in header if header.count(n) > 1})
    if twice:
        raise DataError(f"{path}: column {twice[0]!r} occurs twice; rename one of the two")
    for column in columns:
        if column.header not in header:
            role = "target column" if column.header in card.target.columns else "column"
            hint = did_you_mean(column.header, header)
            raise DataError(f"{path}: {role} {column.header!r} is missing; {hint}")
    known = {c.header for c in columns} | set(card.drop)
    for name in header:
        if name not in known:
            raise DataError(
                f"{path}: unknown column {name!r}; add it to the card under `features` or `drop`"
            )


def _blocks(
    path: Path, header: list[str], start: int, columns: Sequence[Column], read: ReadSpec
) -> Iterator[pd.DataFrame]:
    types: dict[str, Any] = {c.header: np.float64 for c in columns}
    types |= {c.header: "category" for c in columns if c.labels is not None}
    types |= {c.header: "str" for c in columns if c.coerce}
    with pd.read_csv(
        path,
        header=None,
        names=header,
        skiprows=start,
        usecols=[c.header for c in columns],
        dtype=types,
        sep=read.separator,
        encoding=read.encoding,
        skipinitialspace=read.skipinitialspace,
        keep_default_na=False,
        na_values={c.header: _missing(c, read) for c in columns},
        index_col=False,
        chunksize=_ROWS,
    ) as reader:
        yield from reader


def _missing(column: Column, read: ReadSpec) -> list[str]:
    """Return the words that mean missing, unless they are categories of the column."""
    words = {*_MISSING, *read.na_values}
    labels = () if column.labels is None else column.labels.values
    return sorted(words - {str(v) for group in labels for v in group})


def _not_text(path: Path, error: UnicodeDecodeError) -> str:
    bad = error.object[error.start : error.start + 1]
    return (
        f"{path}: byte {bad!r} is not {error.encoding} text; save the file as UTF-8 or name its "
        "encoding in the card (read: {encoding: latin-1})"
    )


def _not_a_number(
    path: Path,
    header: list[str],
    start: int,
    columns: Sequence[Column],
    read: ReadSpec,
    error: ValueError,
) -> DataError:
    """Read the numbers again as words, to name the first one that is not a number."""
    numbers = [c for c in columns if c.labels is None and not c.coerce]
    words = [Column(c.header, c.name, coerce=True) for c in numbers]
    for block in _blocks(path, header, start, words, read):
        for column in words:
            values = block[column.header]
            wrong = pd.to_numeric(values, errors="coerce").isna() & values.notna()
            if wrong.any():
                return DataError(
                    f"{path}: column {column.header!r} holds {values[wrong].iloc[0]!r} in row "
                    f"{block.index[wrong][0]} where a number is expected; declare it categorical, "
                    "or list the word under read.na_values or the column under read.coerce"
                )
    return DataError(f"{path}: cannot be read as a table ({error})")
