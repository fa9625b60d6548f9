"""`cel compare`: a run beside the paper, or beside another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cel.cli.output import console
from cel.cli.tables import show_table
from cel.errors import ConfigError

__all__ = ["compare"]


def compare(
    runs: Annotated[list[Path], typer.Argument(help="one run, or two")],
    other: Annotated[str | None, typer.Option("--with", help="paper")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="CSV with every cell")] = None,
    by: Annotated[
        str, typer.Option(help="count verdicts per table, metric, method or dataset")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Put cells side by side with noise-aware verdicts."""
    from cel.benchmark import collect, open_run
    from cel.benchmark.compare import compare_runs, compare_with_paper, verdict_counts

    if other not in (None, "paper") or len(runs) != (1 if other else 2):
        raise ConfigError("use: cel compare RUN --with paper, or: cel compare RUN_A RUN_B")
    tables = [collect(*open_run(path)) for path in runs]
    if other == "paper":
        table, rows = compare_with_paper(tables[0]), by or "table"
    else:
        table, rows = compare_runs(*tables), by or "metric"
    if out is not None:
        table.to_csv(out, index=False)
    counts = verdict_counts(table, rows)
    if as_json:
        typer.echo(json.dumps(table["verdict"].value_counts().to_dict()))
        return
    lines = [[str(n), *map(str, v)] for n, v in zip(counts.index, counts.to_numpy(), strict=True)]
    lines.append(["all", *map(str, counts.sum().to_numpy())])
    show_table(f"verdicts per {rows}", [rows, *map(str, counts.columns)], lines)
    if out is not None:
        console().print(f"every cell: {out}")
