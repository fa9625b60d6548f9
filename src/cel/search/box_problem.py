"""What a branch and bound over boxes of cells is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cel.search.coordinate import Incumbents
from cel.search.leaf_bits import LeafBits
from cel.search.profiles import sums_at

__all__ = ["BoxProblem", "SearchProof"]

Check = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(points (R, A), rows (R,)) -> whether they keep the constraints between features, and whether
other values of the same cells might."""
Strike = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(boxes (R, C), rows (R,)) -> the boxes without cells that no legal point can have."""
Blame = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(points (R, A), rows (R,)) -> axes (R, A) of the constraints that the points break."""


@dataclass(frozen=True, eq=False)
class BoxProblem:
    """n rows over C cells.

    Attributes:
        offset: (A + 1,) first cell of each axis.
        price: (n, C) price of each cell, infinite where a row may not go.
        bits: for each form of the demand, bits with the leaves by falling value of the form.
        tables: for each form its leaf values, as `LeafBits.table` makes them.
        const: (n, Q) constants: a point is certainly good where every form + const >= 0.
        slack: (Q,) a box is certainly bad where a ceiling + const + slack < 0.
        legal: which points keep the constraints between features, or might; None: all do.
        strike: what these constraints strike out of boxes; None: nothing.
        blame: which axes of a point break them; one of these is split first.
    """

    offset: np.ndarray
    price: np.ndarray
    bits: tuple[LeafBits, ...]
    tables: tuple[np.ndarray, ...]
    const: np.ndarray
    slack: np.ndarray
    legal: Check | None = None
    strike: Strike | None = None
    blame: Blame | None = None

    @property
    def owner(self) -> np.ndarray:
        """(C,) axis of each cell."""
        return np.repeat(np.arange(len(self.offset) - 1), np.diff(self.offset))

    def forms(self, cells: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the forms (R, Q) at points (R, A)."""
        parts = [
            sums_at(bits, table[None], cells)[:, 0]
            for bits, table in zip(self.bits, self.tables, strict=True)
        ]
        return np.asarray(np.stack(parts, 1) + self.const[rows])


@dataclass(frozen=True, eq=False)
class SearchProof:
    """What a search has proved.

    Attributes:
        best: the cheapest points.
        bound: (n,) no answer costs less; infinite where none exists.
        done: (n,) bool, whether the search ended by itself.
        nodes: (n,) boxes that were looked at.
    """

    best: Incumbents
    bound: np.ndarray
    done: np.ndarray
    nodes: np.ndarray
