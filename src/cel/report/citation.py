"""What to cite and what to write down so that somebody else gets the same numbers."""

from __future__ import annotations

import datetime
from typing import Any

import cel
from cel.report.source import RunData

__all__ = ["bibtex", "citation"]


def bibtex(suite: str, version: str, year: int) -> str:
    """Return a BibTeX entry of a run."""
    fields = {
        "title": "{CEL}: Counterfactual Explanations Library and Benchmark",
        "author": "{The CEL developers}",
        "year": str(year),
        "version": version,
        "note": f"Benchmark suite {suite}",
        "url": "https://github.com/ofurman/counterfactuals",
    }
    lines = [f"  {name:<8}= {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@software{{cel_{suite}_{year},", *lines, "}"])


def citation(run: RunData) -> dict[str, Any]:
    """Return BibTeX, suite, environment and the last day on which something was computed."""
    environment = run.store.read_json("environment.json") or {}
    moments = [
        path.stat().st_mtime
        for path in (run.store.root / "log.jsonl", run.store.root / "suite.json")
        if path.exists()
    ]
    moment = datetime.datetime.fromtimestamp(max(moments, default=0), tz=datetime.UTC)
    return {
        "bibtex": bibtex(
            run.suite.name, str(environment.get("cel", cel.__version__)), moment.year
        ),
        "suite": run.store.read_json("suite.json"),
        "environment": environment,
        "computed": moment.date().isoformat(),
    }
