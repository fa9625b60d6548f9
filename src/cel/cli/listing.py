"""`cel list` and `cel check`: what there is, and whether a method keeps the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cel.cli.output import console
from cel.cli.tables import show_table
from cel.errors import ConfigError
from cel.registry import look_in

__all__ = ["check", "list_app"]

list_app = typer.Typer(help="List methods, models, metrics and suites.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def _print(rows: list[dict[str, Any]], title: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows))
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

    rows = []
    for name, cls in METHODS.items():
        line: dict[str, Any] = {
            "name": name,
            "scope": cls.scope.value,
            "tasks": sorted(t.value for t in cls.tasks),
            "needs": sorted(n.value for n in cls.needs),
        }
        if as_json:
            line["supports"] = sorted(s.value for s in cls.supports)
            line["reference"] = cls.reference
        else:
            line |= {s.value: s in cls.supports for s in Support}
        rows.append(line)
    _print(rows, "methods", as_json)


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
    name: Annotated[str, typer.Argument(help="MODULE:CLASS, or the name of a method")],
    as_json: AsJson = False,
) -> None:
    """Run the contract suite on a method."""
    from cel.benchmark.plan import method_class
    from cel.testing import check_method

    if ":" in name:
        look_in(Path.cwd())
    cls = method_class(name)
    reports = check_method(cls)
    failed = [r for r in reports if not r.passed]
    if as_json:
        typer.echo(json.dumps([vars(r) for r in reports]))
    else:
        rows = [[r.problem, r.check, "ok" if r.passed else "FAILED", r.message] for r in reports]
        show_table(f"contract of {cls.__name__}", ["problem", "check", "result", "message"], rows)
        console().print(f"{len(reports) - len(failed)} passed, {len(failed)} failed")
    if len([r for r in reports if r.check != "supported"]) == 0:
        raise ConfigError(f"{name} supports none of the test problems")
    if failed:
        raise typer.Exit(1)
