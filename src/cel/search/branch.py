"""Best-first branch and bound over boxes of cells, with bounds that hold for certain.

A state is a box: a set of cells for each axis. Its price is at least the sum of the cheapest cells
of its axes; what a tree sum can reach in it is at most the sum of the best leaves that the box
meets. States are popped in the order of their floors, many rows together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cel.search.leaf_bits import LeafBits

__all__ = ["BoxProblem", "ceilings"]

_CHUNK = 2**20  # words at a time


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
    """

    offset: np.ndarray
    price: np.ndarray
    bits: tuple[LeafBits, ...]
    tables: tuple[np.ndarray, ...]
    const: np.ndarray
    slack: np.ndarray

    @property
    def axes(self) -> int:
        """Number of axes."""
        return len(self.offset) - 1


def _union(words: np.ndarray, boxes: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return the bits (R, A, T W) that some cell of each axis of the boxes (R, C) allows."""
    out = np.empty((len(boxes), len(offset) - 1, words.shape[1]), dtype=np.uint64)
    size = max(1, _CHUNK // words.size)
    for i in range(0, len(boxes), size):
        part = np.where(boxes[i : i + size, :, None], words, np.uint64(0))
        np.bitwise_or.reduceat(part, offset[:-1], axis=1, out=out[i : i + size])
    return out


def ceilings(problem: BoxProblem, boxes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return upper bounds of the margin in boxes (R, C) of some rows, shape (R,)."""
    out = np.full(len(boxes), np.inf)
    for q, (bits, table) in enumerate(zip(problem.bits, problem.tables, strict=True)):
        meet = np.bitwise_and.reduce(_union(bits.words, boxes, problem.offset), axis=1)
        best = table[bits.find(meet)].sum(1)
        out = np.minimum(out, best + problem.const[rows, q] + problem.slack[q])
    return out
