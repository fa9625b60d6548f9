"""`cel status`, `clean`, `merge` and `export`: what a stored run holds."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from cel.cli.output import JSON, console, notes, print_json
from cel.cli.plain_table import show_table
from cel.errors import ConfigError, StoreError
from cel.paths import replacing, write_text
from cel.registry import did_you_mean
from cel.text import csv_table

__all__ = ["clean", "export", "merge", "status"]

Folder = Annotated[Path, typer.Argument(help="Folder of a run.")]
ENDINGS = {"csv": "csv", "parquet": "parquet", "latex": "tex"}


def status(folder: Folder, as_json: bool = JSON) -> None:
    """Show what is done, failed, skipped and missing."""
    from cel.benchmark import open_run
    from cel.benchmark.score_tables import cell_table

    store, plan = open_run(folder)
    cells = cell_table(store, plan)
    bad = cells[~cells["state"].isin(["done", "missing", "skip"])]
    if as_json:
        counts = {str(k): int(v) for k, v in cells["state"].value_counts().items()}
        names = ["dataset", "fold", "model", "method", "state", "reason"]
        print_json(
            {"cells": len(cells), "states": counts, "failures": bad[names].to_dict("records")}
        )
        return
    pivot = cells.pivot_table(
        index="method", columns="state", values="fold", aggfunc="count", fill_value=0
    )
    rows = [[str(m), *map(str, v)] for m, v in zip(pivot.index, pivot.to_numpy(), strict=True)]
    show_table(f"{plan.suite.name}: {len(cells)} cells", ["method", *pivot.columns], rows)
    for line in bad.head(20).itertuples():
        where = f"{line.dataset}/{line.fold}/{line.model}/{line.method}"
        console().print(
            f"[red]{escape(str(line.state))}[/] {escape(where)}: {escape(str(line.reason))}",
            highlight=False,
        )
    if len(bad) > 20:
        console().print(f"and {len(bad) - 20} more; all of them with --json", style="dim")


def clean(
    folder: Folder,
    failures: Annotated[bool, typer.Option(help="Forget failures only.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a run, or only its recorded failures."""
    from cel.benchmark import open_run

    store, _ = open_run(folder)
    if failures:
        for key in store.failures():
            store.forgive(key)
        notes().print(f"failures of {folder} forgotten", markup=False)
        return
    if not yes:
        typer.confirm(f"Remove {folder} with all its results?", abort=True)
    if store.root.is_symlink():
        raise StoreError(f"{folder} is a link; remove the link, or name the folder it points to")
    shutil.rmtree(store.root)
    notes().print(f"{folder} removed", markup=False)


def merge(
    sources: Annotated[list[Path], typer.Argument(help="Runs to bring together.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder that receives them.")],
    as_json: bool = JSON,
) -> None:
    """Bring shards or partial runs of one suite into one."""
    from cel.benchmark.join_runs import join_runs

    plan, counts = join_runs(sources, out)
    if as_json:
        print_json({"out": str(out), "cells": len(plan.cells), "copied": counts})
        return
    for name, count in counts.items():
        notes().print(f"{name}: {count} entries copied", markup=False)


def export(
    folder: Folder,
    kind: Annotated[str, typer.Argument(help="csv, parquet or latex.")] = "csv",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; RUN/scores.* by default.")
    ] = None,
    times: Annotated[bool, typer.Option(help="Include wall-clock times.")] = True,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="Column of the LaTeX table; may be repeated."),
    ] = None,
    caption: Annotated[str, typer.Option(help="Caption of the LaTeX tables.")] = "",
) -> None:
    """Write the score table to a file."""
    from cel.benchmark import collect, open_run, summarise

    if kind not in ENDINGS:
        raise ConfigError(f"unknown format {kind!r}; {did_you_mean(kind, ENDINGS)}")
    store, plan = open_run(folder)
    table = collect(store, plan, times=times)
    if table.empty:
        raise StoreError(f"{folder} has no scores yet; look with: cel status {folder}")
    path = out or folder / f"scores.{ENDINGS[kind]}"
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(f"{path}: give a file in a folder that exists")
    wrote = f"{len(table)} lines"
    if kind == "csv":
        write_text(path, csv_table(table))
    elif kind == "parquet":
        replacing(path, partial(table.to_parquet, index=False))
    else:
        from cel.report.latex import to_latex

        unknown = [m for m in metric or () if m not in set(table["metric"])]
        if unknown:
            hint = did_you_mean(unknown[0], set(table["metric"]))
            raise ConfigError(f"the run has no metric {unknown[0]!r}; {hint}")
        text = to_latex(summarise(table), metric or None, caption, suite=plan.suite.name)
        write_text(path, text)
        wrote = f"{text.count('begin{table')} tables"
    notes().print(f"{wrote} written to {path}", markup=False, soft_wrap=True)
