"""Text files become one array per column, in blocks, so that memory stays near the result's."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.datasets.files import HashedFile, check_digest, check_head, estimate_lines
from cel.datasets.raw import Column, RawBuffer, columns_of, convert
from cel.datasets.specs import DatasetCard, FileSpec, ReadSpec
from cel.errors import DataError
from cel.registry import did_you_mean

__all__ = ["read_file"]

_ROWS = 1 << 14  # rows of a block
_MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")


def read_file(path: Path, spec: FileSpec, form: str, card: DatasetCard, into: RawBuffer) -> None:
    """Append the columns that a card needs; `form` is "csv" or "arff".

    Columns of ARFF files are called by position: "0", "1", ... The file is hashed while it is
    read. If it is not the one that the card names, that is reported before anything else: it
    explains every other problem.
    """
    check_head(path)
    with HashedFile(path, spec.most) as file:
        try:
            _read(path, file, form, card, into)
        except DataError:
            check_digest(path, file.digest(), spec)
            raise
        check_digest(path, file.digest(), spec)


def _read(path: Path, file: HashedFile, form: str, card: DatasetCard, into: RawBuffer) -> None:
    columns, drop, before = columns_of(card), card.rows.missing == "drop", into.total
    header, start = _header(path, card.read, form)
    _check_header(path, header, columns, card)
    into.reserve(int(1.05 * estimate_lines(path)))
    try:
        for block in _blocks(file, header, start, columns, card.read):
            into.append(convert(block, columns, str(path), drop=drop, first=into.total))
    except UnicodeDecodeError as error:
        raise DataError(_not_text(path, error)) from None
    except pd.errors.ParserError as error:
        text = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise DataError(f"{path}: {text}; check the file and `read.separator`") from None
    except DataError:
        raise
    except ValueError as error:
        raise _not_a_number(path, header, start, columns, card.read, error) from None
    if into.total == before:
        raise DataError(f"{path}: holds a header but no rows; fetch it again")


def _header(path: Path, read: ReadSpec, form: str) -> tuple[list[str], int]:
    """Return the column names and the number of lines before the first row."""
    try:
        with (
            HashedFile(path) as file,
            io.TextIOWrapper(file.reader(), encoding=read.encoding, newline="") as text,
        ):
            if form == "arff":
                return _arff_header(text)
            rows = csv.reader(
                text, delimiter=read.separator, skipinitialspace=read.skipinitialspace
            )
            names = [name.strip().removeprefix("\ufeff") for name in next(rows, [])]
            lines = rows.line_num
            first = next(rows, [])
    except UnicodeDecodeError as error:
        raise DataError(_not_text(path, error)) from None
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as a table ({error})") from None
    if any(first[len(names) :]):  # pandas checks the length of all rows but the first
        raise DataError(
            f"{path}: the first row has {len(first)} values and the header {len(names)} names; "
            "check the file and `read.separator`"
        )
    return names, lines


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
    file: HashedFile, header: list[str], start: int, columns: Sequence[Column], read: ReadSpec
) -> Iterator[pd.DataFrame]:
    types: dict[str, Any] = {c.header: np.float64 for c in columns}
    types |= {c.header: "category" for c in columns if c.labels is not None}
    verbatim = [c.header for c in columns if c.coerce or (c.labels and c.labels.verbatim)]
    types |= dict.fromkeys(verbatim, "str")
    with pd.read_csv(
        file.reader(),
        header=None,
        names=header,  # all of them: with `usecols` pandas accepts rows that are too long
        skiprows=start,
        dtype=types,
        sep=read.separator,
        encoding=read.encoding,
        skipinitialspace=read.skipinitialspace,
        keep_default_na=False,
        na_values={c.header: _missing(c, read) for c in columns},
        index_col=False,
        chunksize=_ROWS,
        low_memory=False,
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
    with HashedFile(path) as file:
        for block in _blocks(file, header, start, words, read):
            for name in (c.header for c in words):
                values = block[name]
                wrong = pd.to_numeric(values, errors="coerce").isna() & values.notna()
                if wrong.any():
                    return DataError(
                        f"{path}: column {name!r} holds {values[wrong].iloc[0]!r} in row "
                        f"{block.index[wrong][0]} where a number is expected; declare it "
                        "categorical, or list the word under read.na_values or the column under "
                        "read.coerce"
                    )
    return DataError(f"{path}: cannot be read as a table ({error})")
