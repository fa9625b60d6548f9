"""A short leaderboard for the terminal."""

from __future__ import annotations

import pandas as pd

__all__ = ["leaderboard"]

SHOWN = {
    "coverage": "coverage ↑",
    "validity": "validity ↑",
    "mae": "mae ↓",
    "sparsity": "sparsity ↓",
    "l2": "l2 ↓",
    "density_percentile": "density pct ↑",
    "lof": "lof ↓",
    "ms_per_row": "ms/row ↓",
}


def leaderboard(scores: pd.DataFrame) -> pd.DataFrame:
    """Return one line per method with means over all its cells, best success first.

    Cells of different methods may cover different people; the report compares on common rows.
    """
    wide = scores[scores["metric"].isin([*SHOWN, "success"])].pivot_table(
        index="method", columns="metric", values="value", aggfunc="mean"
    )
    cells = scores[scores["metric"] == "rows"].groupby("method")["value"].agg(["size", "sum"])
    success = wide.get("success", pd.Series(0.0, index=wide.index))
    wide = wide.assign(_order=success).sort_values("_order", ascending=False)
    table = pd.DataFrame({"method": wide.index})
    table["cells"] = cells.loc[wide.index, "size"].to_numpy()
    table["rows"] = cells.loc[wide.index, "sum"].astype(int).to_numpy()
    for metric, title in SHOWN.items():
        if metric in wide:
            table[title] = [_short(v) for v in wide[metric]]
    return table


def _short(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:.3g}"
