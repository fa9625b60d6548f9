"""Leaves of tree ensembles as bits: which leaf of each tree holds a point or the best of a box.

Every tree owns W words of 64 bits, one bit per leaf. A cell of an axis keeps the bits of the
leaves that do not exclude it. Anding the cells of a point leaves exactly one bit per tree: its
leaf (the idea of QuickScorer; Lucchese et al., SIGIR 2015). With leaves ordered by falling value,
the lowest bit that a box leaves is the best leaf that the box can reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["LeafBits", "LeafBoxes", "LeafConditions", "Steps", "mask_starts"]

KEPT_SETS = 8  # of axes whose pieces are kept
_SPREAD = np.uint64(0x03F79D71B4CB0A89)  # every power of two times this has other top six bits
_TOP = np.uint64(58)
_SLOT = ((np.uint64(1) << np.arange(64, dtype=np.uint64)) * _SPREAD) >> _TOP  # (64,) of bit b


@dataclass(frozen=True, eq=False)
class LeafBoxes:
    """Leaves as boxes of cells. Cells of all axes are numbered through.

    Attributes:
        offset: (A + 1,) first cell of each axis.
        tree: (L,) tree of each leaf, ascending.
        low: (L, A) first cell of the leaf's range, local to the axis.
        high: (L, A) last cell of the range.
        mask: (L, F) bool, cells of the axes that are no ranges, one after the other.
        masked: (A,) bool, which axes these are; their `low` and `high` span everything.
    """

    offset: np.ndarray
    tree: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mask: np.ndarray
    masked: np.ndarray

    @property
    def trees(self) -> int:
        """Number of trees."""
        return int(self.tree[-1]) + 1 if len(self.tree) else 0

    @cached_property
    def position(self) -> np.ndarray:
        """(L,) place of each leaf in its tree."""
        first = np.searchsorted(self.tree, np.arange(self.trees))
        return np.asarray(np.arange(len(self.tree)) - first[self.tree])

    @property
    def words(self) -> int:
        """64-bit words per tree."""
        return int(self.position.max(initial=0)) // 64 + 1

    @property
    def size(self) -> int:
        """Bytes of one `LeafBits`."""
        return int(self.offset[-1]) * self.trees * self.words * 8

    @cached_property
    def mask_start(self) -> np.ndarray:
        """(A,) first column of each masked axis in `mask`, -1 for the others."""
        return mask_starts(self.offset, self.masked)

    @cached_property
    def conditions(self) -> LeafConditions:
        """The leaves as lists of conditions."""
        return LeafConditions(self)

    def ranked(self, value: np.ndarray) -> np.ndarray:
        """Return places (L,) of the leaves in their trees by falling value; ties keep order."""
        order = np.lexsort((np.arange(len(value)), -value, self.tree))
        place = np.empty(len(value), dtype=np.int64)
        place[order] = self.position
        return place


def mask_starts(offset: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Return (A,) first column of each masked axis, -1 for the others."""
    sizes = np.where(masked, np.diff(offset), 0)
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.asarray(np.where(masked, start, -1))


class LeafConditions:
    """The conditions of all leaves, one leaf after the other.

    Attributes:
        tree: (L,) tree of each leaf.
        start: (L,) first condition of each leaf.
        count: (L,) how many it has.
        axis: (P,) axis of each condition.
        low: (P,) first cell of a range, numbered through.
        high: (P,) last cell of a range.
        which: (P,) number of a set, -1 for ranges.
        sets: for each axis with sets (axis, first number, (G, cells of the axis) bool).
    """

    def __init__(self, boxes: LeafBoxes) -> None:
        self.boxes, self.tree = boxes, boxes.tree
        offset, size = boxes.offset, np.diff(boxes.offset)
        parts, numbers = [], 0
        self.sets: list[tuple[int, int, np.ndarray]] = []
        for a in range(len(size)):
            low, high, mask = boxes.low[:, a], boxes.high[:, a], None
            if boxes.masked[a]:
                mask = boxes.mask[:, boxes.mask_start[a] : boxes.mask_start[a] + size[a]]
                low, high = mask.argmax(1), size[a] - 1 - mask[:, ::-1].argmax(1)
                if (mask.sum(1) == high - low + 1).all():
                    mask = None  # every set is a range
            full = (high - low + 1 == size[a]) if mask is None else mask.all(1)
            leaf = np.flatnonzero(~full)
            which = np.full(len(leaf), -1)
            if mask is not None and len(leaf):
                distinct, place = np.unique(mask[leaf], axis=0, return_inverse=True)
                which = numbers + place.reshape(-1)
                self.sets.append((a, numbers, distinct))
                numbers += len(distinct)
            axis = np.full(len(leaf), a)
            parts.append((leaf, axis, offset[a] + low[leaf], offset[a] + high[leaf], which))
        order = np.argsort(np.concatenate([p[0] for p in parts]), kind="stable")
        leaf, self.axis, self.low, self.high, self.which = (
            np.concatenate(p)[order] for p in zip(*parts, strict=True)
        )
        self.count = np.bincount(leaf, minlength=len(self.tree))
        self.start = np.cumsum(self.count) - self.count
        self.in_sets = numbers


