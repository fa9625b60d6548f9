"""`cel run`, `status`, `clean`, `merge` and `export`: the benchmark from the command line."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from cel.cli.output import console
from cel.cli.tables import show_table
from cel.errors import ConfigError
from cel.paths import replacing, write_text

__all__ = ["clean", "export", "merge", "run", "status"]


def run(
    suite: Annotated[str, typer.Argument(help="smoke, quick, standard, paper or a file")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder of the run")] = None,
    dataset: Annotated[list[str] | None, typer.Option("-d", "--dataset")] = None,
    method: Annotated[
        list[str] | None, typer.Option("-m", "--method", help="label, or module:Class")
    ] = None,
    model: Annotated[list[str] | None, typer.Option("--model")] = None,
    fold: Annotated[list[int] | None, typer.Option("--fold")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="e.g. methods.ppcef.alpha=50")
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", help="worker processes")] = 1,
    engine: Annotated[str, typer.Option(help="local or dask")] = "local",
    address: Annotated[str | None, typer.Option(help="dask scheduler, tcp://...")] = None,
    shard: Annotated[str | None, typer.Option(help="i/n: do every n-th block")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda, for training")] = "cpu",
    stack: Annotated[
        bool | None, typer.Option(help="train the folds of a dataset together; default: on CUDA")
    ] = None,
    retry_failed: Annotated[bool, typer.Option(help="try failed and skipped cells again")] = False,
    dry_run: Annotated[bool, typer.Option(help="show the cells and do nothing")] = False,
) -> None:
    """Compute what is missing of a suite."""
    from cel.benchmark import load_suite
    from cel.benchmark.named import named_in
    from cel.benchmark.runner import run as run_suite
    from cel.cli.progress import RunProgress
    from cel.registry import look_in

    if any(":" in name for name in method or ()):
        look_in(Path.cwd())
    spec = load_suite(suite).narrowed(
        datasets=dataset or (), methods=method or (), models=model or (), folds=fold or ()
    )
    for text in setting or ():
        spec = spec.with_setting(*_setting(text))
    if named_in(spec):
        look_in(Path.cwd())
    where = out or Path("runs") / spec.name
    if dry_run:
        _show_plan(spec, where)
        return
    again = shlex.join(["cel", *sys.argv[1:]])
    with RunProgress(console()) as progress:
        try:
            summary = run_suite(
                spec, where, jobs=jobs, engine=engine, address=address, shard=_shard(shard),
                retry_failed=retry_failed, device=device, stack=stack, watch=progress,
            )  # fmt: skip
        except KeyboardInterrupt:
            progress.stop()
            console().print(
                f"\nStopped; everything finished is kept. Go on with: [bold]{again}[/]"
            )
            raise typer.Exit(130) from None
    _show_leaderboard(where)
    console().print(
        f"{summary.ran} of {summary.total} cells started, {summary.done} have scores, "
        f"{summary.skipped} not applicable, {summary.failed} failed, {summary.seconds:.1f} s. "
        f"Report: [bold]cel report {where}[/]"
    )


def _setting(text: str) -> tuple[str, Any]:
    path, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"--set {text!r}: write it as path=value")
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, sign, total = text.partition("/")
    if not (sign and number.isdigit() and total.isdigit()):
        raise ConfigError(f"--shard {text!r}: write it as 1/3")
    return int(number), int(total)


def _show_plan(spec: Any, where: Path) -> None:
    from cel.benchmark import Store, make_plan
    from cel.benchmark.estimate import estimate_seconds

    plan = make_plan(spec)
    store = Store(where) if where.exists() else None
    done = [c for c in plan.cells if store is not None and store.has("score", c.score_key)]
    open_cells = len(plan.cells) - len(done)
    blocks: dict[tuple[str, str], list[int]] = {}
    for block in plan.blocks:
        blocks.setdefault((block.dataset, block.model), []).append(len(block.cells))
    lines = [[d, m, str(len(n)), str(sum(n))] for (d, m), n in blocks.items()]
    show_table("plan", ["dataset", "model", "folds", "cells"], lines)
    seconds = estimate_seconds(plan, store)
    console().print(
        f"{len(plan.cells)} cells, {len(done)} already there, {open_cells} to do; "
        f"about {seconds / 60:.0f} minutes on one core"
    )


def _show_leaderboard(where: Path) -> None:
    from cel.benchmark import collect, open_run
    from cel.benchmark.board import leaderboard

    store, plan = open_run(where)
    scores = collect(store, plan)
    if len(scores):
        board = leaderboard(scores)
        rows = [[str(v) for v in line] for line in board.itertuples(index=False)]
        show_table(
            f"{plan.suite.name}: means over datasets, models and folds",
            [str(c) for c in board],
            rows,
        )


def status(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show what is done, failed, skipped and missing."""
    from cel.benchmark import open_run
    from cel.benchmark.collect import cell_table

    store, plan = open_run(folder)
    cells = cell_table(store, plan)
    counts = cells["state"].value_counts().to_dict()
    if as_json:
        typer.echo(json.dumps({"cells": len(cells), "states": counts}))
        return
    pivot = cells.pivot_table(
        index="method", columns="state", values="fold", aggfunc="count", fill_value=0
    )
    rows = [[str(m), *map(str, v)] for m, v in zip(pivot.index, pivot.to_numpy(), strict=True)]
    show_table(f"{plan.suite.name}: {len(cells)} cells", ["method", *pivot.columns], rows)
    bad = cells[~cells["state"].isin(["done", "missing", "skip"])]
    for line in bad.head(20).itertuples():
        where = f"{line.dataset}/{line.fold}/{line.model}/{line.method}"
        console().print(
            f"[red]{line.state}[/] {where}: {escape(str(line.reason))}", highlight=False
        )


