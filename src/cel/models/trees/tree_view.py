"""A tree ensemble as the searches see it: cells in encoded coordinates, leaves as boxes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from cel.errors import UnsupportedError
from cel.models.trees.axes import Axes, find_axes
from cel.models.trees.forest import Forest, Link
from cel.models.trees.leaf_walk import leaf_boxes
from cel.models.trees.model_matrix import ModelMatrix, read_forest
from cel.preprocessing.imputer import FLAG
from cel.protocols import Task
from cel.search.leaf_bits import LeafBits, LeafBoxes

__all__ = ["TreeView", "agrees", "probe_rows", "tree_view"]

PROBES = 256
KEPT_ORDERS = 32  # of leaves, one per demand
LARGEST = 2**30  # bytes of the bits of one ensemble
SUMS_IN_64_BITS = 1e-6  # slack of libraries that add leaves in 64 bits
_CHUNK = 2**21  # words at a time


@dataclass(frozen=True, eq=False)
class TreeView:
    """The leaves of a model as boxes of cells, and its scores as sums of leaf values.

    Attributes:
        axes: the cells of every feature, in encoded coordinates.
        boxes: the leaves.
        value: (L, K) leaf values, in the order of the model's outputs.
        base: (K,) what is added to their sums.
        link: what the sums are: logits ("softmax"), averaged probabilities ("mean"), or values.
        slack: largest rounding error of the model's own sums, relative to 1 + |sum|.
        absent: (K,) bool, classes that the model never predicts.
        gaps: whether the trees say where missing numbers go; rows with such gaps are read then.
    """

    axes: Axes
    boxes: LeafBoxes
    value: np.ndarray
    base: np.ndarray
    link: Link
    slack: float
    absent: np.ndarray
    gaps: bool = False

    @cached_property
    def rounding(self) -> float:
        """Largest error of a score that a library makes by adding leaves in 32 bits; else 0."""
        if self.slack <= SUMS_IN_64_BITS:
            return 0.0
        leaf = self.leaves(probe_rows(self))
        tables = [self.bits.table(self.value[:, k]) for k in range(self.value.shape[1])]
        partial = max(float(np.abs(np.cumsum(t[leaf], 1)).max(initial=0.0)) for t in tables)
        return self.trees * 2.0**-24 * float(1 + np.abs(self.base).max() + partial)

    @property
    def trees(self) -> int:
        """Number of trees."""
        return self.boxes.trees

    @property
    def n_leaves(self) -> int:
        """Number of leaves of all trees."""
        return len(self.value)

    def __repr__(self) -> str:
        return (
            f"TreeView({self.trees} trees, {self.n_leaves} leaves, {self.axes.count} cells of "
            f"{len(self.axes.space)} features)"
        )

    @cached_property
    def bits(self) -> LeafBits:
        """The bits of the cells, leaves in the order of their trees."""
        if self.boxes.size > LARGEST:
            raise UnsupportedError(
                f"{self!r} would need {self.boxes.size / 2**30:.1f} GiB; limit the depth or the "
                "number of trees, or use a method for black boxes"
            )
        return LeafBits(self.boxes, self.boxes.position)

    @cached_property
    def _ranked(self) -> dict[bytes, LeafBits]:
        return {}

    def ranked_bits(self, value: np.ndarray) -> LeafBits:
        """Return the bits with the leaves by falling value (L,); a few orders are kept."""
        key = sha256(np.ascontiguousarray(value).tobytes()).digest()
        if key not in self._ranked:
            if len(self._ranked) >= KEPT_ORDERS:
                self._ranked.clear()
            self._ranked[key] = LeafBits(self.boxes, self.boxes.ranked(value))
        return self._ranked[key]

    def leaves(self, x: Any) -> np.ndarray:
        """Return the slot of the leaf of each row (n, d) in each tree, shape (n, T)."""
        rows = _as_array(x)
        size = max(1, _CHUNK // max(self.trees * self.bits.per_tree, 1))
        parts = [
            self.bits.find(self.bits.meet(self.axes.cells(rows[i : i + size])))
            for i in range(0, len(rows), size)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, self.trees), dtype=np.int64)

    def sums(self, x: Any) -> np.ndarray:
        """Return base + sums of leaf values of rows (n, d), shape (n, K), float64."""
        leaf = self.leaves(x)
        tables = [self.bits.table(self.value[:, k]) for k in range(self.value.shape[1])]
        return np.asarray(self.base + np.stack([t[leaf].sum(1) for t in tables], 1))

    def scores(self, x: Any) -> np.ndarray:
        """Return log-probabilities (n, K), or values (n, K)."""
        sums = self.sums(x)
        if self.link == "identity":
            return sums
        if self.link == "mean":
            return np.asarray(np.log(np.clip(sums, 1e-12, None)))
        top = sums.max(1, keepdims=True)
        log = sums - top - np.log(np.exp(sums - top).sum(1, keepdims=True))
        return np.asarray(np.maximum(log, np.log(1e-12)))

    def forms(self, target: int, margin: float) -> tuple[np.ndarray, np.ndarray]:
        """Return linear forms of the sums that are >= 0 where a class wins by `margin`.

        Returns:
            (weights (Q, K), constants (Q,)): one form per other class that the model can predict.
        """
        others = [k for k in range(len(self.base)) if k != target and not self.absent[k]]
        weights = np.zeros((len(others), len(self.base)))
        factor = np.exp(margin) if self.link == "mean" else 1.0
        for q, k in enumerate(others):
            weights[q, target], weights[q, k] = 1.0, -factor
        return weights, np.full(len(others), 0.0 if self.link == "mean" else -margin)


def _as_array(x: Any) -> np.ndarray:
    rows = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
    return np.asarray(rows, dtype=np.float32)


def tree_view(wrapped: Any) -> TreeView:
    """Read the trees of a wrapped model and check that they score as the model does.

    Raises:
        UnsupportedError: the model is no readable tree ensemble, a step before it mixes columns,
            or the trees do not agree with the model.
    """
    if getattr(wrapped, "hard", False):
        raise UnsupportedError(
            f"{type(wrapped.model).__name__} gives labels only; its scores are unknown"
        )
    forest, final = read_forest(wrapped.model)
    matrix = ModelMatrix.of(wrapped, final)
    axes, splits = find_axes(forest, matrix, wrapped.space_)
    boxes, leaf = leaf_boxes(forest, splits, axes)
    value, base, absent = _ordered(forest, leaf, wrapped)
    gaps = forest.missing_left is not None
    view = TreeView(axes, boxes, value, base, forest.link, forest.slack, absent, gaps)
    check_conformance(view, wrapped)
    return view


def _ordered(
    forest: Forest, leaf: np.ndarray, wrapped: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values, base and absent classes in the order of the wrapped model's outputs."""
    value, base = forest.value[leaf], forest.base
    if wrapped.task is Task.REGRESSION:
        target = wrapped.target_
        if target is not None and target.lower:
            low = np.array(target.lower)
            width = np.array(target.upper) - low
            width = np.where(width > 0, width, 1.0)
            value, base = value / width, (base - low) / width
        return value, base, np.zeros(len(base), dtype=bool)
    order = list(wrapped._classes.order)
    if value.shape[1] != len(order):
        raise UnsupportedError(
            f"the trees have {value.shape[1]} outputs for {len(order)} classes of the model"
        )
    outputs = len(wrapped.classes_)
    absent = np.ones(outputs, dtype=bool)
    absent[order] = False
    wide, start = np.zeros((len(value), outputs)), np.zeros(outputs)
    wide[:, order], start[order] = value, base
    if forest.link == "softmax":
        start[absent] = -1e3
    return wide, start, absent


