"""`cel run`: compute what is missing of a suite."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cel.cli.output import console, errors, level, notes, print_json, set_level
from cel.cli.plain_table import show_table
from cel.errors import ConfigError

if TYPE_CHECKING:
    from cel.benchmark import RunSummary, Store, Suite
    from cel.benchmark.estimate import Estimate
    from cel.benchmark.hatched import Nursery
    from cel.benchmark.plan import Plan

__all__ = ["run"]

REASONS = 10  # reasons of failures at the end; `cel status` has all


def run(
    suite: Annotated[
        str, typer.Argument(help="smoke, quick, standard, paper, or the file of a suite (YAML).")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the run; runs/SUITE by default.")
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option("-d", "--dataset", help="Only this dataset of the suite; may be repeated."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--method",
            help="Only this method, by label, or your own as module:Class; may be repeated.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="Only this model of the suite, e.g. mlp; may be repeated."),
    ] = None,
    fold: Annotated[
        list[int] | None,
        typer.Option("--fold", help="Only this fold, counted from 0; may be repeated."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting, e.g. methods.ppcef.alpha=50."),
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", help="Worker processes.")] = 1,
    engine: Annotated[str, typer.Option(help="local, or dask for a cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Dask scheduler, tcp://...; without it a local cluster.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option(help="i/n: do every n-th block, for jobs of a batch system.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda, for training.")] = "cpu",
    stack: Annotated[
        bool | None, typer.Option(help="Train the folds of a dataset together; default: on CUDA.")
    ] = None,
    gpu_search: Annotated[
        bool, typer.Option("--gpu-search", help="Explain on CUDA, too, where that is faster.")
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", help="Folder of trained models that runs share; default: the user's cache."
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Train every model anew; share none.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option(help="Try failed and skipped cells again.")
    ] = False,
    allow_failures: Annotated[
        bool, typer.Option("--allow-failures", help="End with code 0 although cells failed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option(help="Show the cells and how long they take; do nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the outcome as JSON at the end.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Errors only.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Name every cell.")] = False,
) -> None:
    """Compute what is missing of a suite.

    Everything is checked before anything is trained. Failed cells end the command with code 1,
    wrong input with 2, an interruption with 130; what was finished is always kept.
    """
    set_level(quiet=quiet or as_json, verbose=verbose)
    part, where = _shard(shard), out or Path("runs") / suite
    local = engine == "local" and not dry_run
    with _workers_begun(where, device) if local else contextlib.nullcontext() as nursery:
        from cel.benchmark import make_plan
        from cel.benchmark.preflight import check_datasets, preflight
        from cel.benchmark.shelf import default_shelf

        spec = _asked(suite, dataset, method, model, fold, setting)
        where, plan = out or Path("runs") / spec.name, make_plan(spec)
        options: dict[str, Any] = {
            "jobs": jobs, "engine": engine, "address": address, "shard": part, "device": device,
        }  # fmt: skip
        preflight(plan, where, **options)
        _check_options(device, gpu_search, store, alone)
        shelf = None if alone else store or default_shelf()
        if dry_run:
            shown = plan if part is None else plan.shard(*part)
            _show_plan(shown, where, jobs, as_json, _shared_models(shelf, device))
            return
        if not allow_failures:
            check_datasets(plan)
        _note_strangers(suite, spec)
        options |= {"retry_failed": retry_failed, "stack": stack, "gpu_search": gpu_search}
        summary = _compute(spec, where, {**options, "shelf": shelf, "nursery": nursery})
    failed = _end(where, summary, as_json)
    if failed and not allow_failures:
        raise typer.Exit(1)


@contextlib.contextmanager
def _workers_begun(where: Path, device: str) -> Iterator[Nursery | None]:
    """Let the process that forks workers import while the run is planned.

    Not where there is a run already: perhaps nothing is left to do.
    """
    from cel.benchmark.hatched import HATCHES, Nursery
    from cel.benchmark.processes import usable_cores

    if not HATCHES or usable_cores() == 1 or (where / "store.json").exists():
        yield None
        return
    nursery = Nursery(device)
    try:
        yield nursery
    finally:
        nursery.close()


def _check_options(device: str, gpu_search: bool, store: Path | None, alone: bool) -> None:
    """Refuse options that contradict each other."""
    if gpu_search and not device.startswith("cuda"):
        raise ConfigError(f"--gpu-search needs a GPU, the device is {device}; add --device cuda")
    if alone and store is not None:
        raise ConfigError(f"--alone shares no models, --store {store} does; leave one of them out")


def _asked(
    suite: str,
    datasets: list[str] | None,
    methods: list[str] | None,
    models: list[str] | None,
    folds: list[int] | None,
    settings: list[str] | None,
) -> Suite:
    from cel.benchmark import load_suite
    from cel.benchmark.named import named_in
    from cel.registry import look_in

    if any(":" in name for name in methods or ()):
        look_in(Path.cwd())
    spec = load_suite(suite).narrowed(
        datasets=datasets or (), methods=methods or (), models=models or (), folds=folds or ()
    )
    for text in settings or ():
        spec = spec.with_setting(*_setting(text))
    if named_in(spec):
        look_in(Path.cwd())
    return spec


def _setting(text: str) -> tuple[str, Any]:
    path, sign, value = text.partition("=")
    if not sign or not path:
        raise ConfigError(f"--set {text!r}: write it as path=value")
    try:
        return path, json.loads(value)
    except (ValueError, RecursionError):
        return path, value


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, sign, total = text.partition("/")
    if not (sign and number.isdecimal() and total.isdecimal()):
        raise ConfigError(f"--shard {text!r}: write it as 1/3")
    return int(number), int(total)


def _note_strangers(name: str, spec: Suite) -> None:
    """Say when folds were asked for that the packaged suite, and its shipped scores, lack."""
    from cel.benchmark import load_suite, packaged_suites

    if name in packaged_suites():
        usual = load_suite(name).folds
        extra = [str(f) for f in spec.folds if f not in usual]
        if extra:
            notes().print(
                f"fold {', '.join(extra)} is not one of {name}'s ({', '.join(map(str, usual))}): "
                "shipped scores do not have it",
                style="yellow", markup=False, highlight=False,
            )  # fmt: skip


def _compute(spec: Suite, where: Path, options: dict[str, Any]) -> RunSummary:
    from cel.benchmark.runner import run as run_suite
    from cel.cli.progress import make_progress

    again = shlex.join(["cel", *sys.argv[1:]])
    with make_progress(notes(), verbose=level() > 0) as progress:
        try:
            return run_suite(spec, where, watch=progress, **options)
        except KeyboardInterrupt:
            progress.stop()
            _show_leaderboard(where)
            notes().print(
                f"\nStopped; everything finished is kept. Go on with: [bold]{escape(again)}[/]"
            )
            raise typer.Exit(130) from None


def _end(where: Path, summary: RunSummary, as_json: bool) -> int:
    """Show the outcome, the reasons of failures last; return how many cells have no outcome."""
    from cel.benchmark import open_run
    from cel.benchmark.score_tables import cell_table

    cells = cell_table(*open_run(where))
    bad = cells[~cells["state"].isin(["done", "missing", "skip"])]
    failed = max(len(bad), summary.failed)
    missing = f", {summary.missing} missing" if summary.missing else ""
    if as_json:
        reasons: list[dict[str, Any]] = bad.drop(columns=["key", "rows"]).to_dict("records")  # type: ignore[assignment]
        print_json({**asdict(summary), "out": str(where), "failures": reasons})
        return summary.failed + summary.missing
    if level() >= 0:
        _show_leaderboard(where)
    notes().print(
        f"{summary.ran} of {summary.total} cells started, {summary.done} have scores, "
        f"{summary.skipped} not applicable, {summary.failed} failed{missing}, "
        f"{summary.seconds:.1f} s. Report: [bold]cel report {escape(str(where))}[/]",
        soft_wrap=True,
    )
    if failed:
        _show_failures(bad, where)
    return summary.failed + summary.missing


def _show_failures(bad: Any, where: Path) -> None:
    out = errors()
    groups = bad.groupby(["method", "state", "reason"], sort=False).size()
    for (method, state, reason), count in list(groups.items())[:REASONS]:
        out.print(
            f"{state}: {method} in {count} cells: {reason}", style="red", markup=False,
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    more = f" ({len(groups) - REASONS} further reasons)" if len(groups) > REASONS else ""
    out.print(
        f"{len(bad)} cells failed{more}; all of them: cel status {where}; "
        "again: --retry-failed; exit code 0 all the same: --allow-failures",
        style="red", markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip


def _show_leaderboard(where: Path) -> None:
    from cel.benchmark import collect, open_run
    from cel.benchmark.board import leaderboard
    from cel.benchmark.plan import paradigms_of
    from cel.benchmark.row_scores import compare_rows

    store, plan = open_run(where)
    scores = collect(store, plan)
    if not len(scores) or level() < 0:
        return
    board = leaderboard(scores, paradigms_of(plan), compare_rows(store, plan)[0])
    for kind, part in board.groupby("kind", sort=False):
        lines = part.drop(columns="kind")
        rows = [[str(v) for v in line] for line in lines.itertuples(index=False)]
        blank = [c for c in lines if all(v == "-" for v in lines[c])]
        keep = [i for i, c in enumerate(lines) if c not in blank]
        show_table(
            f"{plan.suite.name}, {kind}: means over datasets, models and folds, nearest first",
            [str(lines.columns[i]) for i in keep],
            [[row[i] for i in keep] for row in rows],
        )


def _shared_models(shelf: Path | None, device: str) -> Store | None:
    """Return the models that the run may borrow, if there are any yet; nothing is made."""
    from cel.benchmark.shelf import Shelf, shelf_folder

    known = shelf is not None and (shelf_folder(shelf, device) / "store.json").exists()
    return Shelf(shelf, device).store if known and shelf is not None else None


def _show_plan(
    plan: Plan, where: Path, jobs: int, as_json: bool, shelf: Store | None = None
) -> None:
    from cel.benchmark import Store
    from cel.benchmark.estimate import estimate

    store = Store(where) if (where / "store.json").exists() else None
    done = [c for c in plan.cells if store is not None and store.has("score", c.score_key)]
    made = estimate(plan, store, shelf)
    counts = {
        "cells": len(plan.cells), "done": len(done), "open": len(plan.cells) - len(done),
        "core_seconds": round(made.seconds, 1), "seconds": round(made.wall(jobs), 1),
        "jobs": jobs,
    }  # fmt: skip
    if as_json:
        parts = {k: _rounded(getattr(made, k)) for k in ("stages", "methods", "datasets")}
        print_json({**counts, **parts, "guessed": sorted(made.guessed)})
        return
    blocks: dict[tuple[str, str], list[int]] = {}
    for block in plan.blocks:
        blocks.setdefault((block.dataset, block.model), []).append(len(block.cells))
    lines = [[d, m, str(len(n)), str(sum(n))] for (d, m), n in blocks.items()]
    show_table("plan", ["dataset", "model", "folds", "cells"], lines)
    _show_estimate(made)
    workers = "one core" if jobs == 1 else f"{jobs} cores"
    console().print(
        f"{counts['cells']} cells, {counts['done']} already there, {counts['open']} to do; "
        f"about {_duration(made.wall(jobs))} on {workers}",
        highlight=False,
    )
    if made.guessed:
        console().print(f"guessed, never measured: {', '.join(sorted(made.guessed))}", style="dim")


def _show_estimate(made: Estimate) -> None:
    for title, values in (("stage", made.stages), ("method", made.methods)):
        ordered = sorted(values.items(), key=lambda item: -item[1])
        rows = [[name, f"{seconds:.0f}"] for name, seconds in ordered if seconds > 0]
        if rows:
            show_table(f"core seconds by {title}", [title, "seconds"], rows)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(v, 1) for name, v in values.items()}


def _duration(seconds: float) -> str:
    """Say a time as people do.

    >>> _duration(41), _duration(150), _duration(9000)
    ('41 seconds', '2.5 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.2g} minutes" if seconds < 5400 else f"{seconds / 3600:.2g} hours"
