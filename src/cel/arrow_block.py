"""Tables inside other files, as blocks of Arrow; what they announce is checked before it is read.

A block is what `pyarrow.ipc.new_file` writes. Its batches may be compressed, and columns without
values need no bytes at all, so that a small block can announce any number of rows. The messages
of a block say so in their metadata (flatbuffers, of which only the fields below are read).
"""

from __future__ import annotations

import struct
from typing import Any

import pandas as pd

from cel.errors import StoreError

__all__ = ["read_block", "write_block"]

MAGIC = b"ARROW1\0\0"
MAX_BATCHES = 4096
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # kinds of messages


def write_block(table: Any) -> bytes:
    """Return an Arrow table as bytes, not compressed."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return bytes(sink.getvalue())


def read_block(data: bytes, rows: int) -> pd.DataFrame:
    """Return the table of a block that must have so many rows.

    Args:
        data: the bytes of `write_block`.
        rows: number of rows that it has to have.

    >>> import pyarrow as pa
    >>> read_block(write_block(pa.table({"a": [1, 2]})), 2)["a"].tolist()
    [1, 2]
    >>> read_block(write_block(pa.table({"a": [1, 2]})), 3)
    Traceback (most recent call last):
    cel.errors.StoreError: a table of 2 rows where 3 are expected
    """
    import pyarrow as pa

    announced = _announced(data)
    if announced != rows:
        raise StoreError(f"a table of {announced:,} rows where {rows:,} are expected")
    table = pa.ipc.open_file(data).read_all()
    for field in table.schema:
        _check_type(field.type)
    table.validate(full=True)
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _announced(data: bytes) -> int:
    """Return the number of rows that the batches of a block say they have."""
    import pyarrow as pa

    if data[: len(MAGIC)] != MAGIC:
        raise StoreError("a table is not written as a block of Arrow")
    reader, rows = pa.ipc.MessageReader.open_stream(data[len(MAGIC) :]), 0
    for number, message in enumerate(reader):
        if number > MAX_BATCHES:
            raise StoreError(f"a table in more than {MAX_BATCHES:,} batches")
        kind, batch = _batch_of(bytes(message.metadata))
        if kind == _SCHEMA:
            continue
        if batch is None or _field(*batch, 3) is not None:
            raise StoreError("a table that is compressed")
        length = _number(batch, 0, "<q")
        if length > 8 * len(data):  # dictionaries, too, need a bit for each of their values
            raise StoreError(f"a table of {length:,} values in {len(data):,} bytes")
        rows += length if kind == _BATCH else 0
    return rows


def _check_type(kind: Any) -> None:
    """Refuse types that need less memory in a block than in a table."""
    import pyarrow as pa

    fields = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_run_end_encoded(kind) or any(pa.types.is_null(f) for f in fields):
        raise StoreError(f"a table with a column of type {kind}")
    for inner in fields:
        _check_type(inner)


# -- flatbuffers: a table knows the places of its fields by a list of offsets --------------------

Place = tuple[bytes, int]  # the buffer, and where a table begins in it


def _batch_of(metadata: bytes) -> tuple[int, Place | None]:
    """Return the kind of a message and the batch in it."""
    message = metadata, _at(metadata, 0, "<I")
    kind, header = _number(message, 1, "<B"), _table(message, 2)
    if kind == _DICTIONARY and header is not None:
        header = _table(header, 1)
    return kind, header


def _at(data: bytes, place: int, form: str) -> int:
    if place < 0:
        raise StoreError("a table whose head is damaged")
    try:
        (value,) = struct.unpack_from(form, data, place)
    except struct.error:
        raise StoreError("a table whose head is damaged") from None
    return int(value)


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return where a field of a table is, None if the table has none."""
    offsets = table - _at(data, table, "<i")
    if 4 + 2 * number >= _at(data, offsets, "<H"):
        return None
    offset = _at(data, offsets + 4 + 2 * number, "<H")
    return table + offset if offset else None


def _number(table: Place, number: int, form: str) -> int:
    place = _field(*table, number)
    return 0 if place is None else _at(table[0], place, form)


def _table(table: Place, number: int) -> Place | None:
    place = _field(*table, number)
    return None if place is None else (table[0], place + _at(table[0], place, "<I"))
