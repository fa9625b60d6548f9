"""The leaves of a forest as boxes of cells."""

from __future__ import annotations

import numpy as np

from cel.models.trees.axes import Axes, Splits
from cel.models.trees.forest import Forest
from cel.search.leaf_bits import LeafBoxes, mask_starts

__all__ = ["leaf_boxes"]


def leaf_boxes(forest: Forest, splits: Splits, axes: Axes) -> tuple[LeafBoxes, np.ndarray]:
    """Walk all trees level by level and keep the box of every leaf.

    A node whose value may be missing has three sides: left and right where it is known, and the
    way that a gap takes. A leaf that both known values and gaps reach is two boxes.
    """
    sizes = np.diff(axes.offset)
    masked = np.zeros(len(sizes), dtype=bool)
    masked[splits.axis[splits.table >= 0]] = True
    masked[splits.flag[splits.flag >= 0]] = True
    start = mask_starts(axes.offset, masked)
    node: np.ndarray = forest.root
    tree: np.ndarray = np.arange(len(node))
    low: np.ndarray = np.zeros((len(node), len(sizes)), dtype=np.int32)
    high: np.ndarray = np.repeat((sizes - 1).astype(np.int32)[None], len(node), 0)
    mask: np.ndarray = np.ones((len(node), int(sizes[masked].sum())), dtype=bool)
    done: list[tuple[np.ndarray, ...]] = []
    while len(node):
        leaf = forest.column[node] < 0
        done.append((node[leaf], tree[leaf], low[leaf], high[leaf], mask[leaf]))
        inner = ~leaf
        node, tree = node[inner], tree[inner]
        parts = [low[inner], high[inner], mask[inner]]
        sides = [
            _child_boxes(node, splits, start, sizes, *(p.copy() for p in parts), left=left)
            for left in (True, False)
        ]
        gaps = np.flatnonzero(splits.flag[splits.axis[node]] >= 0)
        known = start[splits.flag[splits.axis[node[gaps]]]]  # the cell that comes before the gap
        for _, _, of_side in sides:
            of_side[gaps, known + 1] = False
        sides.append((parts[0][gaps], parts[1][gaps], parts[2][gaps]))
        sides[-1][2][np.arange(len(gaps)), known] = False
        way = np.where(splits.gap_left[node], forest.left[node], forest.right[node])
        node = np.concatenate([forest.left[node], forest.right[node], way[gaps]])
        tree = np.concatenate([tree, tree, tree[gaps]])
        low, high, mask = (np.concatenate(p) for p in zip(*sides, strict=True))
        open_ = (low <= high).all(1)
        for a in np.flatnonzero(masked):
            open_ &= mask[:, start[a] : start[a] + sizes[a]].any(1)
        node, tree, low, high, mask = (v[open_] for v in (node, tree, low, high, mask))
    nodes, trees, lows, highs, masks = (np.concatenate(v) for v in zip(*done, strict=True))
    order = np.lexsort((nodes, trees))
    boxes = LeafBoxes(axes.offset, trees[order], lows[order], highs[order], masks[order], masked)
    return boxes, nodes[order]


def _child_boxes(
    node: np.ndarray,
    splits: Splits,
    start: np.ndarray,
    sizes: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    mask: np.ndarray,
    *,
    left: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    axis, table = splits.axis[node], splits.table[node]
    ordered = np.flatnonzero(table < 0)
    at, cut = axis[ordered], splits.cut[node[ordered]]
    if left:
        high[ordered, at] = np.minimum(high[ordered, at], cut)
    else:
        low[ordered, at] = np.maximum(low[ordered, at], cut + 1)
    for a in np.unique(axis[table >= 0]):
        rows = np.flatnonzero((table >= 0) & (axis == a))
        allowed = np.stack([splits.tables[i] for i in table[rows]])
        mask[rows, start[a] : start[a] + sizes[a]] &= allowed if left else ~allowed
    return low, high, mask
