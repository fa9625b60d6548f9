"""`cel report`: one offline page, a CSV file, LaTeX tables and figures of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cel.cli.output import console
from cel.errors import StoreError

__all__ = ["latest_run", "report"]


def report(
    folder: Annotated[
        Path | None, typer.Argument(help="folder of a run; the latest in runs/ by default")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="folder to write; RUN/report by default")
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="show shipped scores of methods that were not run")
    ] = True,
) -> None:
    """Write the report of a run."""
    from cel.report import write_report

    folder = folder if folder is not None else latest_run(Path("runs"))
    made = write_report(folder, out, baselines=baselines)
    size = made.page.stat().st_size / 2**20
    console().print(
        f"{made.cells} cells; {len(made.files)} files in {made.page.parent}. "
        f"Open [bold]{made.page}[/] ({size:.1f} MB, works offline)",
        soft_wrap=True,
    )


def latest_run(folder: Path) -> Path:
    """Return the run in `folder` that was worked on last."""
    runs = [p.parent for p in folder.glob("*/suite.json")]
    if not runs:
        raise StoreError(f"no run in {folder}/; start one with: cel run quick")
    return max(runs, key=lambda run: (run / "suite.json").stat().st_mtime_ns)
