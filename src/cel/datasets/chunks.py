"""Tables of any size, a part at a time: CSV and parquet files, or any iterable of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import ConfigError, DataError

__all__ = ["read_table", "table_chunks"]

CSV = (".csv", ".csv.gz", ".tsv")
PARQUET = (".parquet", ".pq")


def table_chunks(
    source: str | Path | pd.DataFrame | Iterable[pd.DataFrame],
    chunk: int = 10_000,
    *,
    kinds: Mapping[str, Any] | None = None,
) -> Iterator[pd.DataFrame]:
    """Yield the rows of a source in tables of at most `chunk` rows.

    Files are read a part at a time, so that memory does not grow with them.

    Args:
        source: the path of a CSV or parquet file, a table, or an iterable of tables.
        chunk: rows of a part.
        kinds: column -> dtype that a CSV file cannot tell, such as str for digits of an id.

    >>> [len(part) for part in table_chunks(pd.DataFrame({"a": range(5)}), 2)]
    [2, 2, 1]
    """
    if isinstance(chunk, bool) or not isinstance(chunk, int | np.integer) or chunk < 1:
        raise ConfigError(f"chunk is {chunk!r}; give a whole number of rows, 1 or more")
    size = int(chunk)
    if isinstance(source, pd.DataFrame):
        yield from (source.iloc[i : i + size] for i in range(0, len(source), size))
    elif isinstance(source, str | Path):
        yield from _file_chunks(Path(source), size, kinds)
    else:
        for part in source:
            if not isinstance(part, pd.DataFrame):
                raise DataError(f"expected tables to explain, got a {type(part).__name__}")
            yield from (part.iloc[i : i + size] for i in range(0, len(part), size))


def read_table(path: str | Path, *, kinds: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Return a whole CSV or parquet file; problems name the file."""
    parts = list(_file_chunks(Path(path), 1_000_000, kinds))
    if not parts:
        raise DataError(f"{path}: a table without rows")
    return parts[0] if len(parts) == 1 else pd.concat(parts)


def _file_chunks(
    path: Path, chunk: int, kinds: Mapping[str, Any] | None
) -> Iterator[pd.DataFrame]:
    name = path.name.lower()
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    if name.endswith(PARQUET):
        yield from _parquet(path, chunk)
    elif name.endswith(CSV):
        yield from _csv(path, chunk, kinds)
    else:
        raise DataError(f"{path}: unknown kind of table; give a file ending in .csv or .parquet")


def _csv(path: Path, chunk: int, kinds: Mapping[str, Any] | None) -> Iterator[pd.DataFrame]:
    from cel.datasets.guess import check_text

    try:
        check_text(path)
        separator = "\t" if path.name.lower().endswith(".tsv") else ","
        reader = pd.read_csv(
            path, sep=separator, chunksize=chunk, dtype=dict(kinds or {}), skipinitialspace=True
        )
        with reader:
            yield from reader
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason}); save it as UTF-8") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(f"{path}: cannot be read as CSV ({error})") from None


def _parquet(path: Path, chunk: int) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    start = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=chunk):
                part = pa.Table.from_batches([batch]).to_pandas()
                if isinstance(part.index, pd.RangeIndex):
                    part.index = pd.RangeIndex(start, start + len(part))
                start += len(part)
                yield part
    except pa.ArrowException as error:
        raise DataError(f"{path}: cannot be read as parquet ({str(error)[:200]})") from None
