"""Outcomes by protected group: how many people of each were asked, answered, and at what cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark import Block
from cel.result import ExplanationResult
from cel.space.distances import gower

__all__ = ["GroupOutcomes"]

LEAST = 10  # rows of a group; fewer tell nothing
MANY = 8  # groups of one feature; more are not a protected group but an id


class GroupOutcomes:
    """Sums over rows by protected feature and group, over all folds.

    Categories are groups under their own name; numbers with two values likewise, others are split
    at the median of the first rows that are seen, in original units.
    """

    def __init__(self) -> None:
        self._splits: dict[tuple[str, str], float | None] = {}
        self._sums: dict[tuple[str, str, str, str, str], np.ndarray] = {}

    def add(self, block: Block, results: Mapping[str, ExplanationResult]) -> None:
        """Count the rows of one block."""
        for label, result in results.items():
            names = [f.name for f in result.space if f.protected]
            if not names or not len(result):
                continue
            before = result.decode(result.x_origs)
            explained, found = result.explained, result.found
            cost = np.zeros(len(result))
            cost[found] = gower(result.x_origs[found], result.x_cfs[found], result.space)
            for name in (n for n in names if n in before):
                groups = self._groups(block.dataset, name, before[name])
                for group in sorted(set(groups[explained]) - {""}):
                    rows = explained & (groups == group)
                    won = rows & found
                    key = (block.dataset, block.model, label, name, group)
                    sums = [rows.sum(), won.sum(), cost[won].sum(), np.square(cost[won]).sum()]
                    self._sums[key] = self._sums.get(key, np.zeros(4)) + np.array(sums, float)

    def _groups(self, dataset: str, name: str, values: pd.Series) -> np.ndarray:
        """(n,) names of groups, "" where the value is missing."""
        known = values.notna().to_numpy()
        if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
            numbers = values.to_numpy(dtype=float)
            if (dataset, name) not in self._splits:
                few = len(np.unique(numbers[known])) <= 2
                self._splits[dataset, name] = None if few else float(np.median(numbers[known]))
            split = self._splits[dataset, name]
            if split is None:
                told = np.array([f"{name} = {v:g}" for v in numbers])
            else:
                low, high = f"{name} ≤ {split:g}", f"{name} > {split:g}"
                told = np.where(numbers <= split, low, high)
        else:
            told = values.astype(str).to_numpy(dtype=str)
        return np.where(known, told, "")

    def records(self) -> list[dict[str, Any]]:
        """Return one line per dataset, model, method, feature and group with enough rows."""
        sizes: dict[tuple[str, str], set[str]] = {}
        for dataset, _, _, feature, group in self._sums:
            sizes.setdefault((dataset, feature), set()).add(group)
        names = ("dataset", "model", "method", "feature", "group")
        out = []
        for key, (rows, found, cost, square) in self._sums.items():
            if rows < LEAST or len(sizes[key[0], key[3]]) > MANY:
                continue
            line: dict[str, Any] = dict(zip(names, key, strict=True))
            line |= {"rows": int(rows), "found": int(found)}
            out.append(line | {"cost": round(float(cost), 5), "square": round(float(square), 6)})
        return out
