"""Scores that come with the package, and the comparisons of rows that belong to them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from cel.benchmark.plan import Plan, make_plan
from cel.benchmark.row_scores import PAIR_COLUMNS, pair_table, row_tables
from cel.benchmark.spec import load_suite
from cel.benchmark.store import Store

__all__ = [
    "KINDS",
    "cell_states",
    "guest_pairs",
    "refused_cells",
    "sample_rows",
    "shipped_cells",
    "shipped_path",
    "shipped_table",
]

KINDS = ("scores", "pairs", "common", "rows", "experiments", "blank", "origins")
PLACE = ["dataset", "model", "fold"]
CELL = ["dataset", "model", "method", "fold"]


def shipped_path(suite: str, kind: str = "scores") -> Path:
    """Return where a shipped table of a suite is, if there is one.

    Args:
        suite: name of a packaged suite.
        kind: "scores" (long table of scores), "pairs" (who beats whom how often, row by row),
            "common" (sums on the rows that all methods answered), "rows" (values of the first
            rows of each fold, to compare a new method with), "experiments" (scores of the
            experiments that imitate a suspected mistake), "blank" (cells without scores, and why),
            "origins" (which version and which models the scores of a cell belong to).
    """
    folder = Path(str(resources.files("cel.benchmark"))) / "baselines"
    return folder / f"{suite}.parquet" if kind == "scores" else folder / kind / f"{suite}.parquet"


def shipped_table(suite: str, kind: str = "scores") -> pd.DataFrame:
    """Return a shipped table, empty where there is none."""
    path = shipped_path(suite, kind)
    return pd.read_parquet(path) if suite and path.exists() else pd.DataFrame()


def shipped_cells(suite: str) -> pd.DataFrame:
    """Return one line per cell of a packaged suite: where it stands in what is shipped, and why.

    Columns: dataset, model, method, fold, state ("done", "skip" for methods that refuse a problem,
    how it failed, or "missing"), reason, rows.
    """
    known = shipped_table(suite), shipped_table(suite, "blank")
    return cell_states(make_plan(load_suite(suite)), *known)


def cell_states(plan: Plan, scores: pd.DataFrame, blank: pd.DataFrame) -> pd.DataFrame:
    """Return where every cell of a plan stands in a table of scores; see `shipped_cells`.

    Args:
        plan: what should be there.
        scores: long table of scores.
        blank: cells without scores, and why: dataset, model, method, fold, state, reason.
    """
    lines = [(c.dataset, c.model, c.method.label, c.fold) for c in plan.cells]
    table = pd.DataFrame(lines, columns=CELL)
    rows = scores[scores["metric"] == "rows"] if len(scores) else pd.DataFrame(columns=CELL)
    rows = rows.rename(columns={"value": "rows"}).reindex(columns=[*CELL, "rows"])
    told = blank if len(blank) else pd.DataFrame(columns=[*CELL, "state", "reason"])
    table = table.merge(rows, on=CELL, how="left").merge(told, on=CELL, how="left")
    done = table["rows"].notna()
    table["state"] = table["state"].fillna("missing").mask(done, "done")
    table["reason"] = table["reason"].fillna("").mask(done, "")
    return table[[*CELL, "state", "reason", "rows"]]


def refused_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is shipped as "blank": of a `cell_table`, cells without scores with a reason."""
    told = cells[~cells["state"].isin(["done", "missing"]) & (cells["reason"] != "")]
    return told[[*CELL, "state", "reason"]].reset_index(drop=True)


def sample_rows(store: Store, plan: Plan, *, limit: int) -> pd.DataFrame:
    """Return the values of the first rows of every block, one line per method and row.

    Columns: dataset, model, fold, method, row, found and the metrics with values by row, with
    four digits.

    Args:
        store: of the run.
        plan: of the run.
        limit: rows of one block.
    """
    parts = []
    for block in plan.blocks:
        about: dict[str, Any] = {
            "dataset": block.dataset,
            "model": block.model,
            "fold": block.fold,
        }
        for _, tables in row_tables(store, plan, block):
            for method, table in tables.items():
                head = table.iloc[:limit].rename_axis("row").reset_index()
                parts.append(head.assign(method=method, **about))
    if not parts:
        return pd.DataFrame()
    out = pd.concat(parts, ignore_index=True)
    values = [str(c) for c in out.columns if c not in (*PLACE, "method", "row", "found")]
    for name in values:
        out[name] = [float(f"{v:.4g}") for v in out[name]]
    out[values] = out[values].astype("float32")
    return out[[*PLACE, "method", "row", "found", *values]]


def guest_pairs(store: Store, plan: Plan, shipped: pd.DataFrame) -> pd.DataFrame:
    """Compare the methods of a run with shipped ones on the rows that both have.

    Args:
        store: of the run.
        plan: of the run.
        shipped: a table of `sample_rows`.

    Returns:
        Lines of `PAIR_COLUMNS`, one method of the run and one shipped method each.
    """
    parts = []
    others = dict(iter(shipped.groupby(PLACE))) if len(shipped) else {}
    for block in plan.blocks:
        known = others.get((block.dataset, block.model, block.fold))
        if known is None:
            continue
        about: dict[str, Any] = {
            "dataset": block.dataset,
            "model": block.model,
            "fold": block.fold,
        }
        for _, own in row_tables(store, plan, block):
            for method, lines in known.groupby("method"):
                theirs = lines.set_index("row").drop(columns=[*PLACE, "method"])
                pairs = pair_table({**own, str(method): theirs.dropna(axis=1, how="all")})
                crossed = (pairs["a"] == method) ^ (pairs["b"] == method)
                parts.append(pairs[crossed & (pairs["rows"] > 0)].assign(**about))
    filled = [p for p in parts if len(p)]
    if not filled:
        return pd.DataFrame(columns=PAIR_COLUMNS)
    return pd.concat(filled, ignore_index=True)[PAIR_COLUMNS]