class LeafBits:
    """The bits of every cell, for one order of the leaves.

    Args:
        boxes: the leaves.
        place: (L,) bit of each leaf in its tree.

    Attributes:
        words: (C, T * W) uint64, the leaves that each cell allows.
        slot: (L,) where a leaf is in the flat tables that `table` makes.
    """

    def __init__(self, boxes: LeafBoxes, place: np.ndarray) -> None:
        self.boxes, self.trees, self.per_tree = boxes, boxes.trees, boxes.words
        cells = int(boxes.offset[-1])
        word = boxes.tree * self.per_tree + place // 64  # (L,)
        bit = np.uint64(1) << (place % 64).astype(np.uint64)
        self.words = np.zeros((cells, self.trees * self.per_tree), dtype=np.uint64)
        for a, (start, stop) in enumerate(zip(boxes.offset[:-1], boxes.offset[1:], strict=True)):
            part = self.words[start:stop]
            if boxes.masked[a]:
                column = boxes.mask_start[a]
                for k in range(stop - start):
                    here = boxes.mask[:, column + k]
                    np.add.at(part[k], word[here], bit[here])
                continue
            # A leaf's bit changes where its range begins and after it ends.
            np.add.at(part, (boxes.low[:, a], word), bit)
            ends = boxes.high[:, a] + 1 < stop - start
            np.add.at(part, (boxes.high[ends, a] + 1, word[ends]), bit[ends])
            np.bitwise_xor.accumulate(part, axis=0, out=part)
        self.slot = word * 64 + _SLOT[place % 64].astype(np.int64)
        self._tree_slot = (np.arange(self.trees) * self.per_tree * 64).astype(np.int64)

    def table(self, value: np.ndarray) -> np.ndarray:
        """Return a flat table of leaf values (L,) for `look_up`."""
        out = np.zeros(self.trees * self.per_tree * 64)
        out[self.slot] = value
        return out

    def find(self, words: np.ndarray, tree: np.ndarray | None = None) -> np.ndarray:
        """Return the slot of the lowest bit of each tree.

        Args:
            words: (..., m * W) with at least one bit per tree.
            tree: (m,) trees that the words belong to; all of them by default.
        """
        first = self._tree_slot if tree is None else self._tree_slot[tree]
        if self.per_tree == 1:
            low = words & (~words + np.uint64(1))
            low *= _SPREAD
            low >>= _TOP
            return np.asarray(low.view(np.int64) + first)
        count = words.shape[-1] // self.per_tree  # named, since there may be no points at all
        by_tree = words.reshape(*words.shape[:-1], count, self.per_tree)
        k = (by_tree != 0).argmax(-1)
        one = np.take_along_axis(by_tree, k[..., None], -1)[..., 0]
        low = one & (~one + np.uint64(1))
        low *= _SPREAD
        low >>= _TOP
        return np.asarray(low.view(np.int64) + first + k * 64)

    def meet(self, cells: np.ndarray) -> np.ndarray:
        """Return the bits (n, T * W) that all cells (n, A) of each point allow."""
        out: np.ndarray = self.words[cells[:, 0]]
        for a in range(1, cells.shape[1]):
            out &= self.words[cells[:, a]]
        return out

    @cached_property
    def _spans(self) -> list[np.ndarray]:
        """Level k: the leaves that some of 2^k cells from each cell on allow, inside its axis."""
        sizes = np.diff(self.boxes.offset)
        widest = int(sizes[~self.boxes.masked].max(initial=1))
        out = [self.words]
        while 2 ** len(out) <= widest:
            step = 2 ** (len(out) - 1)
            wider = out[-1].copy()
            wider[:-step] |= out[-1][step:]
            out.append(wider)
        return out

    def unions(self, boxes: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        """Return the leaves (R, k, T W) that some cell of each axis of boxes (R, C) allows.

        On axes of ranges all cells between the first and the last one count, which can only add
        leaves.

        Args:
            boxes: (R, C) cells of the boxes; every axis has some.
            axes: (k,) axes that are asked for; all of them by default.
        """
        offset, cells = self.boxes.offset, len(self.words)
        axes = np.arange(len(offset) - 1) if axes is None else axes
        begin, place = offset[:-1], np.arange(cells)
        first = np.minimum.reduceat(np.where(boxes, place, cells), begin, axis=1)[:, axes]
        last = np.maximum.reduceat(np.where(boxes, place, -1), begin, axis=1)[:, axes]
        out = np.empty((*first.shape, self.words.shape[1]), dtype=np.uint64)
        level = np.frexp(last - first + 1)[1] - 1  # the largest power of two that fits
        single = first == last
        for k, table in enumerate(self._spans):
            row, axis = np.nonzero((level == k) & (single | ~self.boxes.masked[axes]))
            if len(row):
                low, high = first[row, axis], last[row, axis] + 1 - 2**k
                out[row, axis] = table[low] | table[high] if k else table[low]
        for i in np.flatnonzero(self.boxes.masked[axes]):
            many = np.flatnonzero(~single[:, i])
            if len(many):
                begins, ends = offset[axes[i]], offset[axes[i] + 1]
                row, cell = np.nonzero(boxes[many, begins:ends])
                starts = np.flatnonzero(np.diff(row, prepend=-1))
                words = self.words[begins + cell]
                out[many, i] = np.bitwise_or.reduceat(words, starts, axis=0)
        return out

    @cached_property
    def steps(self) -> Steps:
        """Where trees change along the axes."""
        return Steps(self)

    @cached_property
    def _some_steps(self) -> dict[bytes, Steps]:
        return {}

    def steps_on(self, axes: np.ndarray) -> Steps:
        """Return the pieces of some axes (k,), see `Steps.on`; those of a few sets are kept."""
        key = axes.tobytes()
        if key not in self._some_steps:
            if len(self._some_steps) >= KEPT_SETS:
                self._some_steps.clear()
            self._some_steps[key] = self.steps.on(axes)
        return self._some_steps[key]


class Steps:
    """Pieces of the axes on which a tree's bits are constant.

    Piece i belongs to tree `tree[i]` and begins at cell `cell[i]`. The pieces `step` follow the
    pieces `before` of the same tree and axis, in the order of their cells.
    """

    def __init__(self, bits: LeafBits) -> None:
        by_tree = bits.words.reshape(len(bits.words), bits.trees, bits.per_tree)
        offset, self.trees, self.per_tree = bits.boxes.offset, bits.trees, bits.per_tree
        differs = np.zeros((len(by_tree), bits.trees), dtype=bool)
        differs[1:] = (by_tree[1:] != by_tree[:-1]).any(-1)
        differs[offset[:-1]] = False
        cell, tree = np.nonzero(differs)  # by cell
        axis = np.searchsorted(offset, cell, side="right") - 1
        key = axis * bits.trees + tree
        pairs, which = np.unique(key, return_inverse=True)
        # The first piece of every (axis, tree) that changes at all comes after the steps.
        self.cell = np.concatenate([cell, offset[pairs // bits.trees]])
        self.tree = np.concatenate([tree, pairs % bits.trees])
        self.axis = np.concatenate([axis, pairs // bits.trees])
        self.count = len(cell)
        order = np.lexsort((cell, key))
        before = np.empty(len(cell), dtype=np.int64)
        same = np.zeros(len(cell), dtype=bool)
        same[1:] = key[order][1:] == key[order][:-1]
        before[order] = np.where(same, np.roll(order, 1), len(cell) + which[order])
        self.before = before
        words = by_tree[self.cell, self.tree]  # (P, W)
        self.words = np.ascontiguousarray(words.reshape(-1))
        self.place = self.axis * bits.trees + self.tree
        self.at, self.starts = np.unique(cell, return_index=True)

    def on(self, axes: np.ndarray) -> Steps:
        """Return the pieces of some axes (k,), ascending; `place` counts these axes only."""
        out = object.__new__(Steps)
        keep = np.isin(self.axis, axes)
        new = np.cumsum(keep) - 1
        out.cell, out.tree, out.axis = self.cell[keep], self.tree[keep], self.axis[keep]
        out.count = int(keep[: self.count].sum())
        out.before = new[self.before[keep[: self.count]]]
        out.words = np.ascontiguousarray(
            self.words.reshape(len(keep), self.per_tree)[keep].reshape(-1)
        )
        out.trees, out.per_tree = self.trees, self.per_tree
        out.place = np.searchsorted(axes, out.axis) * self.trees + out.tree
        out.at, out.starts = np.unique(out.cell[: out.count], return_index=True)
        return out