def probe_rows(view: TreeView, seed: int = 0) -> np.ndarray:
    """Return decodable rows: random ones, and as many with numbers next to edges, float32."""
    space, rng = view.axes.space, np.random.default_rng(seed)
    x = np.zeros((2 * PROBES, space.width), dtype=np.float32)
    for a, f in enumerate(space):
        columns = list(f.columns)
        if f.one_hot:
            gap = f.name.endswith(FLAG) and f.name.removesuffix(FLAG) in space.names
            choices = np.flatnonzero(np.ones(2) if gap and view.gaps else f.allowed_mask)
            x[np.arange(len(x)), np.array(columns)[rng.choice(choices, len(x))]] = 1.0
            continue
        low = f.lower if np.isfinite(f.lower) else -1.0
        high = f.upper if np.isfinite(f.upper) else 1.0
        draws = rng.uniform(low, high, len(x))
        edges = view.axes.edges[a]
        inside = edges[(edges > low) & (edges < high)]
        if len(inside) and not f.is_discrete:
            near = rng.choice(inside, PROBES)
            draws[PROBES:] = np.where(
                rng.random(PROBES) < 0.5, near, np.nextafter(near, np.float32(np.inf))
            )
        x[:, columns[0]] = draws
    grid = np.array([f.is_discrete and not f.one_hot for f in space])[space.owner]
    return np.asarray(np.where(grid, _on_grid(x, space), x))


def _on_grid(x: np.ndarray, space: Any) -> np.ndarray:
    step = np.array([f.step or 1.0 for f in space], dtype=np.float32)[space.owner]
    anchor = np.array([f.anchor for f in space], dtype=np.float32)[space.owner]
    return np.asarray(anchor + step * np.rint((x - anchor) / step), dtype=np.float32)


def agrees(view: TreeView, wrapped: Any, x: np.ndarray) -> np.ndarray:
    """Tell for each row (n, d) whether the trees score it as the model does."""
    if not len(x):
        return np.ones(0, dtype=bool)
    if wrapped.task is Task.REGRESSION:
        real = np.asarray(wrapped.predict(x), dtype=np.float64).reshape(len(x), -1)
        ours = view.sums(x)
        return np.asarray((np.abs(real - ours) <= view.slack * (1 + np.abs(real))).all(1))
    real = np.asarray(wrapped.predict_proba(x), dtype=np.float64)
    ours = np.exp(view.scores(x))
    return np.asarray((np.abs(real - ours) <= view.slack * 2).all(1))


def check_conformance(view: TreeView, wrapped: Any) -> None:
    """Refuse trees that do not score as the model does, on random rows and next to edges."""
    x = probe_rows(view)
    good = agrees(view, wrapped, x)
    if not good.all():
        raise UnsupportedError(
            f"the trees read from {type(wrapped.model).__name__} score {int((~good).sum())} of "
            f"{len(x)} rows differently from the model itself; use a method for black boxes"
        )