def clean(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
    failures: Annotated[bool, typer.Option(help="forget failures only")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Remove a run, or only its recorded failures."""
    from cel.benchmark import open_run

    store, _ = open_run(folder)
    if failures:
        shutil.rmtree(store.root / "failures", ignore_errors=True)
        console().print(f"failures of {folder} forgotten")
        return
    if not yes:
        typer.confirm(f"Remove {folder} with all its results?", abort=True)
    shutil.rmtree(store.root)
    console().print(f"{folder} removed")


def merge(
    sources: Annotated[list[Path], typer.Argument(help="runs to bring together")],
    out: Annotated[Path, typer.Option("--out", "-o", help="folder that receives them")],
) -> None:
    """Bring shards or partial runs into one."""
    from cel.benchmark import Store, open_run
    from cel.benchmark.collect import write_scores

    opened = [(source, *open_run(source)) for source in sources]
    target = Store(out)
    for source, store, plan in opened:
        known = target.read_json("suite.json")
        if known is None:
            target.write_json("suite.json", plan.suite.to_dict())
            target.write_json("environment.json", store.read_json("environment.json"))
        elif known != store.read_json("suite.json"):
            raise ConfigError(f"{source} is a run of another suite than {out}")
        target.write_json("methods.json", store.read_json("methods.json") or {})
        console().print(f"{source}: {target.merge(store)} entries copied")
    merged, plan = open_run(out)
    write_scores(merged, plan)


def export(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
    kind: Annotated[str, typer.Argument(help="csv, parquet or latex")] = "csv",
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    times: Annotated[bool, typer.Option(help="include wall-clock times")] = True,
) -> None:
    """Write the score table to a file."""
    from cel.benchmark import collect, open_run, summarise

    endings = {"csv": "csv", "parquet": "parquet", "latex": "tex"}
    if kind not in endings:
        raise ConfigError(f"unknown format {kind!r}; use csv, parquet or latex")
    store, plan = open_run(folder)
    table = collect(store, plan, times=times)
    path = out or folder / f"scores.{endings[kind]}"
    if kind == "csv":
        write_text(path, table.to_csv(index=False))
    elif kind == "parquet":
        replacing(path, partial(table.to_parquet, index=False))
    else:
        from cel.report.latex import to_latex

        write_text(path, to_latex(summarise(table)))
    console().print(f"{len(table)} lines written to {path}")
