"""One search with two kinds of bounds: boxes of cells, and what leaves cost to enter.

Which kind needs less time depends on the problem. Boxes are cheap to look at, and all they can do
is to tell apart what they hold: that is soon done where most features are fixed. Leaves cost
several times as much, and see that trees share the price of a move, which closes boxes that hold
more points than anybody could list. Every row begins with a few boxes; then the points in those
that are still open are counted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cel.search.branch import BoxProblem, BoxSearch, SearchProof
from cel.search.coordinate import Incumbents
from cel.search.leaf_branch import LeafSearch

__all__ = ["two_bounds"]

FIRST = 24  # boxes that every row begins with
FEW_POINTS = 1e7  # in the open boxes of a row that goes on with boxes


def two_bounds(
    problem: BoxProblem,
    best: Incumbents,
    *,
    nodes: int,
    expired: Callable[[], bool],
    width: tuple[int, int] = (48, 32),
) -> SearchProof:
    """Return the cheapest points and proved bounds of all rows.

    Args:
        problem: the rows.
        best: points that are known already; improved in place.
        nodes: most boxes per row, of both kinds together.
        expired: asked between rounds; true ends the search.
        width: boxes of one row that are looked at together, of each kind.
    """
    boxes = BoxSearch(problem, best, min(nodes, FIRST), width[0])
    boxes.run(expired)
    many = boxes.points() > FEW_POINTS
    boxes.limit = np.where(many, 0, nodes)
    boxes.run(expired)
    proved = boxes.proof()
    rows = np.flatnonzero(many & ~proved.done)
    if not len(rows) or not problem.bits:
        return proved
    own = Incumbents(best.cells[rows], best.cost[rows])
    leaves = LeafSearch(problem.select(rows), own, nodes - proved.nodes[rows], width[1])
    leaves.run(expired)
    best.offer(rows, own.cells, own.cost)
    return _joined(proved, leaves.proof(), rows)


def _joined(one: SearchProof, other: SearchProof, rows: np.ndarray) -> SearchProof:
    """Return what two searches have proved, the second one about some rows (m,)."""
    bound, done, nodes = one.bound.copy(), one.done.copy(), one.nodes.copy()
    bound[rows] = np.maximum(bound[rows], other.bound)
    done[rows] = other.done
    nodes[rows] += other.nodes
    return SearchProof(one.best, np.minimum(bound, one.best.cost), done, nodes)
