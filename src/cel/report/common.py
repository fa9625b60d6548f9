"""Distances on the rows that all methods solved, so that easy rows favour nobody."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from cel.result import ExplanationResult
from cel.space.distances import changed_features, gower

__all__ = ["COMMON_COLUMNS", "on_common_rows", "pool_common"]

COMMON_COLUMNS = ["method", "own", "common", "gower_own", "gower", "sparsity_own", "sparsity"]
ENOUGH = 0.5  # a method that solved fewer rows is not asked which rows are common


def on_common_rows(results: Mapping[str, ExplanationResult]) -> pd.DataFrame:
    """Return distances of each method on its own rows and on the common ones.

    Methods that solved less than half of the rows are left out: they would leave too few.

    Args:
        results: of the same rows, by method.
    """
    good = {m: r for m, r in results.items() if len(r) and r.found.mean() >= ENOUGH}
    if len(good) < 2:
        return pd.DataFrame(columns=COMMON_COLUMNS)
    shared = reduce(np.intersect1d, [r.source_ids[r.found] for r in good.values()])
    return pd.DataFrame([_line(m, r, shared) for m, r in good.items()], columns=COMMON_COLUMNS)


def _line(method: str, result: ExplanationResult, shared: np.ndarray) -> dict[str, Any]:
    found = result.select(result.found)
    far = np.asarray(gower(found.x_origs, found.x_cfs, found.space), dtype=float)
    many = np.asarray(changed_features(found.x_origs, found.x_cfs, found.space)).mean(1)
    common = np.isin(found.source_ids, shared)
    return {
        "method": method, "own": len(found), "common": int(common.sum()),
        "gower_own": far.sum(), "gower": far[common].sum(),
        "sparsity_own": many.sum(), "sparsity": many[common].sum(),
    }  # fmt: skip


def pool_common(parts: list[pd.DataFrame], by: list[str]) -> pd.DataFrame:
    """Bring folds together: sums over rows become means over rows.

    Args:
        parts: frames of `on_common_rows` with the columns `by` added.
        by: what is kept apart, besides the method.
    """
    filled = [p for p in parts if len(p)]
    if not filled:
        return pd.DataFrame(columns=[*by, *COMMON_COLUMNS])
    table = pd.concat(filled).groupby([*by, "method"], sort=False).sum().reset_index()
    for name in ("gower", "sparsity"):
        table[f"{name}_own"] /= table["own"]
        table[name] = table[name] / table["common"].where(table["common"] > 0)
    return table
