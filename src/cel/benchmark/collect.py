"""The score table of a store: long, sorted, and the same whoever computed it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark.plan import Cell, Plan
from cel.benchmark.row_scores import compare_rows
from cel.benchmark.store import Store
from cel.paths import replacing

__all__ = ["COLUMNS", "cell_table", "collect", "summarise", "write_scores"]

COLUMNS = ["dataset", "model", "method", "fold", "metric", "value", "reason"]
TIMES = ("time_fit_s", "time_explain_s", "time_s", "ms_per_row", "time_cpu_s", "cpu_ms_per_row")


def cell_table(store: Store, plan: Plan) -> pd.DataFrame:
    """Return one line per cell: where it stands and why."""
    lines = [_cell_line(store, cell) for cell in plan.cells]
    columns = ["dataset", "model", "method", "fold", "state", "reason", "rows", "key"]
    return pd.DataFrame(lines, columns=columns)


def _cell_line(store: Store, cell: Cell) -> dict[str, Any]:
    line: dict[str, Any] = {
        "dataset": cell.dataset, "model": cell.model, "method": cell.method.label,
        "fold": cell.fold, "key": cell.score_key, "reason": "", "rows": None,
    }  # fmt: skip
    if store.has("score", cell.score_key):
        document = json.loads(_file(store, cell, "scores.json").read_text())
        return line | {"state": "done", "rows": document["rows"]}
    failure = store.failure(cell.score_key)
    if failure is None:
        return line | {"state": "missing"}
    return line | {"state": failure["status"], "reason": failure["reason"]}


def _file(store: Store, cell: Cell, name: str) -> Path:
    return store.folder("score", cell.score_key) / name


def collect(store: Store, plan: Plan, *, times: bool = True) -> pd.DataFrame:
    """Return one line per cell and metric. Without times the table is reproducible to the byte."""
    lines: list[dict[str, Any]] = []
    for cell in plan.cells:
        if not store.has("score", cell.score_key):
            continue
        document = json.loads(_file(store, cell, "scores.json").read_text())
        scores = dict(document["scores"])
        if times:
            scores |= json.loads(_file(store, cell, "times.json").read_text())
        for status, count in document["status"].items():
            scores[f"rows_{status}"] = count
        for proof, count in document.get("proof", {}).items():
            scores[f"rows_{proof}"] = count
        scores["rows"] = document["rows"]
        reasons = document["reasons"]
        for metric in sorted(scores):
            value = scores[metric]
            lines.append(
                {
                    "dataset": cell.dataset, "model": cell.model, "method": cell.method.label,
                    "fold": cell.fold, "metric": metric,
                    "value": np.nan if value is None else float(value),
                    "reason": reasons.get(metric, ""),
                }
            )  # fmt: skip
    table = pd.DataFrame(lines, columns=COLUMNS)
    return table.sort_values(["dataset", "model", "method", "fold", "metric"], ignore_index=True)


def summarise(scores: pd.DataFrame) -> pd.DataFrame:
    """Return mean and sample standard deviation over folds; no fold is dropped silently.

    A fold whose value could not be computed is counted in `missing`.
    """
    groups = scores.groupby(["dataset", "model", "method", "metric"], sort=True)["value"]
    table = groups.agg(mean="mean", std="std", folds="size", known="count").reset_index()
    table["missing"] = table["folds"] - table["known"]
    return table.drop(columns="known")


def write_scores(store: Store, plan: Plan) -> pd.DataFrame:
    """Write `scores.parquet` (reproducible) and `times.parquet`; return both in one table."""
    table = collect(store, plan)
    compare_rows(store, plan, keep=True)
    timed = table["metric"].isin(TIMES)
    for name, part in (("scores", table[~timed]), ("times", table[timed])):
        plain = part.reset_index(drop=True)
        replacing(store.root / f"{name}.parquet", partial(plain.to_parquet, index=False))
    return table
