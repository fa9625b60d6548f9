"""Results as parquet files and JSON documents."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.arrow_block import read_block, write_block
from cel.errors import StoreError
from cel.preprocessing.encoding import row_labels
from cel.protocols import Proof, Status, Task
from cel.result import ExplanationResult
from cel.space import FeatureSpace, Target
from cel.space.serialize import space_from_dict, space_to_dict

__all__ = [
    "from_document",
    "from_text",
    "read_parquet",
    "reasons_table",
    "to_document",
    "write_parquet",
]

FORMAT = "cel.result"
VERSION = 1
MAX_VALUES = 2**28  # numbers in one result, about 1 GiB
MAX_SIZE = 2**30
MAX_TEXT = 2**20
MAX_GROUPS, MAX_COLUMNS = 4096, 64
_DAMAGE = (
    ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip
_ROWS = ("x_origs", "x_cfs", "y_origs", "y_cf_targets", "y_cfs")
_PROOFS = ("bound", "proof")  # written only where a method gives them
_WORDS = ("source_id", "status", "proof")  # columns of texts that repeat


def reasons_table(result: ExplanationResult) -> pd.DataFrame:
    """Return what a stored result knows of its rows without an answer, one line each."""
    rows = np.flatnonzero(result.unanswered)
    why = np.full(len(result), None) if result.reasons is None else result.reasons
    return pd.DataFrame(
        {
            "row": result.source_ids[rows],
            "status": result.status[rows],
            "proved": result.status[rows] == Status.INFEASIBLE.value,
            "reason": why[rows],
        }
    )


def _header(result: ExplanationResult) -> dict[str, Any]:
    target, pipeline = result.target, result.pipeline
    table = {} if result.rows is None else {"rows": base64.b64encode(_table(result.rows)).decode()}
    sheet = {} if result.sheet is None else {"sheet": result.sheet.to_dict()}
    reasons = {} if result.reasons is None else {"reasons": result.reasons.tolist()}
    return (
        table
        | sheet
        | reasons
        | {
            "format": FORMAT,
            "version": VERSION,
            "method": result.method,
            "task": result.task.value,
            "space": space_to_dict(result.space),
            "pipeline": None if pipeline is None else pipeline.to_dict(),
            "target": None if target is None else _target_to_dict(target),
            "params": json.loads(json.dumps(dict(result.params), default=str)),
            "seconds": {k: float(v) for k, v in result.seconds.items()},
            "logs": json.loads(json.dumps(dict(result.logs), default=str)),
            "set_size": 0 if result.x_sets is None else result.x_sets.shape[1],
        }
    )


def _target_to_dict(target: Target) -> dict[str, Any]:
    classes = [c.item() if isinstance(c, np.generic) else c for c in target.classes]
    desired = target.desired.item() if isinstance(target.desired, np.generic) else target.desired
    return {
        "names": list(target.names),
        "task": target.task.value,
        "classes": classes,
        "desired": desired,
        "lower": list(target.lower),
        "upper": list(target.upper),
    }


def _target_from_dict(d: dict[str, Any]) -> Target:
    return Target(
        names=tuple(d["names"]),
        task=Task(d["task"]),
        classes=tuple(d["classes"]),
        desired=d["desired"],
        lower=tuple(d["lower"]),
        upper=tuple(d["upper"]),
    )


def _from_header(header: dict[str, Any], n: int) -> dict[str, Any]:
    """Return the fields of a result of `n` rows that its header holds."""
    from cel.preprocessing import PreprocessingPipeline, Sheet

    if header.get("format") != FORMAT:
        raise StoreError("this is not a stored explanation result")
    if header["version"] > VERSION:
        raise StoreError(f"format version {header['version']} is newer than {VERSION}; update CEL")
    Task(header["task"])
    pipeline, target = header["pipeline"], header["target"]
    space: FeatureSpace = space_from_dict(header["space"])
    return {
        "method": header["method"],
        "space": space,
        "pipeline": None if pipeline is None else PreprocessingPipeline.from_dict(pipeline),
        "target": None if target is None else _target_from_dict(target),
        "sheet": Sheet.from_dict(header["sheet"]) if "sheet" in header else None,
        "rows": _rows_of(header.get("rows"), n),
        "reasons": _reasons_of(header.get("reasons")),
        "params": header["params"],
        "seconds": header["seconds"],
        "logs": header["logs"],
    }


def _table(rows: pd.DataFrame) -> bytes:
    """Return the owner's rows as an Arrow file: dtypes, index and order of columns included."""
    import pyarrow as pa

    try:
        table = pa.Table.from_pandas(rows, preserve_index=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        table = pa.Table.from_pandas(_as_text(rows), preserve_index=True)
    return write_block(table)


def _as_text(rows: pd.DataFrame) -> pd.DataFrame:
    """Write objects that Arrow does not know as text."""
    odd = {n: rows[n].map(str) for n in rows.columns if rows[n].dtype == object}
    return rows.assign(**odd)


def _rows_of(text: str | None, n: int) -> pd.DataFrame | None:
    return None if text is None else read_block(base64.b64decode(text), n)


def _ids(stored: list[Any], rows: pd.DataFrame | None) -> np.ndarray:
    """Return row labels: those of the owner's rows where these are stored."""
    return np.array(stored) if rows is None else row_labels(rows.index)


def _reasons_of(reasons: list[str | None] | None) -> np.ndarray | None:
    if reasons is None:
        return None
    out = np.full(len(reasons), None, dtype=object)
    out[:] = reasons
    return out


def to_document(result: ExplanationResult) -> dict[str, Any]:
    """Return the result as plain JSON values; NaN becomes null."""
    document = _header(result)
    for name in (*_ROWS, "x_sets"):
        values = getattr(result, name)
        document[name] = None if values is None else _nullable(values)
    groups = result.cf_group_ids
    document["cf_group_ids"] = None if groups is None else groups.tolist()
    if result.bound is not None:
        document["bound"] = _nullable(result.bound)
    if result.proof is not None:
        document["proof"] = [str(p) for p in result.proof]
    document["status"] = [str(s) for s in result.status]
    document["source_ids"] = [_plain(i) for i in result.source_ids]
    return document


def _plain(value: Any) -> Any:
    """Return a row label as a plain value; dates and others that JSON lacks as text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _nullable(values: np.ndarray) -> Any:
    if values.dtype.kind != "f":
        return values.tolist()
    out = values.astype(object)
    out[np.isnan(values)] = None
    return out.tolist()


def from_text(text: str) -> ExplanationResult:
    """Rebuild a result from JSON text."""
    with _damage("the text"):
        document = json.loads(text)
    return from_document(document)


def from_document(document: dict[str, Any]) -> ExplanationResult:
    """Rebuild a result from the values of `to_document`."""
    with _damage("the document"):
        return _from_document(document)


@contextmanager
def _damage(where: str) -> Iterator[None]:
    """Let every way in which stored values can be wrong be one error that names the file."""
    import pyarrow as pa

    try:
        yield
    except StoreError as error:
        raise StoreError(f"{where}: {error}") from None
    except (*_DAMAGE, pa.ArrowException) as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise StoreError(
            f"{where} is damaged or was not written by CEL ({reason}); compute it again"
        ) from error


def _from_document(document: dict[str, Any]) -> ExplanationResult:
    n = len(document.get("status", ()))
    fields = _from_header(document, n)
    whole = document["task"] == Task.CLASSIFICATION.value
    width = fields["space"].width
    kinds = {"x_origs": np.float32, "x_cfs": np.float32, "x_sets": np.float32}
    for name in (*_ROWS, "x_sets"):
        if document[name] is None:
            continue
        kind = kinds.get(name, np.int64 if whole else np.float64)
        fields[name] = np.array(document[name], dtype=kind)
        if name in ("x_origs", "x_cfs"):
            fields[name] = fields[name].reshape(n, width)
    if document["cf_group_ids"] is not None:
        fields["cf_group_ids"] = np.array(document["cf_group_ids"], dtype=np.int64)
    for name, form in zip(_PROOFS, ("f8", "O"), strict=True):
        if document.get(name) is not None:
            fields[name] = np.array(document[name], dtype=form)
    fields["status"] = np.array(document["status"], dtype=object)
    fields["source_ids"] = _ids(document["source_ids"], fields["rows"])
    return _checked(fields)


def _checked(fields: dict[str, Any]) -> ExplanationResult:
    """Build a result from stored fields, if words and positions are such as can be."""
    for name, words in (("status", Status), ("proof", Proof)):
        known = [word.value for word in words]
        wrong = [v for v in fields.get(name, ()) if v not in known]
        if wrong:
            raise StoreError(f"unknown {name} {str(wrong[0])[:40]!r}")
    if not isinstance(fields["method"], str):
        raise StoreError("the name of the method is no text")
    if any(not isinstance(fields[name], dict) for name in ("params", "seconds", "logs")):
        raise StoreError("params, seconds and logs are no mappings")
    n, sets, groups = len(fields["x_origs"]), fields.get("x_sets"), fields.get("cf_group_ids")
    width = fields["space"].width
    if sets is not None and (sets.ndim, len(sets), sets.shape[-1]) != (3, n, width):
        raise StoreError(f"x_sets has shape {sets.shape}")
    if groups is not None and groups.shape != (n,):
        raise StoreError(f"cf_group_ids has shape {groups.shape}")
    target = fields["target"]
    classes = len(target.classes) if target is not None and target.classes else 2**31
    for name, least in (("y_origs", 0), ("y_cf_targets", 0), ("y_cfs", -1)):
        values = fields[name]
        if values.ndim == 1 and not ((values >= least) & (values < classes)).all():
            raise StoreError(f"{name} names a class that is not there")
    return ExplanationResult(**fields)


def write_parquet(result: ExplanationResult, path: Path) -> None:
    """Write one parquet file with the header in its metadata, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {
        "source_id": _ids_to_arrow(result.source_ids),
        "status": pa.array([str(s) for s in result.status]),
    }
    for name in (*_ROWS, "x_sets", "cf_group_ids"):
        values = getattr(result, name)
        if values is not None:
            columns[name] = _to_arrow(values)
    if result.bound is not None:
        columns["bound"] = _to_arrow(result.bound.astype(np.float64))
    if result.proof is not None:
        columns["proof"] = pa.array([str(p) for p in result.proof])
    header = json.dumps(_header(result)).encode()
    table = pa.table(columns).replace_schema_metadata({b"cel": header})
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        # numbers as they are: looking for repeated ones takes longer than it saves
        words = [name for name in _WORDS if name in columns]
        pq.write_table(table, temporary, compression="zstd", use_dictionary=words)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _ids_to_arrow(ids: np.ndarray) -> Any:
    import pyarrow as pa

    try:
        return pa.array([i.item() if isinstance(i, np.generic) else i for i in ids])
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # tuples of a MultiIndex, mixed types
        return pa.array([str(i) for i in ids])


def _to_arrow(values: np.ndarray) -> Any:
    import pyarrow as pa

    flat = pa.array(np.ascontiguousarray(values).ravel())
    size = int(np.prod(values.shape[1:], dtype=int))
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, size)


