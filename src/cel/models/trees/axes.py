"""Axes and cells: where, in encoded coordinates, a tree model can change its mind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cel.errors import UnsupportedError
from cel.models.trees.forest import Forest
from cel.preprocessing.imputer import companions
from cel.space import Feature, FeatureSpace
from cel.space.constraints import LinearRelation

__all__ = ["Axes", "Splits", "find_axes"]

MOST_LEVELS = 4096
MOST_RELATED = 512
_SIGN = np.int32(-(2**31))


@dataclass(frozen=True, eq=False)
class Axes:
    """One axis per feature of the space, cut into cells on which every tree is constant.

    A cell of a number is an interval of 32-bit values, `(edge before, edge]`; a cell of labels is
    one category or rank. Cells of all axes are numbered through: axis a has the cells
    `offset[a] .. offset[a + 1] - 1`.

    Attributes:
        space: the encoded features.
        offset: (A + 1,) first cell of each axis.
        edges: for each axis the float32 upper ends of all cells but the last.
        labels: (A,) bool, whether the cells are categories of a one-hot block.
        levels: (A,) bool, whether every cell is a single value.
    """

    space: FeatureSpace
    offset: np.ndarray
    edges: tuple[np.ndarray, ...]
    labels: np.ndarray
    levels: np.ndarray

    @property
    def count(self) -> int:
        """Number of cells of all axes."""
        return int(self.offset[-1])

    @property
    def owner(self) -> np.ndarray:
        """(C,) axis of each cell."""
        return np.repeat(np.arange(len(self.offset) - 1), np.diff(self.offset))

    def cells(self, x: np.ndarray) -> np.ndarray:
        """Return the cell of each row (n, d) on each axis, shape (n, A), numbered through."""
        rows = np.asarray(x, dtype=np.float32)
        out = np.empty((len(rows), len(self.edges)), dtype=np.int64)
        for a, f in enumerate(self.space):
            if self.labels[a]:
                out[:, a] = rows[:, list(f.columns)].argmax(1)
            else:
                out[:, a] = np.searchsorted(self.edges[a], rows[:, f.columns[0]], side="left")
        return np.asarray(out + self.offset[:-1])


@dataclass(frozen=True, eq=False)
class Splits:
    """Where the nodes of a forest cut the axes.

    Attributes:
        axis: (N,) axis of each node, -1 for leaves.
        cut: (N,) last cell that goes left, local to its axis, for nodes that cut an order.
        table: (N,) position in `tables` of nodes that choose among cells, else -1.
        tables: (cells of the axis,) bool, which cells go left.
        flag: (A,) axis that says whether the value of an axis is missing, -1 where none does.
        gap_left: (N,) bool, whether a missing value goes left.
    """

    axis: np.ndarray
    cut: np.ndarray
    table: np.ndarray
    tables: tuple[np.ndarray, ...]
    flag: np.ndarray
    gap_left: np.ndarray


def find_axes(forest: Forest, matrix: Any, space: FeatureSpace) -> tuple[Axes, Splits]:
    """Return axes and splits; `matrix` maps encoded rows to the columns that the trees split."""
    inner = np.flatnonzero(forest.column >= 0)
    if len(inner) and forest.column.max() >= len(matrix.owner):
        raise UnsupportedError(
            f"the trees split column {int(forest.column.max())} of a matrix that has "
            f"{len(matrix.owner)}"
        )
    axis = np.full(len(forest.column), -1)
    axis[inner] = matrix.owner[forest.column[inner]]
    by_subset = np.zeros(len(space), dtype=bool)
    by_subset[axis[forest.subset >= 0]] = True
    related = _related(space)
    levels = {a: _levels(f, bool(by_subset[a]), related) for a, f in enumerate(space)}
    finite = {a: rows for a, rows in levels.items() if rows is not None}
    cut = np.full(len(axis), -1)
    edges, sizes = [], []
    found = _number_edges(forest, matrix, space, axis, finite)
    for a, f in enumerate(space):
        if a in finite:
            values = finite[a]
            edges.append(np.zeros(0, np.float32) if f.one_hot else _midpoints(values))
            sizes.append(len(values))
            continue
        nodes, tau = found[a]
        distinct = np.unique(tau)
        edges.append(distinct)
        sizes.append(len(distinct) + 1)
        cut[nodes] = np.searchsorted(distinct, tau)
    table, tables = _tables(forest, matrix, space, axis, finite)
    labels = np.array([f.one_hot for f in space], dtype=bool)
    offset = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    single = np.array([a in finite for a in range(len(space))], dtype=bool)
    flag, gap_left = _gaps(forest, matrix, space, axis)
    splits = Splits(axis, cut, table, tables, flag, gap_left)
    return Axes(space, offset, tuple(edges), labels, single), splits


def _related(space: FeatureSpace) -> set[str]:
    """Return whole-number features of linear relations: each of their values gets a cell."""
    names = {n for c in space.constraints if isinstance(c, LinearRelation) for n in c.features}
    few = {n for n in names if space[n].step and _count(space[n]) <= MOST_RELATED}
    return {n for n in few if _count(space[n]) > 0}


def _count(f: Feature) -> int:
    if not (f.step and np.isfinite(f.upper - f.anchor)):
        return 0
    return round((f.upper - f.anchor) / f.step) + 1


def _levels(f: Feature, by_subset: bool, related: set[str]) -> np.ndarray | None:
    """Return the encoded values of a feature that has few of them: (k,), or one row per label."""
    if f.one_hot:
        return np.eye(len(f.columns), dtype=np.float32)
    if f.kind == "ordinal":
        count = len(f.categories)
    elif f.name in related or (by_subset and f.step):
        count = _count(f)
    elif by_subset:
        raise UnsupportedError(
            f"the trees split {f.name!r} by category, but the space says it is continuous; "
            "declare it categorical or integer"
        )
    else:
        return None
    if not 0 < count <= MOST_LEVELS:
        raise UnsupportedError(f"{f.name!r} has {count} levels; at most {MOST_LEVELS} are read")
    first = f.anchor
    levels = np.float32(first) + np.float32(f.step or 1.0) * np.arange(count)
    return np.asarray(levels, dtype=np.float32)


def _midpoints(values: np.ndarray) -> np.ndarray:
    middle = (values[1:].astype(np.float64) + values[:-1]) / 2
    return np.asarray(middle, dtype=np.float32)


def _neutral(space: FeatureSpace) -> np.ndarray:
    """Return one decodable row (d,)."""
    x = np.zeros(space.width, dtype=np.float32)
    for f in space:
        if f.one_hot:
            x[f.columns[0]] = 1.0
        elif f.step:
            x[f.columns[0]] = f.anchor
        else:
            x[f.columns[0]] = min(max(0.0, f.lower), f.upper)
    return x


# -- labels ----------------------------------------------------------------------------------


def _tables(
    forest: Forest, matrix: Any, space: FeatureSpace, axis: np.ndarray, finite: dict[int, Any]
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Ask for every level of every label feature which nodes it goes left at."""
    table = np.full(len(axis), -1)
    tables: list[np.ndarray] = []
    for a, values in finite.items():
        nodes = np.flatnonzero(axis == a)
        if not len(nodes):
            continue
        rows = np.repeat(_neutral(space)[None], len(values), 0)
        rows[:, list(space.features[a].columns)] = values.reshape(len(values), -1)
        seen = matrix(rows)[:, forest.column[nodes]]  # (k, m)
        left = _left(forest, nodes, seen)
        distinct, which = np.unique(left.T, axis=0, return_inverse=True)
        table[nodes] = len(tables) + which.reshape(-1)
        tables += list(distinct)
    return table, tuple(tables)


