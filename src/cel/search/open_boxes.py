"""Boxes of cells that a branch and bound has open or in work, and the leaves that they may use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cel.search.leaf_costs import expand
from cel.search.leaf_duals import LeafLists

__all__ = ["BoxesAtWork", "LeafPool", "OpenBoxes", "renumber"]

_POOL = 2**26  # leaves


@dataclass(frozen=True, eq=False)
class OpenBoxes:
    """Open boxes: packed cells (k, bytes), rows, floors, and their leaves in the pool."""

    box: np.ndarray
    row: np.ndarray
    floor: np.ndarray
    start: np.ndarray
    count: np.ndarray

    def select(self, which: np.ndarray | slice) -> OpenBoxes:
        """Return some of them."""
        return OpenBoxes(
            self.box[which], self.row[which], self.floor[which], self.start[which],
            self.count[which],
        )  # fmt: skip

    @classmethod
    def joined(cls, parts: list[OpenBoxes]) -> OpenBoxes:
        """Return the boxes of all parts."""
        return cls(
            *(
                np.concatenate([getattr(p, name) for p in parts])
                for name in ("box", "row", "floor", "start", "count")
            )
        )


@dataclass(frozen=True, eq=False)
class BoxesAtWork:
    """Boxes in work: cells (R, C), rows, floors, least price per axis (R, A), leaves."""

    boxes: np.ndarray
    rows: np.ndarray
    floor: np.ndarray
    least: np.ndarray
    lists: LeafLists | None

    def select(self, keep: np.ndarray) -> BoxesAtWork:
        """Return the boxes that a mask (R,) keeps."""
        lists = self.lists
        if lists is not None and not keep.all():
            lists = lists.only(keep)
        return BoxesAtWork(
            self.boxes[keep], self.rows[keep], self.floor[keep], self.least[keep], lists
        )


class LeafPool:
    """Lists of leaves that boxes left to their parts; begins with the list of all leaves."""

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves
        self.data = np.arange(max(leaves, 1), dtype=np.int32)
        self.size = leaves

    def lists(self, start: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return leaves and, for each, the number of its list."""
        at, which = expand(start, count)
        return self.data[at].astype(np.int64), which

    def put(self, leaf: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keep lists one after the other; where the pool is full they stand for all leaves."""
        if self.size + len(leaf) > _POOL:
            return np.zeros_like(count), np.full_like(count, self.leaves)
        if self.size + len(leaf) > len(self.data):
            more = np.empty(max(len(self.data), len(leaf)), dtype=np.int32)
            self.data = np.concatenate([self.data, more])
        self.data[self.size : self.size + len(leaf)] = leaf
        start = self.size + np.cumsum(count) - count
        self.size += len(leaf)
        return start, count


def renumber(leaf: np.ndarray, box: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the leaves of the boxes that a mask (R,) keeps, and their new numbers."""
    mine = keep[box]
    return leaf[mine], (np.cumsum(keep) - 1)[box[mine]]
