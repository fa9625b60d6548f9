"""Scores of a tree ensemble along every axis at once, and the demand that they must meet."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cel.search.leaf_bits import LeafBits, Steps

__all__ = ["Demand", "cell_ceilings", "profile", "sums_at"]

_CHUNK = 2**18  # pieces of one pass: what they make of a point stays in the cache


@dataclass(frozen=True, eq=False)
class Demand:
    """What sums of leaves must reach: every `sign_q * sum[channel_q] + const_q >= 0`.

    Attributes:
        tables: (H, slots) leaf values of the channels, as `LeafBits.table` makes them.
        channel: (Q,) channel of each form.
        sign: (Q,) +1 or -1.
        const: (n, Q) constants of each row.
    """

    tables: np.ndarray
    channel: np.ndarray
    sign: np.ndarray
    const: np.ndarray

    def select(self, rows: np.ndarray) -> Demand:
        """Return the demand of some rows; row numbers may repeat."""
        return replace(self, const=self.const[rows])

    def margin(self, sums: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return how far sums (R, ..., H) of the given rows (R,) are inside, shape (R, ...)."""
        out: np.ndarray | None = None
        for q, h in enumerate(self.channel):
            const = self.const[rows, q].reshape(-1, *[1] * (sums.ndim - 2))
            form = self.sign[q] * sums[..., h] + const
            out = form if out is None else np.minimum(out, form)
        if out is None:  # no other class: everything is inside
            return np.full(sums.shape[:-1], np.inf)
        return out


def sums_at(bits: LeafBits, tables: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the sums (R, H) of points given by their cells (R, A)."""
    slot = bits.find(bits.meet(cells))
    return np.stack([t[slot].sum(1) for t in tables], 1)


def profile(
    bits: LeafBits, tables: np.ndarray, cells: np.ndarray, axes: np.ndarray | None = None
) -> np.ndarray:
    """Return what the sums become when one axis moves to another cell, shape (R, C, H).

    Entry (r, c) is the score of point r with the axis of cell c moved to c and all others where
    they are; at the point's own cells it is the point's own score.

    Args:
        bits: bits of the cells.
        tables: (H, slots) leaf values.
        cells: (R, A) the points, cells numbered through.
        axes: (k,) the axes that may move, ascending; all by default. Cells of the others get the
            score of the point itself.
    """
    if axes is not None and len(axes) == cells.shape[1]:
        axes = None
    steps = bits.steps if axes is None else bits.steps_on(axes)
    size = max(1, _CHUNK // max(len(steps.cell), 1))
    parts = [
        _profile(bits, steps, tables, cells[i : i + size], axes)
        for i in range(0, len(cells), size)
    ]
    if not parts:
        return np.zeros((0, len(bits.words), len(tables)))
    return np.concatenate(parts)


def _profile(
    bits: LeafBits, steps: Steps, tables: np.ndarray, cells: np.ndarray, axes: np.ndarray | None
) -> np.ndarray:
    if axes is None:
        others, meet = _all_but_one(bits.words[cells])
    else:
        held = bits.meet(np.delete(cells, axes, axis=1))
        others, meet = _all_but_one(bits.words[cells[:, axes]], held)  # (R, k, T W)
    sizes = np.diff(bits.boxes.offset)
    n, per = len(cells), bits.per_tree
    seen = others.reshape(n, -1, per)[:, steps.place].reshape(n, -1)
    seen &= steps.words
    slot = bits.find(seen, steps.tree)
    home = bits.find(meet)
    out = np.empty((n, len(bits.words), len(tables)))
    for h, table in enumerate(tables):
        value = table[slot]
        jump = value[:, : steps.count] - value[:, steps.before]
        along = np.zeros((n, len(bits.words)))
        if steps.count:
            along[:, steps.at] = np.add.reduceat(jump, steps.starts, axis=1)
        np.cumsum(along, axis=1, out=along)
        start = np.take_along_axis(along, cells, 1) - table[home].sum(1)[:, None]
        along -= np.repeat(start, sizes, axis=1)
        out[:, :, h] = along
    return out


def cell_ceilings(
    bits: LeafBits, table: np.ndarray, boxes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return upper bounds of a sum in boxes, as a whole and with one axis at a single cell.

    Args:
        bits: bits with the leaves by falling value.
        table: (slots,) leaf values.
        boxes: (R, C) cells of the boxes; every axis has some.

    Returns:
        ((R,) of the boxes, (R, C) of the boxes with the axis of each cell at that cell alone; an
        axis on which every box has one cell has the bounds of the boxes).
    """
    offset = bits.boxes.offset
    several = np.add.reduceat(boxes, offset[:-1], axis=1, dtype=np.int64) > 1
    open_ = np.asarray(several.any(0))
    axes, steps, n = np.flatnonzero(open_), bits.steps, len(boxes)
    common: np.ndarray | None = None
    if len(axes) < len(open_):
        steps = bits.steps_on(axes)
        cell = np.stack([b + boxes[:, b:e].argmax(1) for b, e in _spans(offset, ~open_)], 1)
        common = bits.meet(cell)
    others, meet = _all_but_one(bits.unions(boxes, axes), common)
    best = table[bits.find(meet)]  # (R, T)
    total = best.sum(1)
    seen = others.reshape(n, -1, bits.per_tree)[:, steps.place].reshape(n, -1)
    seen &= steps.words
    value = table[bits.find(seen, steps.tree)]
    along = np.zeros((n, len(bits.words)))
    if steps.count:
        jump = value[:, : steps.count] - value[:, steps.before]
        along[:, steps.at] = np.add.reduceat(jump, steps.starts, axis=1)
        # An axis begins at the first pieces of the trees that it matters to.
        first = value[:, steps.count :] - best[:, steps.tree[steps.count :]]
        axis, begins = np.unique(steps.axis[steps.count :], return_index=True)
        along[:, bits.boxes.offset[axis]] += np.add.reduceat(first, begins, axis=1)
    np.cumsum(along, axis=1, out=along)
    before = np.zeros((n, len(offset) - 1))
    before[:, 1:] = along[:, offset[1:-1] - 1]
    along += np.repeat(total[:, None] - before, np.diff(offset), axis=1)
    return total, along


def _spans(offset: np.ndarray, which: np.ndarray) -> list[tuple[int, int]]:
    """Return the first cell and the end of some axes."""
    return [(int(offset[a]), int(offset[a + 1])) for a in np.flatnonzero(which)]


def _all_but_one(
    own: np.ndarray, common: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each axis, the bits that all other axes allow, and those that all allow.

    Args:
        own: (R, k, T W) bits that the axes allow.
        common: (R, T W) bits that further axes allow; all by default.
    """
    others = np.empty_like(own)
    size = (own.shape[0], own.shape[2])
    before = np.full(size, np.iinfo(np.uint64).max, own.dtype) if common is None else common
    for a in range(own.shape[1]):
        others[:, a] = before
        before &= own[:, a]
    after = np.full_like(before, np.iinfo(np.uint64).max)
    for a in range(own.shape[1] - 1, 0, -1):
        after &= own[:, a]
        others[:, a - 1] &= after
    return others, before
