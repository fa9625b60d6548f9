"""A soft copy of a tree ensemble: every split sends a row both ways, by a sigmoid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.errors import UnsupportedError
from cel.models.trees.axes import Axes, Splits, find_axes
from cel.models.trees.forest import Forest
from cel.models.trees.model_matrix import ModelMatrix, read_forest
from cel.models.trees.tree_view import TreeView

__all__ = ["SoftTrees", "soft_trees"]


@dataclass(frozen=True, eq=False)
class _Level:
    """The m nodes of all trees at one depth.

    Attributes:
        number: (m,) whether a node splits a number at a threshold.
        column: (m,) its column.
        threshold: (m,) its threshold, in encoded units; values up to it go left.
        share: (d, m) for nodes that choose among categories, the columns that go left.
        children: positions of the inner nodes of the next level among left and right children.
        leaves: positions of the leaves among them.
        value: (l, K) what these leaves say.
    """

    number: Tensor
    column: Tensor
    threshold: Tensor
    share: Tensor
    children: Tensor
    leaves: Tensor
    value: Tensor


@dataclass(frozen=True, eq=False)
class SoftTrees:
    """Sums of leaf values in which every leaf counts by the product of its splits.

    Attributes:
        levels: the nodes, depth by depth.
        base: (K,) what is added, with the values of trees without a split.
        trees: number of roots with a split.
    """

    levels: tuple[_Level, ...]
    base: Tensor
    trees: int

    def __call__(self, x: Tensor, sharpness: float) -> Tensor:
        """Return sums (n, K) of encoded rows (n, d), differentiable.

        Args:
            x: the rows; one-hot blocks may be mixtures of categories.
            sharpness: slope of the sigmoids; the larger, the harder the splits.
        """
        weight = x.new_ones(len(x), self.trees)
        total = self.base.to(x).expand(len(x), -1)
        for level in self.levels:
            gap = level.threshold.to(x) - x[:, level.column]
            left = torch.where(level.number, torch.sigmoid(sharpness * gap), x @ level.share.to(x))
            both = torch.cat([weight * left, weight * (1 - left)], 1)
            total = total + both[:, level.leaves] @ level.value.to(x)
            weight = both[:, level.children]
        return total


def soft_trees(wrapped: Any, view: TreeView) -> SoftTrees:
    """Read the trees of a wrapped model again, with their inner nodes.

    Args:
        wrapped: the model.
        view: its leaves, for the order and scale of the outputs.
    """
    forest, final = read_forest(wrapped.model)
    axes, splits = find_axes(forest, ModelMatrix.of(wrapped, final), wrapped.space_)
    value = np.zeros((len(forest.column), view.value.shape[1]))
    order = list(wrapped._classes.order)
    value[:, order] = forest.value
    whole = forest.column[forest.root] < 0
    base = view.base + value[forest.root[whole]].sum(0)
    nodes, levels = forest.root[~whole], []
    while len(nodes):
        both = np.concatenate([forest.left[nodes], forest.right[nodes]])
        leaf = forest.column[both] < 0
        levels.append(_level(forest, axes, splits, nodes, leaf, value[both[leaf]]))
        nodes = both[~leaf]
    return SoftTrees(tuple(levels), torch.as_tensor(base), int((~whole).sum()))


def _level(
    forest: Forest, axes: Axes, splits: Splits, nodes: np.ndarray, leaf: np.ndarray,
    value: np.ndarray,
) -> _Level:  # fmt: skip
    """Return the splits of some nodes in encoded units."""
    space = axes.space
    threshold = np.zeros(len(nodes))
    share = np.zeros((space.width, len(nodes)))
    axis = splits.axis[nodes]
    for i, (node, a) in enumerate(zip(nodes, axis, strict=True)):
        f, table = space.features[a], splits.table[node]
        if f.one_hot:
            share[list(f.columns), i] = splits.tables[table]
        elif table < 0:
            threshold[i] = axes.edges[a][splits.cut[node]]
        else:
            threshold[i] = _place(axes.edges[a], splits.tables[table], f.name)
    column = np.array([f.columns[0] for f in space])[axis]
    number = ~axes.labels[axis]
    return _Level(
        torch.as_tensor(number), torch.as_tensor(column), torch.as_tensor(threshold),
        torch.as_tensor(share), torch.as_tensor(np.flatnonzero(~leaf)),
        torch.as_tensor(np.flatnonzero(leaf)), torch.as_tensor(value),
    )  # fmt: skip


def _place(edges: np.ndarray, left: np.ndarray, name: str) -> float:
    """Return the threshold of a split that sends the first levels (k,) of a number left."""
    count = int(left.sum())
    if not left[:count].all():
        raise UnsupportedError(f"the trees split {name!r} by category; it has no soft splits")
    if count == len(left):
        return float("inf")
    return float(edges[count - 1]) if count else float("-inf")