def _left(forest: Forest, nodes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Tell for what the columns of some nodes (m,) hold (k, m) whether it goes left."""
    left = np.zeros(seen.shape, dtype=bool)
    numbers = forest.subset[nodes] < 0
    left[:, numbers] = forest.goes_left(nodes[numbers], seen[:, numbers])
    for j in np.flatnonzero(~numbers):
        left[:, j] = np.isin(seen[:, j], forest.subsets[forest.subset[nodes[j]]])
    lost = np.isnan(seen)
    if lost.any() and forest.missing_left is not None:
        left = np.where(lost, forest.missing_left[nodes], left)
    return left


def _gaps(
    forest: Forest, matrix: Any, space: FeatureSpace, axis: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ask where missing values of numbers and ranks go; see `Splits`.

    A model may send them a way of its own, or see what a step before it fills in. Where the
    library does not tell, the axis has no flag: rows with such a gap are not read then.
    """
    flag, gap_left = np.full(len(space), -1), np.zeros(len(axis), dtype=bool)
    for a, f in enumerate(space):
        nodes = np.flatnonzero(axis == a)
        pair = companions(space, f.name)
        if len(pair) < 2 or not len(nodes):
            continue
        row = _neutral(space)[None]
        row[:, list(space[pair[1]].columns)] = (0.0, 1.0)
        seen = matrix(row)[:, forest.column[nodes]]
        if np.isnan(seen).any() and forest.missing_left is None:
            continue
        flag[a] = space.names.index(pair[1])
        gap_left[nodes] = _left(forest, nodes, seen)[0]
    return flag, gap_left


# -- numbers ---------------------------------------------------------------------------------


def _number_edges(
    forest: Forest, matrix: Any, space: FeatureSpace, axis: np.ndarray, finite: dict[int, Any]
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return for each number axis its nodes and, for each, the largest float32 that goes left.

    Decoding is monotone, so that value exists; it is found by bisection through the model's own
    decoding, all thresholds at once. No threshold is moved and no operator is rewritten.
    """
    wanted: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    for a in range(len(space)):
        if a not in finite:
            nodes = np.flatnonzero(axis == a)
            keys = np.stack([forest.column[nodes], forest.threshold[nodes]])
            _, first, which = np.unique(keys, axis=1, return_index=True, return_inverse=True)
            wanted[a] = (nodes, nodes[first], which.reshape(-1))
    most = max((len(first) for _, first, _ in wanted.values()), default=0)
    if not most:
        return {a: (nodes, np.zeros(0, np.float32)) for a, (nodes, _, _) in wanted.items()}
    search = _Bisection(forest, matrix, space, {a: f for a, (_, f, _) in wanted.items()}, most)
    tau = search.run()
    return {a: (nodes, tau[a][which]) for a, (nodes, _, which) in wanted.items()}


class _Bisection:
    """Bisects the thresholds of all axes together: row i of the probe tries the i-th of each."""

    def __init__(
        self, forest: Forest, matrix: Any, space: FeatureSpace, first: dict[int, Any], most: int
    ) -> None:
        self.forest, self.matrix, self.space = forest, matrix, space
        self.first = {a: nodes for a, nodes in first.items() if len(nodes)}
        self.empty = [a for a, nodes in first.items() if not len(nodes)]
        self.rows = np.repeat(_neutral(space)[None], most, 0)

    def left(self, z: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Tell for values (m,) of each axis whether they go left at its nodes."""
        rows = self.rows.copy()
        for a, values in z.items():
            rows[: len(values), self.space.features[a].columns[0]] = values
        seen = self.matrix(rows)
        out = {}
        for a, nodes in self.first.items():
            values = seen[np.arange(len(nodes)), self.forest.column[nodes]]
            out[a] = self.forest.goes_left(nodes, values)
        return out

    def run(self) -> dict[int, np.ndarray]:
        low, high = self._bracket()
        for _ in range(33):
            middle = {a: _middle(low[a], high[a]) for a in low}
            left = self.left({a: _from_order(m) for a, m in middle.items()})
            low = {a: np.where(left[a], middle[a], low[a]) for a in low}
            high = {a: np.where(left[a], high[a], middle[a]) for a in low}
        return {a: _from_order(v) for a, v in low.items()} | {
            a: np.zeros(0, np.float32) for a in self.empty
        }

    def _bracket(self) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Return 64-bit orders of values below and above each threshold."""
        reach = {a: self._reach(self.space.features[a]) for a in self.first}
        low = {a: np.full(len(n), reach[a][0], np.float32) for a, n in self.first.items()}
        high = {a: np.full(len(n), reach[a][1], np.float32) for a, n in self.first.items()}
        for grow in range(6):
            left_low, left_high = self.left(low), self.left(high)
            if all(v.all() for v in left_low.values()) and not any(
                v.any() for v in left_high.values()
            ):
                break
            for a, (a_low, a_high) in reach.items():
                width = (a_high - a_low) * 8.0 ** (grow + 1)
                low[a] = np.where(left_low[a], low[a], a_low - width).astype(np.float32)
                high[a] = np.where(left_high[a], a_high + width, high[a]).astype(np.float32)
        orders_low = {a: _to_order(v) for a, v in low.items()}
        orders_high = {a: _to_order(v) for a, v in high.items()}
        return orders_low, orders_high

    @staticmethod
    def _reach(f: Feature) -> tuple[float, float]:
        width = f.upper - f.lower
        width = width if np.isfinite(width) and width > 0 else 1.0
        low = f.lower if np.isfinite(f.lower) else -1.0
        high = f.upper if np.isfinite(f.upper) else 1.0
        return low - width, high + width


def _to_order(values: np.ndarray) -> np.ndarray:
    """Return whole numbers in the order of float32 values; neighbours differ by one."""
    bits = np.asarray(values, dtype=np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, np.int64(_SIGN) - bits, bits)


def _from_order(order: np.ndarray) -> np.ndarray:
    bits = np.where(order < 0, np.int64(_SIGN) - order, order).astype(np.int32)
    return bits.view(np.float32)


def _middle(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.asarray(low + (high - low) // 2)
