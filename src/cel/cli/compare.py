"""`cel compare`: a run beside the paper, or beside another run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cel.cli.output import JSON, console, notes, print_json
from cel.cli.plain_table import show_table
from cel.errors import ConfigError, StoreError
from cel.paths import write_text
from cel.registry import did_you_mean
from cel.text import csv_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare"]

SHOWN = 25  # cells, unless --all
DIFFERING = ("worse", "unexplained", "differs", "better")
WORST_FIRST = (
    "worse", "unexplained", "differs", "better", "explained", "noise", "missing", "ours_only",
    "not_comparable", "agrees", "equal",
)  # fmt: skip


def compare(
    runs: Annotated[list[Path], typer.Argument(help="One run and --with, or two runs.")],
    other: Annotated[
        str | None, typer.Option("--with", help="paper, or the folder of another run.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file for every cell.")
    ] = None,
    by: Annotated[
        str, typer.Option(help="Count verdicts per table, metric, method, model or dataset.")
    ] = "",
    verdict: Annotated[
        list[str] | None, typer.Option("--verdict", help="Only these cells, e.g. worse.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("-d", "--dataset", help="Only cells of this dataset.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("-m", "--method", help="Only cells of this method.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Only cells of this metric.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every cell, the equal ones too.")
    ] = False,
    tried: Annotated[
        bool,
        typer.Option("--experiments", help="Run what imitates suspected causes of print first."),
    ] = False,
    jobs: Annotated[int, typer.Option("-j", "--jobs", help="Workers for --experiments.")] = 1,
    as_json: bool = JSON,
) -> None:
    """Put cells side by side with noise-aware verdicts."""
    from cel.benchmark.side_by_side import verdict_counts

    table, per = _side_by_side(runs, other, tried, jobs)
    for column, chosen in (
        ("dataset", dataset), ("our_method", method), ("method", method),
        ("metric", metric), ("verdict", verdict),
    ):  # fmt: skip
        if chosen and column in table and not (column == "method" and "our_method" in table):
            table = _only(table, column, chosen)
    per = by or per
    if per not in table or per in ("verdict", "reason") or per.startswith(("mean", "std")):
        names = [c for c in ("table", "metric", "method", "model", "dataset") if c in table]
        raise ConfigError(f"--by {per!r}: {did_you_mean(per, names)}")
    if out is not None:
        write_text(out, csv_table(table))
    if as_json:
        counts = {str(k): int(v) for k, v in table["verdict"].value_counts().items()}
        print_json({"verdicts": counts, "cells": _plain(table)})
        return
    counted = verdict_counts(table, per)
    lines = [
        [str(n), *map(str, v)] for n, v in zip(counted.index, counted.to_numpy(), strict=True)
    ]
    lines.append(["all", *map(str, counted.sum().to_numpy())])
    show_table(f"verdicts per {per}", [per, *map(str, counted.columns)], lines)
    if other == "paper" and not (dataset or method or metric or verdict):
        _show_placebo(table)
    _show_cells(table, everything or bool(verdict))
    if out is not None:
        notes().print(f"every cell: {out}", markup=False, soft_wrap=True)


def _side_by_side(
    runs: list[Path], other: str | None, tried: bool, jobs: int
) -> tuple[pd.DataFrame, str]:
    from cel.benchmark import collect, open_run
    from cel.benchmark.experiment_outcomes import dropped_experiments
    from cel.benchmark.experiments import experiment_scores, run_experiments
    from cel.benchmark.side_by_side import compare_runs, compare_with_paper

    if other is not None and other != "paper" and (Path(other) / "store.json").exists():
        runs, other = [*runs, Path(other)], None
    missing = [str(p) for p in runs if not (p / "store.json").exists()]
    if missing:
        raise StoreError(f"not a run: {', '.join(missing)}; start one with: cel run quick")
    if other not in (None, "paper"):
        raise ConfigError(
            f"--with {other!r} is neither 'paper' nor a run; {did_you_mean(other, ['paper'])}"
        )
    if len(runs) != (1 if other else 2):
        raise ConfigError("use: cel compare RUN --with paper, or: cel compare RUN_A RUN_B")
    tables = [collect(*open_run(path)) for path in runs]
    for path, scores in zip(runs, tables, strict=True):
        if scores.empty:
            raise StoreError(f"{path} has no scores yet; look with: cel status {path}")
    if other == "paper":
        store, plan = open_run(runs[0])
        if tried:
            run_experiments(store, plan, jobs=jobs)
        given = experiment_scores(store, plan)
        return compare_with_paper(tables[0], given, dropped=dropped_experiments()), "table"
    return compare_runs(*tables), "metric"


def _show_placebo(table: pd.DataFrame) -> None:
    """Print how often values agree with their namesake, and with a method that is none."""
    from cel.benchmark.verdicts import placebo, reproduced

    found = placebo(table)
    found["clear"] = reproduced(found)
    lines = [
        [
            str(row.Index), f"{row.cells:.0f}", f"{row.right:.0%}", f"{row.wrong_cells:.0f}",
            f"{row.wrong:.0%}", f"{row.ahead:.0f} of {row.datasets:.0f}", f"{row.p:.2g}",
            "yes" if row.clear else "",
        ]
        for row in found.itertuples()
    ]  # fmt: skip
    title = "agreement with the printed namesake, and with other printed methods (placebo)"
    heads = ["method", "cells", "namesake", "cells", "others", "ahead on datasets", "p", "clearly"]
    show_table(title, heads, lines)


def _only(table: pd.DataFrame, column: str, chosen: list[str]) -> pd.DataFrame:
    for name in chosen:
        if name not in set(table[column]):
            hint = did_you_mean(name, set(map(str, table[column])))
            raise ConfigError(f"no cell has the {column.removeprefix('our_')} {name!r}; {hint}")
    return table[table[column].isin(chosen)]


def _show_cells(table: pd.DataFrame, everything: bool) -> None:
    """Print the cells themselves, the worst first."""
    place = {v: i for i, v in enumerate(WORST_FIRST)}
    order = table["verdict"].map(lambda v: place.get(v, len(place)))
    table = table.assign(_order=order).sort_values("_order", kind="stable")
    kept = table if everything else table[table["verdict"].isin(DIFFERING)]
    if kept.empty:
        notes().print("no cell is better or worse; every cell with --all", style="dim")
        return
    a, b = ("paper", "ours") if "mean_paper" in kept else ("first", "second")
    label = "our_method" if "our_method" in kept else "method"
    shown = kept if everything else kept.head(SHOWN)
    records: list[dict[str, Any]] = shown.to_dict("records")  # type: ignore[assignment]
    rows = [
        [
            str(r["dataset"]), str(r["model"]), str(r[label]), str(r["metric"]),
            _value(r, a), _value(r, b), str(r["verdict"]),
        ]
        for r in records
    ]  # fmt: skip
    names = ["dataset", "model", "method", "metric", a, b, "verdict"]
    show_table("cells, mean ± std over folds (share of rows it is over)", names, rows)
    if len(kept) > len(shown):
        console().print(
            f"and {len(kept) - len(shown)} more; all with --all, or in a file with -o cells.csv",
            style="dim",
        )


def _value(record: dict[str, Any], side: str) -> str:
    mean, std = float(record[f"mean_{side}"]), float(record[f"std_{side}"])
    if mean != mean:
        return "none"
    spread = f" ± {std:.2g}" if std == std and abs(std) != float("inf") else ""
    found = float(record.get(f"found_{side}", math.nan))
    covered = (
        f" ({math.floor(100 * found + 1e-9)} %)" if found == found and _over_found(record) else ""
    )
    return f"{mean:.4g}{spread}{covered}"


def _over_found(record: dict[str, Any]) -> bool:
    """Whether a metric is a mean over found rows only."""
    from cel.metrics import METRICS

    name = str(record.get("our_metric", record["metric"]))
    return name in METRICS and METRICS.get(name).rows == "found"


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    return [{k: v if _sayable(v) else None for k, v in r.items()} for r in records]


def _sayable(value: Any) -> bool:
    """Whether JSON has a word for it."""
    return not isinstance(value, float) or math.isfinite(value)
