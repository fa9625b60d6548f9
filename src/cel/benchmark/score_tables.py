"""The score table of a store: long, sorted, and the same whoever computed it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark.plan import Cell, Plan
from cel.benchmark.row_scores import compare_rows
from cel.benchmark.store import Store
from cel.errors import StoreError
from cel.paths import read_json, replacing

__all__ = [
    "COLUMNS",
    "cell_table",
    "collect",
    "state_of",
    "stored_scores",
    "summarise",
    "versions_of",
    "write_scores",
]

COLUMNS = ["dataset", "model", "method", "fold", "metric", "value", "reason"]
TIMES = ("time_fit_s", "time_explain_s", "time_s", "ms_per_row", "time_cpu_s", "cpu_ms_per_row")


def cell_table(store: Store, plan: Plan) -> pd.DataFrame:
    """Return one line per cell: where it stands and why."""
    lines = [_cell_line(store, cell) for cell in plan.cells]
    columns = ["dataset", "model", "method", "fold", "state", "reason", "rows", "key"]
    return pd.DataFrame(lines, columns=columns)


def state_of(store: Store, cell: Cell) -> str:
    """Return where a cell stands: "done", "skip", "missing", or how it failed."""
    if stored_scores(store, cell) is not None:
        return "done"
    failure = store.failure(cell.score_key)
    return "missing" if failure is None else str(failure["status"])


def _cell_line(store: Store, cell: Cell) -> dict[str, Any]:
    line: dict[str, Any] = {
        "dataset": cell.dataset, "model": cell.model, "method": cell.method.label,
        "fold": cell.fold, "key": cell.score_key, "reason": "", "rows": None,
    }  # fmt: skip
    document = stored_scores(store, cell)
    if document is not None:
        return line | {"state": "done", "rows": document["rows"]}
    failure = store.failure(cell.score_key)
    if failure is None:
        damaged = store.has("score", cell.score_key)
        reason = "its scores are damaged; `cel run` computes them again" if damaged else ""
        return line | {"state": "missing", "reason": reason}
    return line | {"state": failure["status"], "reason": failure["reason"]}


def stored_scores(store: Store, cell: Cell) -> dict[str, Any] | None:
    """Return the stored scores and times of a cell, or None if there are none to be trusted."""
    if not store.has("score", cell.score_key):
        return None
    try:
        folder = store.folder("score", cell.score_key)
        document = read_json(folder / "scores.json")
        times = read_json(folder / "times.json")
        scores = {str(n): _value(v) for n, v in document["scores"].items()}
        return {
            "rows": int(document["rows"]),
            "status": {str(s): int(n) for s, n in document["status"].items()},
            "proof": {str(p): int(n) for p, n in document.get("proof", {}).items()},
            "scores": scores,
            "times": {str(n): _value(v) for n, v in times.items()},
            "reasons": {str(n): str(r) for n, r in document["reasons"].items()},
        }
    except (StoreError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def versions_of(store: Store, plan: Plan) -> dict[str, int]:
    """Return which versions of CEL made the scores of a run, and how many cells each."""
    out: dict[str, int] = {}
    for cell in plan.cells:
        if store.has("score", cell.score_key):
            try:
                version = str(store.spec("score", cell.score_key).get("cel", ""))
            except StoreError:
                continue
            if version:
                out[version] = out.get(version, 0) + 1
    return dict(sorted(out.items()))


def _value(value: Any) -> float:
    return np.nan if value is None else float(value)


def collect(store: Store, plan: Plan, *, times: bool = True) -> pd.DataFrame:
    """Return one line per cell and metric. Without times the table is reproducible to the byte."""
    lines: list[dict[str, Any]] = []
    for cell in plan.cells:
        document = stored_scores(store, cell)
        if document is None:
            continue
        scores = document["scores"] | (document["times"] if times else {})
        scores |= {
            f"rows_{word}": n for word, n in (document["status"] | document["proof"]).items()
        }
        scores["rows"] = document["rows"]
        about = {
            "dataset": cell.dataset, "model": cell.model, "method": cell.method.label,
            "fold": cell.fold,
        }  # fmt: skip
        for metric in sorted(scores):
            reason = document["reasons"].get(metric, "")
            value = float(scores[metric])
            lines.append({**about, "metric": metric, "value": value, "reason": reason})
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
