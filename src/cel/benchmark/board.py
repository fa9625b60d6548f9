"""A short leaderboard for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

__all__ = ["leaderboard"]

SHOWN = {
    "success": "success ↑",
    "mae": "mae ↓",
    "l2_hamming": "distance ↓",
    "sparsity": "sparsity ↓",
    "density_percentile": "density pct ↑",
    "lof": "lof ↓",
    "ms_per_row": "ms/row ↓",
}
ORDER = ("local", "global", "group", "regression")


def leaderboard(
    scores: pd.DataFrame, paradigms: Mapping[tuple[str, str], str] | None = None
) -> pd.DataFrame:
    """Return one line per method with means over all its cells, nearest first.

    Cells of different methods may cover different people; the report compares on common rows.

    Args:
        scores: long table of `collect`.
        paradigms: (dataset, method) -> local, global, group or regression; these are kept apart.
            Without it all lines stand together.
    """
    kinds = paradigms or {}
    pairs = zip(scores["dataset"], scores["method"], strict=True)
    scores = scores.assign(kind=[kinds.get(p, "") for p in pairs])
    wide = scores[scores["metric"].isin(SHOWN)].pivot_table(
        index=["kind", "method"], columns="metric", values="value", aggfunc="mean"
    )
    rows = scores[scores["metric"] == "rows"].groupby(["kind", "method"])["value"]
    cells = rows.agg(["size", "sum"])
    far = wide.get("l2_hamming", pd.Series(0.0, index=wide.index))
    place = [ORDER.index(k) if k in ORDER else len(ORDER) for k, _ in wide.index]
    wide = wide.assign(_kind=place, _far=far).sort_values(["_kind", "_far"], kind="stable")
    table = pd.DataFrame(
        {
            "kind": wide.index.get_level_values("kind"),
            "method": wide.index.get_level_values("method"),
            "cells": cells.loc[wide.index, "size"].to_numpy(),
            "rows": cells.loc[wide.index, "sum"].astype(int).to_numpy(),
        }
    )
    for metric, title in SHOWN.items():
        if metric in wide:
            table[title] = _aligned(wide[metric].to_numpy(float), down=metric == "success")
    return table if kinds else table.drop(columns="kind")


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
