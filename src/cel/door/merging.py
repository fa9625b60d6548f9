"""Several results as one, and sets of answers in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cel.preprocessing.encoding import row_labels
from cel.result import ExplanationResult

__all__ = ["merged", "ordered_sets"]

_ARRAYS = ("x_origs", "x_cfs", "y_origs", "y_cf_targets", "y_cfs", "status")


def merged(
    parts: list[tuple[np.ndarray, ExplanationResult]], n: int, rows: pd.DataFrame
) -> ExplanationResult:
    """Return one result from those of some rows each.

    Args:
        parts: (positions, result) pairs that cover all rows once.
        n: number of rows.
        rows: the owner's rows.
    """
    first = parts[0][1]
    changes: dict[str, Any] = {}
    for name in _ARRAYS:
        like = getattr(first, name)
        out = np.empty((n, *like.shape[1:]), dtype=like.dtype)
        for at, part in parts:
            out[at] = getattr(part, name)
        changes[name] = out
    changes["reasons"] = _scattered(parts, "reasons", n, None)
    changes["proof"] = _scattered(parts, "proof", n, "none")
    changes["bound"] = _scattered(parts, "bound", n, np.nan)
    width = max(0 if p.x_sets is None else p.x_sets.shape[1] for _, p in parts)
    if width:
        sets = np.full((n, width, first.x_origs.shape[1]), np.nan, dtype=np.float32)
        for at, part in parts:
            if part.x_sets is not None:
                sets[at, : part.x_sets.shape[1]] = part.x_sets
        changes["x_sets"] = sets
    seconds = {k: sum(p.seconds.get(k, 0.0) for _, p in parts) for k in first.seconds}
    return replace(
        first, **changes, rows=rows, source_ids=row_labels(rows.index), cf_group_ids=None,
        logs=_logs(parts, n), seconds=seconds,
    )  # fmt: skip


def _scattered(
    parts: list[tuple[np.ndarray, ExplanationResult]], name: str, n: int, empty: Any
) -> np.ndarray | None:
    if all(getattr(p, name) is None for _, p in parts):
        return None
    out = np.full(n, empty, dtype=np.float64 if isinstance(empty, float) else object)
    for at, part in parts:
        if getattr(part, name) is not None:
            out[at] = getattr(part, name)
    return out


def _logs(parts: list[tuple[np.ndarray, ExplanationResult]], n: int) -> dict[str, Any]:
    logs: dict[str, Any] = {}
    for at, part in parts:
        for key, value in part.logs.items():
            if isinstance(value, list) and len(value) == len(part):
                whole = logs.setdefault(key, [None] * n)
                for i, entry in zip(at, value, strict=True):
                    whole[i] = entry
            else:
                logs[key] = value
    return logs


def ordered_sets(result: ExplanationResult, *, by_distance: bool) -> ExplanationResult:
    """Return a result whose sets begin with the answer of `x_cfs`, without gaps in between.

    Args:
        result: a result.
        by_distance: whether the others are put in order; otherwise they keep theirs.
    """
    if result.x_sets is None:
        return result
    sets = result.x_sets
    far = np.abs(sets - result.x_origs[:, None]) * result.space.vector("weight")
    price = np.nan_to_num(far).sum(-1)
    if not by_distance:
        price = np.broadcast_to(np.arange(sets.shape[1], dtype=np.float64), sets.shape[:2])
    price = np.where(np.isnan(sets).any(-1), np.inf, price)
    first = (sets == result.x_cfs[:, None]).all(-1)
    price = np.where(first, -1.0, price)
    order = np.argsort(price, axis=1, kind="stable")
    return replace(result, x_sets=np.take_along_axis(sets, order[..., None], axis=1))
