"""Results as parquet files and JSON documents."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import StoreError
from cel.preprocessing.encoding import row_labels
from cel.protocols import Task
from cel.result import ExplanationResult
from cel.space import FeatureSpace, Target
from cel.space.serialize import space_from_dict, space_to_dict

__all__ = ["from_document", "read_parquet", "to_document", "write_parquet"]

FORMAT = "cel.result"
VERSION = 1
_ROWS = ("x_origs", "x_cfs", "y_origs", "y_cf_targets", "y_cfs")
_PROOFS = ("bound", "proof")  # written only where a method gives them


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


def _from_header(header: dict[str, Any]) -> dict[str, Any]:
    from cel.preprocessing import PreprocessingPipeline, Sheet

    if header.get("format") != FORMAT:
        raise StoreError("this is not a stored explanation result")
    if header["version"] > VERSION:
        raise StoreError(f"format version {header['version']} is newer than {VERSION}; update CEL")
    pipeline, target = header["pipeline"], header["target"]
    space: FeatureSpace = space_from_dict(header["space"])
    return {
        "method": header["method"],
        "space": space,
        "pipeline": None if pipeline is None else PreprocessingPipeline.from_dict(pipeline),
        "target": None if target is None else _target_from_dict(target),
        "sheet": Sheet.from_dict(header["sheet"]) if "sheet" in header else None,
        "rows": _rows_of(header.get("rows")),
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
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return bytes(sink.getvalue())


def _as_text(rows: pd.DataFrame) -> pd.DataFrame:
    """Write objects that Arrow does not know as text."""
    odd = {n: rows[n].map(str) for n in rows.columns if rows[n].dtype == object}
    return rows.assign(**odd)


def _rows_of(text: str | None) -> pd.DataFrame | None:
    import pyarrow as pa

    if text is None:
        return None
    frame: pd.DataFrame = pa.ipc.open_file(base64.b64decode(text)).read_all().to_pandas()
    return frame


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


def from_document(document: dict[str, Any]) -> ExplanationResult:
    """Rebuild a result from the values of `to_document`."""
    fields = _from_header(document)
    whole = document["task"] == Task.CLASSIFICATION.value
    width = fields["space"].width
    n = len(document["status"])
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
        pq.write_table(table, temporary, compression="zstd")
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        header = json.loads((table.schema.metadata or {})[b"cel"])
    except (pa.ArrowInvalid, KeyError, OSError) as error:
        raise StoreError(f"{path} is damaged or was not written by CEL: {error}") from error
    fields = _from_header(header)
    for name in (*_ROWS, "x_sets", "cf_group_ids"):
        if name in table.column_names:
            fields[name] = _from_arrow(table[name], header["set_size"] if name == "x_sets" else 0)
    for name, form in zip(_PROOFS, ("f8", "O"), strict=True):
        if name in table.column_names:
            fields[name] = np.array(table[name].to_pylist(), dtype=form)
    fields["status"] = np.array(table["status"].to_pylist(), dtype=object)
    fields["source_ids"] = _ids(table["source_id"].to_pylist(), fields["rows"])
    return ExplanationResult(**fields)


def _from_arrow(column: Any, set_size: int) -> np.ndarray:
    import pyarrow as pa

    array = column.combine_chunks()
    if not pa.types.is_fixed_size_list(array.type):
        return np.array(array.to_numpy(zero_copy_only=False))
    flat = array.values.to_numpy(zero_copy_only=False)
    rows = np.array(flat).reshape(len(array), array.type.list_size)
    return rows.reshape(len(rows), set_size, -1) if set_size else rows
