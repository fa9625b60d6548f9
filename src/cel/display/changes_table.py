"""The changes of found rows as a table: one line for each changed column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from cel.result import ExplanationResult

__all__ = ["changes_table"]


def changes_table(result: ExplanationResult) -> pd.DataFrame:
    """Return the table of `ExplanationResult.changes`."""
    rows = np.flatnonzero(result.found)
    before, after, names, moved = result.compared(result.x_cfs[rows], rows)
    row, column = np.nonzero(moved)
    index = pd.Index(names)
    place = before.columns.get_indexer(index)[column]
    return pd.DataFrame(
        {
            "row": result.source_ids[rows][row],
            "feature": np.array(names, dtype=object)[column],
            "from": _cells(before, row, place),
            "to": _cells(after, row, after.columns.get_indexer(index)[column]),
        }
    )


def _cells(frame: pd.DataFrame, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return single cells of a table as they are, without a common dtype."""
    out = np.empty(len(row), dtype=object)
    for j in np.unique(column):
        here = column == j
        out[here] = frame.iloc[:, j].astype(object).to_numpy()[row[here]]
    return out
