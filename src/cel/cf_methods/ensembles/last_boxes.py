"""An answer or a proof for rows that no walk from cell to cell has answered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cel.search.branch import BoxProblem, BoxSearch, SearchProof
from cel.search.coordinate import Incumbents

__all__ = ["impossible", "settle"]

FIRST_NODES = 500  # boxes of a row before other walks are tried
WIDTH = 48  # boxes of a row that are looked at together


def impossible(problem: BoxProblem, home: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Tell which of some rows (m,) have no answer, as far as one look at all their cells tells.

    Cells are struck out with which the best leaves of all trees do not suffice; a row is
    impossible if an axis has none left.

    Args:
        problem: all rows as boxes of cells.
        home: (n, A) their own cells.
        rows: (m,) those that are asked about.
    """
    boxes = BoxSearch(problem.select(rows), Incumbents.nothing(home[rows]), 1, 1)
    boxes.run(lambda: False)
    return np.asarray(np.isinf(boxes.best.cost) & boxes.proof().done)


def settle(
    problem: BoxProblem,
    home: np.ndarray,
    walk: Callable[[np.ndarray], Incumbents],
    *,
    nodes: int,
    expired: Callable[[], bool],
) -> SearchProof:
    """Return answers or proofs of rows that have none.

    A small branch and bound comes first: it often ends at once, and an impossible row needs
    neither more walks nor training rows. Only what is still open gets these, and then all boxes.
    With boxes enough every row ends with its cheapest answer or with the proof that there is none.

    Args:
        problem: the rows as boxes of cells.
        home: (n, A) their own cells.
        walk: row numbers (m,) to what longer walks find for these rows.
        nodes: most boxes per row.
        expired: asked between rounds; true ends the search.
    """
    best = Incumbents.nothing(home)
    boxes = BoxSearch(problem, best, min(FIRST_NODES, nodes), WIDTH)
    boxes.run(expired)
    rows = np.flatnonzero(np.isinf(best.cost) & ~boxes.proof().done)
    if len(rows) and not expired():
        again = walk(rows)
        best.offer(rows, again.cells, again.cost)
        boxes.limit = np.where(np.isinf(best.cost), nodes, 0)
        boxes.run(expired)
    return boxes.proof()
