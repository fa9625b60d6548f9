"""A short leaderboard for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from cel.benchmark.ranking import WinTable

__all__ = ["leaderboard"]

SHOWN = {
    "success": "success ↑",
    "mae": "mae ↓",
    "l2_hamming": "distance ↓",
    "sparsity": "sparsity ↓",
    "density_percentile": "density pct ↑",
    "lof_median": "lof ↓",
    "cpu_ms_per_row": "cpu ms/row",
}
RANKED_BY = "l2_hamming"
ORDER = ("local", "global", "group", "regression")


def leaderboard(
    scores: pd.DataFrame,
    paradigms: Mapping[tuple[str, str], str] | None = None,
    pairs: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return one line per method with means over all its cells, nearest first.

    Means are those over answered rows, of which `success` says how many there are; so the order is
    that of the mean rank within the rows, where an unanswered row comes last.

    Args:
        scores: long table of `collect`.
        paradigms: (dataset, method) -> local, global, group or regression; these are kept apart.
            Without it all lines stand together.
        pairs: comparisons of rows, of `compare_rows`; without them methods that answer most come
            first.
    """
    kinds = paradigms or {}
    places = zip(scores["dataset"], scores["method"], strict=True)
    scores = scores.assign(kind=[kinds.get(p, "") for p in places])
    wide = scores[scores["metric"].isin(SHOWN)].pivot_table(
        index=["kind", "method"], columns="metric", values="value", aggfunc="mean"
    )
    rows = scores[scores["metric"] == "rows"].groupby(["kind", "method"])["value"]
    cells = rows.agg(["size", "sum"])
    ranks = _ranks(wide.index, pairs)
    order = ranks if ranks is not None else -wide.get("success", pd.Series(0.0, index=wide.index))
    place = [ORDER.index(k) if k in ORDER else len(ORDER) for k, _ in wide.index]
    wide = wide.assign(_kind=place, _order=order).sort_values(["_kind", "_order"], kind="stable")
    table = pd.DataFrame(
        {
            "kind": wide.index.get_level_values("kind"),
            "method": wide.index.get_level_values("method"),
            "cells": cells.loc[wide.index, "size"].to_numpy(),
            "rows": cells.loc[wide.index, "sum"].astype(int).to_numpy(),
        }
    )
    if ranks is not None:
        table["rank ↓"] = _aligned(ranks[wide.index].to_numpy(float))
    for metric, title in SHOWN.items():
        if metric in wide:
            table[title] = _aligned(wide[metric].to_numpy(float), down=metric == "success")
    return table if kinds else table.drop(columns="kind")


def _ranks(lines: pd.Index, pairs: pd.DataFrame | None) -> pd.Series | None:
    """Mean rank of each (kind, method) within the rows, by distance."""
    if pairs is None or not (pairs["metric"] == RANKED_BY).any():
        return None
    wins = pairs[pairs["metric"] == RANKED_BY]
    found: dict[tuple[str, str], float] = {}
    for kind in dict.fromkeys(k for k, _ in lines):
        table = WinTable(wins, [m for k, m in lines if k == kind])
        means = table.ranks().mean()
        found |= {(kind, m): float(means[m]) for m in table.methods}
    return pd.Series([found.get(key, np.nan) for key in lines], index=lines)


def _aligned(values: np.ndarray, *, down: bool = False) -> list[str]:
    """Numbers of a column with the same number of decimals, never as powers of ten.

    With `down` they are cut off, not rounded: only what is complete reads 1.

    >>> _aligned(np.array([1280.4, 0.32, np.nan]))
    ['1280.40', '0.32', '-']
    """
    known = np.abs(values[np.isfinite(values)])
    smallest = known[known > 0].min() if (known > 0).any() else 1.0
    digits = int(np.clip(1 - np.floor(np.log10(smallest)), 0, 3)) if len(known) else 0
    if down:
        digits = 3
        values = np.floor(values * 1000 + 1e-9) / 1000
    return [f"{v:.{digits}f}" if np.isfinite(v) else "-" for v in values]
