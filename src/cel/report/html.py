"""One page without a single request to anywhere, and the files beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from cel.errors import MissingDependencyError, StoreError
from cel.paths import unlinked, write_text
from cel.report.data import page_data
from cel.report.figures import write_figures
from cel.report.paper_latex import tables_to_latex
from cel.report.source import read_run
from cel.report.tables import paper_tables

__all__ = ["Report", "page_html", "write_report"]

STYLES = ("base.css", "tables.css", "parts.css", "screens.css")
SCRIPTS = (
    "core.js", "shapes.js", "plots.js", "view_overview.js", "view_tables.js", "view_figures.js",
    "view_board.js", "view_wins.js", "view_tradeoff.js", "view_coverage.js", "view_rows.js",
    "view_fairness.js", "view_cite.js", "main.js",
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        page: the HTML page.
        files: everything, the page included.
        cells: cells with scores.
    """

    page: Path
    files: tuple[Path, ...]
    cells: int


def write_report(
    folder: str | Path, out: str | Path | None = None, *, baselines: bool = True
) -> Report:
    """Write the report of a run: index.html, scores.csv, tables.tex, suite.json and figures.

    Args:
        folder: of the run.
        out: where to write; by default `report` inside the run.
        baselines: show shipped scores of methods that were not run.
    """
    run = read_run(folder, baselines=baselines)
    if run.scores.empty:
        raise StoreError(f"{folder} has no scores yet; look with: cel status {folder}")
    target = Path(out) if out is not None else run.store.at("report")
    target.mkdir(parents=True, exist_ok=True)
    tables = paper_tables(run.scores, run.cells)
    texts = {
        "index.html": page_html(page_data(run, tables)),
        "tables.tex": tables_to_latex(tables),
        "scores.csv": run.scores.to_csv(index=False),
        "suite.json": json.dumps(run.suite.to_dict(), indent=1, default=str),
    }
    for name, text in texts.items():
        write_text(target / name, text)
    files = [target / name for name in texts]
    files += write_figures(run.scores, unlinked(target, "figures"))
    done = int((run.cells["state"] == "done").sum())
    return Report(target / "index.html", tuple(files), done)


def page_html(data: dict[str, Any]) -> str:
    """Return the whole page: style, data, plotly and scripts inside."""
    page = _asset("page.html")
    parts = {
        "TITLE": f"CEL report: {_escape(str(data['meta']['suite']))}",
        "STYLE": "\n".join(_asset(name) for name in STYLES),
        "PLOTLY": _plotly(),
        "DATA": _json(data),
        "SCRIPT": "\n".join(_asset(name) for name in SCRIPTS),
    }
    for name, text in parts.items():
        before, mark, after = page.partition(f"<!--{name}-->")
        assert mark, f"the page has no place for {name}"
        page = before + text + after
    return page


def _asset(name: str) -> str:
    return (resources.files("cel.report") / "assets" / name).read_text(encoding="utf8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingDependencyError("plotly", "report") from None
    return str(get_plotlyjs())


def _json(data: Any) -> str:
    """Return JSON that cannot end the script element that holds it."""
    text = json.dumps(
        data, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str
    )
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
