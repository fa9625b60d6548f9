"""Trees as their library grew them: flat nodes over the columns of the model's own matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cel.errors import UnsupportedError

__all__ = ["Forest", "Link", "Operator", "join"]

Operator = Literal["le", "le0", "le32", "lt32"]
"""When a number goes left: `v <= t` ("le0": what LightGBM takes for zero is zero),
`float32(v) <= t`, or `float32(v) < t`."""

ZERO = float(np.float32(1e-35))  # LightGBM drops smaller values

Link = Literal["softmax", "mean", "identity"]
"""What sums of leaves are: logits, averaged probabilities, or predicted values."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Forest:
    """N nodes of T trees; nodes of one tree are neighbours, children come after their parent.

    Attributes:
        column: (N,) column of the model's matrix, -1 for leaves.
        threshold: (N,) numbers, NaN for leaves and for splits by category.
        left: (N,) positions of children, -1 for leaves.
        right: (N,).
        subset: (N,) position in `subsets` of a split by category, else -1.
        subsets: codes that go left; every other code goes right.
        root: (T,) first nodes.
        value: (N, K) leaf values, one column per output; zero for inner nodes.
        base: (K,) what is added to the sums.
        operator: how numbers are compared.
        link: what the sums are.
        slack: largest rounding error of the library's own sums, relative to 1 + |sum|.
        missing_left: (N,) whether missing values go left, or None where that is not known.
    """

    column: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    subset: np.ndarray
    subsets: tuple[np.ndarray, ...]
    root: np.ndarray
    value: np.ndarray
    base: np.ndarray
    operator: Operator
    link: Link
    slack: float = 1e-6
    missing_left: np.ndarray | None = None

    @property
    def leaf(self) -> np.ndarray:
        """(L,) nodes that are leaves."""
        return np.flatnonzero(self.column < 0)

    def goes_left(self, node: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Tell for numbers (..., m) at nodes (m,) that split numbers whether they go left."""
        t = self.threshold[node]
        if self.operator == "le":
            return np.asarray(value <= t)
        if self.operator == "le0":
            return np.asarray(np.where(np.abs(value) <= ZERO, 0.0, value) <= t)
        narrow = value.astype(np.float32)
        if self.operator == "le32":
            return np.asarray(narrow.astype(np.float64) <= t)
        return np.asarray(narrow < t.astype(np.float32))


@dataclass(frozen=True, kw_only=True, eq=False)
class OneTree:
    """One tree with positions counted from its own first node; see `Forest`."""

    column: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    subset: np.ndarray | None = None
    subsets: tuple[np.ndarray, ...] = ()
    missing_left: np.ndarray | None = None


def join(
    trees: list[OneTree], *, base: np.ndarray, operator: Operator, link: Link, slack: float = 1e-6
) -> Forest:
    """Put trees one after the other."""
    if not trees:
        raise UnsupportedError("the model has no trees; it was not fitted, or stopped at once")
    sizes = np.array([len(t.column) for t in trees])
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    first = np.concatenate([[0], np.cumsum([len(t.subsets) for t in trees])[:-1]])
    return Forest(
        column=np.concatenate([t.column for t in trees]).astype(np.int64),
        threshold=np.concatenate([t.threshold for t in trees]).astype(np.float64),
        left=_shifted([t.left for t in trees], start),
        right=_shifted([t.right for t in trees], start),
        subset=_shifted(
            [np.full(len(t.column), -1) if t.subset is None else t.subset for t in trees], first
        ),
        subsets=tuple(s for t in trees for s in t.subsets),
        root=start,
        value=np.concatenate([t.value for t in trees]).astype(np.float64),
        base=np.asarray(base, dtype=np.float64),
        operator=operator,
        link=link,
        slack=slack,
        missing_left=_missing(trees),
    )


def _missing(trees: list[OneTree]) -> np.ndarray | None:
    parts = [t.missing_left for t in trees if t.missing_left is not None]
    return np.concatenate(parts).astype(bool) if len(parts) == len(trees) else None


def _shifted(parts: list[np.ndarray], start: np.ndarray) -> np.ndarray:
    moved = [np.where(p >= 0, p + s, -1) for p, s in zip(parts, start, strict=True)]
    return np.concatenate(moved).astype(np.int64)
