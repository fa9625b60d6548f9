"""`cel list` and `cel check`: what there is, and whether a method keeps the contract."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from cel.cli.output import console, print_json
from cel.cli.plain_table import show_table
from cel.errors import ConfigError
from cel.registry import look_in

__all__ = ["check", "list_app"]

list_app = typer.Typer(help="List methods, models, metrics and suites.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _print(rows: list[dict[str, Any]], title: str, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    columns = list(rows[0]) if rows else []
    show_table(title, columns, [[_cell(r[c]) for c in columns] for r in rows])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@list_app.command("methods")
def list_methods(as_json: AsJson = False) -> None:
    """Show the capability matrix of all methods."""
    from cel.cf_methods import METHODS
    from cel.protocols import Support

    common = frozenset.intersection(*(frozenset(c.supports) for _, c in METHODS.items()))
    if as_json:
        rows = [
            {
                "name": name, "scope": cls.scope.value,
                "tasks": sorted(t.value for t in cls.tasks),
                "needs": sorted(n.value for n in cls.needs),
                "supports": sorted(s.value for s in cls.supports), "version": cls.version,
                "reference": cls.reference,
            }
            for name, cls in METHODS.items()
        ]  # fmt: skip
        print_json(rows)
        return
    lines = [
        {
            "name": name,
            "scope": cls.scope.value,
            "tasks": ", ".join(sorted(t.value for t in cls.tasks)),
            "needs": ", ".join(sorted(n.value.replace("_", " ") for n in cls.needs)) or "-",
            "also": ", ".join(sorted(s.value for s in cls.supports - common)) or "-",
        }
        for name, cls in METHODS.items()
    ]
    _print(lines, "methods", as_json)
    every = ", ".join(sorted(s.value for s in Support if s in common))
    console().print(f"every method handles: {every}; `also`: what it handles besides", style="dim")


@list_app.command("models")
def list_models(as_json: AsJson = False) -> None:
    """Show predictors and densities."""
    from cel.models import MODELS

    rows = [{"name": n, "class": c.__name__, "about": _first_line(c)} for n, c in MODELS.items()]
    _print(rows, "models", as_json)


@list_app.command("metrics")
def list_metrics(as_json: AsJson = False) -> None:
    """Show metrics with direction and meaning."""
    from cel.metrics import METRICS

    rows = [
        {"name": n, "better": m.better, "rows": m.rows, "meaning": m.meaning}
        for n, m in METRICS.items()
    ]
    _print(rows, "metrics", as_json)


@list_app.command("suites")
def list_suites(as_json: AsJson = False) -> None:
    """Show the packaged suites."""
    from cel.benchmark import load_suite, packaged_suites

    suites = [load_suite(name) for name in packaged_suites()]
    rows = [
        {"name": s.name, "datasets": len(s.datasets), "folds": len(s.folds),
         "methods": len(s.methods), "target": s.target}
        for s in suites
    ]  # fmt: skip
    _print(rows, "suites", as_json)


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().split("\n")[0]


def check(
    name: Annotated[str, typer.Argument(help="module:Class, or the name of a method.")],
    as_json: AsJson = False,
) -> None:
    """Run the contract suite on a method."""
    from cel.benchmark.plan import method_class
    from cel.testing import check_method

    if ":" in name:
        look_in(Path.cwd())
    cls = method_class(name)
    reports = check_method(cls)
    counts = Counter(r.result for r in reports)
    if as_json:
        print_json([vars(r) for r in reports])
    else:
        words = {"passed": "ok", "failed": "FAILED"}
        rows = [[r.problem, r.check, words.get(r.result, r.result), r.message] for r in reports]
        show_table(f"contract of {cls.__name__}", ["problem", "check", "result", "message"], rows)
        told = [f"{counts[k]} {k}" for k in ("passed", "failed", "skipped") if counts[k]]
        told += [f"{counts['refused']} problems refused"] if counts["refused"] else []
        console().print(", ".join(told))
    if counts["refused"] == len(reports):
        raise ConfigError(f"{name} supports none of the test problems")
    if counts["failed"]:
        raise typer.Exit(1)
