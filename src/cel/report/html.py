"""One page without a single request to anywhere, and the files beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from cel.display.offline import page_policy
from cel.errors import MissingDependencyError, StoreError
from cel.paths import unlinked, write_text
from cel.report.figures import write_figures
from cel.report.gathered import gather_runs, read_shipped
from cel.report.page_data import page_data
from cel.report.paper_latex import tables_to_latex
from cel.report.paper_tables import paper_tables
from cel.report.source import RunData
from cel.text import csv_table, html, page_json, plain

__all__ = ["Report", "page_html", "write_report", "write_shipped_report"]

STYLES = ("base.css", "tables.css", "parts.css", "screens.css")
SCRIPTS = (
    "core.js", "state.js", "grid.js", "charts.js", "view_overview.js", "view_board.js",
    "view_tradeoff.js", "view_tables.js", "view_figures.js", "view_coverage.js",
    "view_rows.js", "view_fairness.js", "view_cite.js", "main.js",
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        page: the HTML page.
        files: everything, the page included.
        cells: cells with scores.
        left_out: parts that could not be made, with the reason.
    """

    page: Path
    files: tuple[Path, ...]
    cells: int
    left_out: tuple[str, ...] = ()


def write_report(
    folder: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    baselines: bool = True,
) -> Report:
    """Write the report of a run: index.html, scores.csv, tables.tex, suite.json and figures.

    Args:
        folder: of the run, or several folders of runs for one page.
        out: where to write; by default `report` inside the (first) run.
        baselines: show shipped scores of methods that were not run.
    """
    folders = [folder] if isinstance(folder, str | Path) else list(folder)
    run = gather_runs(folders, baselines=baselines)
    if run.scores.empty:
        raise StoreError(f"{folders[0]} has no scores yet; look with: cel status {folders[0]}")
    inside = run.store.at("report") if run.store is not None else Path(folders[0]) / "report"
    return _write(run, Path(out) if out is not None else inside)


def write_shipped_report(name: str, out: str | Path) -> Report:
    """Write the report of the scores of a suite that come with the package.

    Args:
        name: "quick", "standard" or "paper".
        out: where to write.
    """
    return _write(read_shipped(name), Path(out))


def _write(run: RunData, target: Path) -> Report:
    tables = paper_tables(run.scores, run.cells)
    left: list[str] = []
    texts = {
        "index.html": page_html(page_data(run, tables)),
        "tables.tex": tables_to_latex(tables),
        "scores.csv": csv_table(run.scores),
        "suite.json": json.dumps(plain(run.suite.to_dict()), indent=1),
    }
    target.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(target / name, text)
    files = [target / name for name in texts]
    try:
        files += write_figures(run.scores, unlinked(target, "figures"))
    except MissingDependencyError as error:
        left.append(f"figures: {error}")
    done = int((run.cells["state"] == "done").sum())
    return Report(target / "index.html", tuple(files), done, tuple(left))


def page_html(data: dict[str, Any]) -> str:
    """Return the whole page: style, data and scripts inside."""
    page = _asset("page.html")
    style = "\n".join(_asset(name) for name in STYLES)
    script = "\n".join(_asset(name) for name in SCRIPTS)
    parts = {
        "POLICY": page_policy([script], [style]),
        "TITLE": f"CEL report: {html(data['meta']['suite'])}",
        "STYLE": style,
        "DATA": page_json(data),
        "SCRIPT": script,
    }
    for name, text in parts.items():
        before, mark, after = page.partition(f"<!--{name}-->")
        assert mark, f"the page has no place for {name}"
        page = before + text + after
    return page


def _asset(name: str) -> str:
    return (resources.files("cel.report") / "assets" / name).read_text(encoding="utf8")
