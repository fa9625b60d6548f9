"""`cel report`: one offline page, a CSV file, LaTeX tables and figures of a run."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from cel.cli.output import JSON, errors, notes, print_json
from cel.errors import ConfigError, StoreError

__all__ = ["latest_run", "report"]


def report(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of runs, one or several; the latest in runs/ by default."),
    ] = None,
    shipped: Annotated[
        str | None,
        typer.Option(help="Show the scores that come with the package: paper, standard, quick."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write; RUN/report by default.")
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="Show shipped scores of methods that were not run.")
    ] = True,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser.")
    ] = False,
    as_json: bool = JSON,
) -> None:
    """Write the report of a run, of several, or of the shipped scores.

    Without matplotlib everything but the figures is still written.
    """
    from cel.report import write_report, write_shipped_report

    if shipped is not None:
        if folders:
            raise ConfigError(f"--shipped {shipped}: give it alone, or runs without it")
        made = write_shipped_report(shipped, out or Path(f"report-{shipped}"))
    else:
        chosen = folders or [latest_run(Path("runs"))]
        made = write_report(chosen, out, baselines=baselines)
    if as_json:
        files = [str(p) for p in made.files]
        left = list(made.left_out)
        print_json({"page": str(made.page), "cells": made.cells, "files": files, "left_out": left})
    else:
        size = made.page.stat().st_size / 2**20
        notes().print(
            f"{made.cells} cells; {len(made.files)} files in {escape(str(made.page.parent))}. "
            f"Open [bold]{escape(str(made.page))}[/] ({size:.1f} MB, works offline)",
            soft_wrap=True,
        )
    for reason in made.left_out:
        errors().print(f"left out: {reason}", style="yellow", markup=False, soft_wrap=True)
    if open_page:
        webbrowser.open(made.page.absolute().as_uri())


def latest_run(folder: Path) -> Path:
    """Return the run in `folder` that was worked on last."""
    runs = [p.parent for p in folder.glob("*/suite.json")]
    if not runs:
        raise StoreError(
            f"no run in {folder}/; start one with: cel run quick, or look at the scores that "
            "come with the package: cel report --shipped quick"
        )
    return max(runs, key=lambda run: (run / "suite.json").stat().st_mtime_ns)