def read_parquet(path: Path) -> ExplanationResult:
    """Read a file written by `write_parquet`."""
    with _damage(str(path)):
        return _read_parquet(path)


def _read_parquet(path: Path) -> ExplanationResult:
    import pyarrow.parquet as pq

    if not path.is_file():
        raise StoreError("there is no such file")
    with pq.ParquetFile(path) as file:
        header = json.loads(_header_text(file))
        table = file.read()
    fields = _from_header(header, table.num_rows)
    for name in (*_ROWS, "x_sets", "cf_group_ids"):
        if name in table.column_names:
            fields[name] = _from_arrow(table[name], header["set_size"] if name == "x_sets" else 0)
    for name, form in zip(_PROOFS, ("f8", "O"), strict=True):
        if name in table.column_names:
            fields[name] = np.array(table[name].to_pylist(), dtype=form)
    fields["status"] = np.array(table["status"].to_pylist(), dtype=object)
    fields["source_ids"] = _ids(table["source_id"].to_pylist(), fields["rows"])
    return _checked(fields)


def _header_text(file: Any) -> bytes:
    """Return the header of a parquet file, if what it announces fits into memory."""
    meta = file.metadata
    header: bytes = (meta.metadata or {})[b"cel"]
    groups = [meta.row_group(i) for i in range(min(meta.num_row_groups, MAX_GROUPS + 1))]
    columns = [g.column(i) for g in groups for i in range(min(g.num_columns, MAX_COLUMNS + 1))]
    values = sum(c.num_values for c in columns)
    size = sum(c.total_uncompressed_size for c in columns)
    many = meta.num_row_groups > MAX_GROUPS or meta.num_columns > MAX_COLUMNS
    if many or values > MAX_VALUES or size > MAX_SIZE or len(header) > MAX_SIZE // 16:
        raise StoreError(
            f"it announces {values:,} values in {size:,} bytes, more than a result can have"
        )
    _check_texts(file, meta.num_rows)
    return header


def _check_texts(file: Any, rows: int) -> None:
    """Refuse long texts, which a dictionary in the file can repeat in every row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in ("status", "proof", "source_id"):
        position = file.schema_arrow.get_field_index(name)
        if position < 0 or not pa.types.is_string(file.schema_arrow.field(position).type):
            continue
        shape = file.metadata.row_group(0).column(position) if rows else None
        if shape is not None and shape.total_uncompressed_size > MAX_TEXT:
            for batch in file.iter_batches(batch_size=1024, columns=[name]):
                longest = pc.max(pc.binary_length(batch.column(0))).as_py() or 0
                if longest * rows > MAX_SIZE:
                    raise StoreError(f"{name} holds texts of {longest:,} characters")


def _from_arrow(column: Any, set_size: int) -> np.ndarray:
    import pyarrow as pa

    array = column.combine_chunks()
    if not pa.types.is_fixed_size_list(array.type):
        return np.array(array.to_numpy(zero_copy_only=False))
    flat = array.values.to_numpy(zero_copy_only=False)
    rows = np.array(flat).reshape(len(array), array.type.list_size)
    return rows.reshape(len(rows), set_size, -1) if set_size else rows
