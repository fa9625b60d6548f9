"""What to cite and what to write down so that somebody else gets the same numbers."""

from __future__ import annotations

import datetime
import re
from typing import Any

import cel
from cel.benchmark import Store
from cel.benchmark.score_tables import versions_of
from cel.errors import StoreError
from cel.report.source import RunData

__all__ = ["PAPER", "bibtex", "citation"]

PAPER = r"""@misc{furman_cel,
  title        = {{CEL}: Comprehensive Counterfactual Explanations Library and Benchmark},
  author       = {Furman, Oleksii and Lenkiewicz, {\L}ukasz and Musia{\l}ek, Marcel
                  and Zi{\k{e}}ba, Maciej},
  howpublished = {Wroc{\l}aw University of Science and Technology},
}"""
AUTHORS = (
    r"Furman, Oleksii and Lenkiewicz, {\L}ukasz and Musia{\l}ek, Marcel and Zi{\k{e}}ba, Maciej"
)


def bibtex(suite: str, version: str, year: int, commit: str = "") -> str:
    """Return two BibTeX entries: the paper, and the library with the run."""
    key = re.sub(r"\W+", "_", suite) or "run"
    fields = {
        "title": "{CEL}, the library",
        "author": AUTHORS,
        "year": str(year),
        "version": version,
        "note": f"Benchmark suite {_plain(suite)}" + (f", commit {commit[:12]}" if commit else ""),
    }
    lines = [f"  {name:<8}= {{{value}}}," for name, value in fields.items()]
    return "\n".join([PAPER, "", f"@software{{cel_{key}_{year},", *lines, "}"])


def _plain(text: str) -> str:
    """A name without what BibTeX and LaTeX read as commands."""
    return re.sub(r"[^\w .,:/+-]", "", text).replace("_", r"\_")


def _environment(store: Store) -> dict[str, Any]:
    """Return where a run was last worked on; nothing if that is not known any more."""
    try:
        found = store.read_json("environment.json")
    except StoreError:
        return {}
    return dict(found) if isinstance(found, dict) else {}


def citation(run: RunData) -> dict[str, Any]:
    """Return BibTeX, suite, environment and the last day on which something was computed."""
    if run.store is None:
        environment: dict[str, Any] = {"cel": cel.__version__}
        suite, moment = run.suite.to_dict(), datetime.datetime.now(tz=datetime.UTC)
        computed = f"before the release of {cel.__version__}"
    else:
        environment = _environment(run.store)
        made = versions_of(run.store, run.plan)
        if made:
            environment["cel"] = ", ".join(made)
        suite = run.store.read_json("suite.json")
        files = (run.store.root / "log.jsonl", run.store.root / "suite.json")
        moments = [path.stat().st_mtime for path in files if path.exists()]
        moment = datetime.datetime.fromtimestamp(max(moments, default=0), tz=datetime.UTC)
        computed = moment.date().isoformat()
    version = str(environment.get("cel", cel.__version__))
    return {
        "bibtex": bibtex(run.suite.name, version, moment.year, str(environment.get("commit", ""))),
        "suite": suite,
        "environment": environment,
        "computed": computed,
        "shipped": run.store is None,
    }
