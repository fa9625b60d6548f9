"""`cel explain`: counterfactuals for the rows of a file, from a model in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cel.cli.output import notes
from cel.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

    from cel.door import Explainer
    from cel.result import ExplanationResult

__all__ = ["explain"]

STREAMS = (".csv", ".parquet", ".jsonl")
WHOLE = (".html", ".json")


def explain(
    model: Annotated[
        str,
        typer.Option(
            help="A model file (.skops, .onnx, .cbm, XGBoost .json or .ubj, LightGBM .txt), or "
            "module:function."
        ),
    ],
    data: Annotated[Path, typer.Option(help="Rows to explain: .csv or .parquet.")],
    background: Annotated[Path, typer.Option(help="Training rows: .csv or .parquet.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="What to write: .html, .json, .jsonl, .csv, .parquet."),
    ],
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="The wanted class; for numbers 200, '>= 200', +10%."),
    ] = None,
    constraints: Annotated[
        Path | None, typer.Option(help="What may change and how, as YAML.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="A method by name, see cel list.")] = None,
    number: Annotated[int, typer.Option("--n", "-n", help="Answers per row.")] = 1,
    classes: Annotated[
        str | None, typer.Option(help="Labels in the order of the model's outputs: no,yes.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="classification or regression.")] = None,
    label: Annotated[str | None, typer.Option("--id", help="Column that names the rows.")] = None,
    chunk: Annotated[int, typer.Option(help="Rows that are explained at a time.")] = 10_000,
    trust: Annotated[
        list[str] | None, typer.Option(help="Types in a .skops file to trust.")
    ] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read pickles, which can run any code.")
    ] = False,
) -> None:
    """Explain the rows of a file and write a page, a table or a document.

    CSV, parquet and JSON lines are written a part at a time: memory does not grow with the file.
    """
    from cel.datasets.chunks import read_table
    from cel.paths import replacing
    from cel.people.model_files import load_model
    from cel.registry import look_in

    ending = out.suffix.lower()
    if ending not in STREAMS + WHOLE:
        raise ConfigError(f"{out}: unknown ending; write .html, .json, .jsonl, .csv or .parquet")
    if out.is_dir() or not out.parent.is_dir():
        raise ConfigError(f"{out}: cannot be written; its folder must exist")
    if number < 1:
        raise ConfigError(f"n is {number}; give the number of answers per row, 1 or more")
    for path in (data, background):
        if not path.is_file():
            raise DataError(f"{path}: there is no such file")
    labels = None if classes is None else [_label(c) for c in classes.split(",")]
    if ":" in model:
        look_in(Path.cwd())
    known = load_model(model, allow_pickle=allow_pickle, trusted=trust or (), classes=labels)
    usual = read_table(background)
    usual = _shared(usual, _first(data, usual), label)
    explainer = _explainer(known, usual, constraints, method, labels, task)
    wish = _target(explainer, target)
    counts: dict[str, int] = {}
    parts = _parts(explainer, data, usual, label, wish, chunk if ending in STREAMS else 10**9,
                   number, counts)  # fmt: skip
    replacing(out, lambda path: _WRITERS[ending](parts, path))
    told = ", ".join(f"{n:,} {s}" for s, n in counts.items())
    notes().print(f"{sum(counts.values()):,} rows: {told}; wrote {out}", markup=False)


# -- reading ---------------------------------------------------------------------------------


def _kinds(usual: pd.DataFrame) -> dict[str, Any]:
    """Return the dtypes that parts of a CSV file must share: text stays text."""
    import pandas as pd

    return {
        str(c): str
        for c in usual.columns
        if usual[c].dtype == object or pd.api.types.is_string_dtype(usual[c].dtype)
    }


def _first(data: Path, usual: pd.DataFrame) -> pd.DataFrame:
    from cel.datasets.chunks import table_chunks

    for part in table_chunks(data, 100, kinds=_kinds(usual)):
        return part
    raise DataError(f"{data}: a table without rows")


def _shared(usual: pd.DataFrame, rows: pd.DataFrame, label: str | None) -> pd.DataFrame:
    """Leave out what only the background has, such as the outcome, and names of rows."""
    own = [c for c in usual.columns if c in rows.columns and c != label]
    lost = [str(c) for c in usual.columns if c not in rows.columns]
    if not own:
        raise DataError("the background and the rows have no column in common")
    if lost:
        notes().print(f"left out, only in the background: {', '.join(lost[:8])}", markup=False)
    return usual[own]


def _parts(
    explainer: Explainer,
    data: Path,
    usual: pd.DataFrame,
    label: str | None,
    target: Any,
    chunk: int,
    number: int,
    counts: dict[str, int],
) -> Iterator[ExplanationResult]:
    from cel.datasets.chunks import table_chunks

    for rows in table_chunks(data, chunk, kinds=_kinds(usual)):
        if label is not None:
            if label not in rows.columns:
                raise DataError(f"{data}: no column {label!r} to name the rows by")
            rows = rows.set_index(label)  # noqa: PLW2901
        result = explainer.explain(rows, target, n=number)
        for status, n in result.counts().items():
            counts[status] = counts.get(status, 0) + n
        yield result


def _explainer(
    model: Any,
    usual: pd.DataFrame,
    constraints: Path | None,
    method: str | None,
    classes: list[Any] | None,
    task: str | None,
) -> Explainer:
    from cel.door import Explainer

    options: dict[str, Any] = {}
    if constraints is not None:
        options["constraints"] = constraints
    if method is not None:
        options["method"] = method
    return Explainer(model, usual, classes=classes, task=task, **options)


def _target(explainer: Explainer, text: str | None) -> Any:
    """Return the label that a word on the command line means; other wishes as they are."""
    from cel.preprocessing import Encoding

    outcome = Encoding.of(explainer.model).target
    if text is None or outcome is None or not outcome.classes:
        return text
    return next((c for c in outcome.classes if str(c) == text), text)


def _label(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text.strip()


# -- writing ---------------------------------------------------------------------------------


def _table(result: ExplanationResult) -> pd.DataFrame:
    """Return one line per row: what is known about it, then the row with its changes."""
    import pandas as pd

    from cel.display import Facts

    known = result.overview().add_prefix("cel_")
    known.insert(0, "cel_row", [str(i) for i in result.source_ids])
    after = Facts.of(result).after
    return pd.concat([known.reset_index(drop=True), after.reset_index(drop=True)], axis=1)


def _write_csv(parts: Iterator[ExplanationResult], path: Path) -> None:
    from cel.text import csv_table

    with path.open("w", encoding="utf8", newline="") as file:
        for k, result in enumerate(parts):
            text = csv_table(_table(result))
            file.write(text.split("\n", 1)[1] if k else text)


def _write_lines(parts: Iterator[ExplanationResult], path: Path) -> None:
    from cel.text import plain

    with path.open("w", encoding="utf8") as file:
        for result in parts:
            told = result.sentences().tolist()
            for line, sentence in zip(_table(result).to_dict("records"), told, strict=True):
                file.write(json.dumps(plain({**line, "cel_sentence": sentence})) + "\n")


def _write_parquet(parts: Iterator[ExplanationResult], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    try:
        for result in parts:
            table = pa.Table.from_pandas(_table(result), preserve_index=False)
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()


def _write_html(parts: Iterator[ExplanationResult], path: Path) -> None:
    from cel.display.person_page import person_page

    path.write_text(person_page(next(parts)), encoding="utf8")


def _write_json(parts: Iterator[ExplanationResult], path: Path) -> None:
    path.write_text(next(parts).to_json(), encoding="utf8")


_WRITERS: dict[str, Callable[[Iterator[Any], Path], None]] = {
    ".csv": _write_csv,
    ".html": _write_html,
    ".json": _write_json,
    ".jsonl": _write_lines,
    ".parquet": _write_parquet,
}
