"""Boxes that lead to the target: nodes of surrogate trees, large, accurate and maximal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cel.search import Budget

__all__ = [
    "Boxes",
    "Candidates",
    "Surrogates",
    "Wanted",
    "boxes_of_splits",
    "find_rules",
    "inside",
    "maximal",
    "node_boxes",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tree:
    parent: np.ndarray  # (nodes,) -1 for the root
    leaf: np.ndarray  # (m,) where each training row ends

    def count(self, hit: np.ndarray) -> np.ndarray:
        """Return how many of the marked rows every node holds, (nodes,)."""
        count = np.bincount(self.leaf, weights=hit, minlength=len(self.parent))
        for node in range(len(count) - 1, 0, -1):  # children come after their parents
            count[self.parent[node]] += count[node]
        return count


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """The different boxes `lower < x <= upper` of all nodes of some trees.

    Attributes:
        lower: (B, d) float32, -inf where a box has no bound.
        upper: (B, d) float32.
        size: (B,) training rows in each box.
        rows: number of training rows.
        leaves: leaves of all trees together.
        fidelity: share of training rows on which the surrogate agrees with the model; R2 for
            regression.
        cut: whether the time ended before all trees were grown.
    """

    lower: np.ndarray
    upper: np.ndarray
    size: np.ndarray
    rows: int
    leaves: int
    fidelity: float
    cut: bool
    _trees: tuple[_Tree, ...]
    _first: np.ndarray  # (B,) a node of each box, counted over all trees

    def hits(self, hit: np.ndarray) -> np.ndarray:
        """Return how many of the marked training rows (m,) each box holds, (B,)."""
        marks = np.asarray(hit, dtype=np.float64)
        return np.asarray(np.concatenate([t.count(marks) for t in self._trees])[self._first])


@dataclass(frozen=True, kw_only=True, eq=False)
class Surrogates:
    """Trees on (x, f(x)) at different leaf sizes, grown when they are first needed.

    Attributes:
        x: (m, d) training rows.
        y: (m,) the model's class positions or values.
        columns: the columns that the trees see.
        n_trees: one tree, or a forest on bootstrap samples with sqrt(d) columns per split.
        max_leaf_nodes: most leaves of a tree.
        regression: whether `y` are values.
        seed: of the trees.
        mirrored: imitate the boxes of the printed tables, see `mirrored_boxes`.
    """

    x: np.ndarray
    y: np.ndarray
    columns: np.ndarray
    n_trees: int
    max_leaf_nodes: int | None
    regression: bool
    seed: int
    mirrored: bool = False
    _grown: dict[int, Candidates] = field(default_factory=dict)

    def at(self, rho: float, budget: Budget) -> Candidates:
        """Return the boxes of trees whose leaves hold at least the share `rho` of the rows."""
        smallest = max(1, int(np.ceil(rho * len(self.x) - 1e-9)))
        if smallest not in self._grown:
            made = self._grow(smallest, budget)
            if made.cut:
                return made
            self._grown[smallest] = made
        return self._grown[smallest]

    def _grow(self, smallest: int, budget: Budget) -> Candidates:
        part = np.ascontiguousarray(self.x[:, self.columns])
        fitted, cut = self._fit(part, smallest, budget)
        grown = [estimator.tree_ for estimator in fitted]
        if self.mirrored:
            fidelity = _agreement(fitted, part, self.y, self.regression)
            return mirrored_boxes(grown, self.columns, self.x, fidelity, cut)
        boxes = [node_boxes(tree, self.columns, self.x.shape[1]) for tree in grown]
        trees = [_Tree(parent=_parents(tree), leaf=tree.apply(part)) for tree in grown]
        lower = np.concatenate([b[0] for b in boxes])
        upper = np.concatenate([b[1] for b in boxes])
        _, first = np.unique(np.concatenate([lower, upper], 1), axis=0, return_index=True)
        first = np.sort(first)
        size = np.concatenate([t.count(np.ones(len(self.x))) for t in trees])[first]
        return Candidates(
            lower=lower[first], upper=upper[first], size=size, rows=len(self.x), cut=cut,
            leaves=sum(int(tree.n_leaves) for tree in grown),
            fidelity=_agreement(fitted, part, self.y, self.regression), _first=first,
            _trees=tuple(trees),
        )  # fmt: skip

    def _fit(self, x: np.ndarray, smallest: int, budget: Budget) -> tuple[list[Any], bool]:
        """Return the fitted trees, and whether the time ended before the last one."""
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

        kind = DecisionTreeRegressor if self.regression else DecisionTreeClassifier
        rng = np.random.default_rng(self.seed)
        fitted: list[Any] = []
        for number in range(self.n_trees):
            if fitted and budget.expired:
                return fitted, True
            tree = kind(
                min_samples_leaf=smallest,
                max_leaf_nodes=self.max_leaf_nodes,
                max_features=None if self.n_trees == 1 else "sqrt",
                random_state=(self.seed + number) % 2**31,
            )
            draw = None if self.n_trees == 1 else rng.integers(0, len(x), len(x))
            fitted.append(tree.fit(x, self.y) if draw is None else tree.fit(x[draw], self.y[draw]))
        return fitted, False


def node_boxes(
    tree: Any, columns: np.ndarray, width: int, *, mirrored: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return (lower, upper), each (nodes, width): the box of every node of a fitted tree.

    A row goes left when `x <= threshold`, so the threshold is the UPPER bound of the left child
    and the LOWER bound of the right one; `mirrored` takes it for the other side. Thresholds are
    rounded down to 32 bits, which leaves all 32-bit rows on their side.
    """
    threshold = tree.threshold.astype(np.float32)
    too_high = threshold > tree.threshold
    threshold[too_high] = np.nextafter(threshold[too_high], np.float32(-np.inf))
    children = tree.children_left, tree.children_right
    below, above = children[::-1] if mirrored else children
    return boxes_of_splits(below, above, columns[np.maximum(tree.feature, 0)], threshold, width)


def boxes_of_splits(
    below: np.ndarray, above: np.ndarray, column: np.ndarray, edge: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (lower, upper), each (nodes, width), of nodes that split one column at an edge.

    Args:
        below: (nodes,) child with the edge as its upper bound; negative for leaves.
        above: (nodes,) child with the edge as its lower bound.
        column: (nodes,) that is split.
        edge: (nodes,) where.
        width: number of columns.
    """
    lower = np.full((len(below), width), -np.inf, dtype=np.float32)
    upper = np.full((len(below), width), np.inf, dtype=np.float32)
    for node in np.flatnonzero(below >= 0):  # parents stand before their children
        parts = [below[node], above[node]]
        lower[parts], upper[parts] = lower[node], upper[node]
        upper[below[node], column[node]] = edge[node]
        lower[above[node], column[node]] = edge[node]
    return lower, upper


class ClassBlind(Candidates):
    """Boxes that count as accurate whatever their rows are."""

    def hits(self, hit: np.ndarray) -> np.ndarray:
        """Return the size of each box: every row inside is taken for a hit, (B,)."""
        return np.asarray(self.size, dtype=np.float64)


def mirrored_boxes(
    trees: list[Any], columns: np.ndarray, x: np.ndarray, fidelity: float, cut: bool
) -> ClassBlind:
    """Return the boxes that the printed tables were made with, to see what they do.

    Leaves only; of each the threshold is taken for the other side (a LOWER bound of the left
    child), and the model's classes are compared with themselves, so that every leaf is accurate.
    Boxes that hold no row fall out by their size.
    """
    width = x.shape[1]
    pairs = [node_boxes(tree, columns, width, mirrored=True) for tree in trees]
    leaves = [np.flatnonzero(tree.children_left < 0) for tree in trees]
    lower = np.concatenate([p[0][at] for p, at in zip(pairs, leaves, strict=True)])
    upper = np.concatenate([p[1][at] for p, at in zip(pairs, leaves, strict=True)])
    _, first = np.unique(np.concatenate([lower, upper], 1), axis=0, return_index=True)
    first = np.sort(first)
    lower, upper = lower[first], upper[first]
    return ClassBlind(
        lower=lower, upper=upper, size=inside(x, lower, upper).sum(1).astype(np.float64),
        rows=len(x), leaves=sum(len(at) for at in leaves), fidelity=fidelity, cut=cut,
        _trees=(), _first=first,
    )  # fmt: skip


def _parents(tree: Any) -> np.ndarray:
    parent = np.full(tree.node_count, -1)
    inner = np.flatnonzero(tree.children_left >= 0)
    parent[tree.children_left[inner]] = inner
    parent[tree.children_right[inner]] = inner
    return parent


def _agreement(fitted: list[Any], x: np.ndarray, y: np.ndarray, regression: bool) -> float:
    """Return the accuracy, or R2, of the mean prediction of the trees."""
    if regression:
        rest = y - np.mean([t.predict(x) for t in fitted], 0)
        spread = float(((y - y.mean()) ** 2).sum())
        return 1.0 - float((rest**2).sum()) / spread if spread > 0 else 1.0
    if len(fitted) == 1:
        return float((fitted[0].predict(x) == y).mean())
    votes = np.stack([t.predict(x)[:, None] == np.unique(y) for t in fitted]).sum(0)
    return float((np.unique(y)[votes.argmax(1)] == y).mean())


HALVINGS = 6  # how often rho may be halved


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a box must have to be a rule.

    Attributes:
        tau: smallest accuracy.
        rho: smallest feasibility.
        tau_floor: how far tau may be relaxed before rho is.
        max_rules: most rules kept, the most feasible ones.
        confidence: standard errors by which the accuracy of a box is lowered before it is
            compared with tau.
    """

    tau: float
    rho: float
    tau_floor: float
    max_rules: int
    confidence: float

    def lowered(self, hits: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Return the lower end of Wilson's interval of the accuracies, (B,).

        Of many boxes the best look better than they are, small ones most of all. With z standard
        errors: (p + z^2 / 2n - z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n).
        """
        n, z = np.maximum(size, 1), self.confidence
        p = hits / n
        spread = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        return np.asarray((p + z**2 / (2 * n) - spread) / (1 + z**2 / n))


@dataclass(frozen=True, kw_only=True, eq=False)
class Boxes:
    """Boxes `lower < x <= upper`, the most feasible first.

    Attributes:
        lower: (R, d) float32.
        upper: (R, d) float32.
        feasibility: (R,) share of the training rows inside.
        accuracy: (R,) share of those that have the target outcome.
        tier: (R,) rules of a higher tier are for rows that those below are out of reach of.
        tau: the accuracy asked for in the end.
        rho: the feasibility asked for in the end.
        cut: which limits were hit.
    """

    lower: np.ndarray
    upper: np.ndarray
    feasibility: np.ndarray
    accuracy: np.ndarray
    tier: np.ndarray
    tau: float
    rho: float
    cut: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lower)

    def extended(self, other: Boxes) -> Boxes:
        """Return these rules and, one tier above them, others."""
        if not len(self) or not len(other):
            return other if not len(self) else self
        joined = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("lower", "upper", "feasibility", "accuracy")
        }
        return Boxes(
            **joined,
            tier=np.concatenate([self.tier, other.tier + self.tier.max() + 1]),
            tau=min(self.tau, other.tau),
            rho=min(self.rho, other.rho),
            cut=sorted({*self.cut, *other.cut}),
        )


def find_rules(surrogates: Surrogates, hit: np.ndarray, wanted: Wanted, budget: Budget) -> Boxes:
    """Return the maximal-valid boxes for the marked training rows (m,).

    If no box is as accurate as tau, tau becomes the best accuracy among the boxes with
    feasibility rho, unless that is below `tau_floor`; then rho is halved, the trees are grown
    deeper, and the search starts again. The last resort is the best accuracy seen.
    """
    best = (0.0, wanted.rho)
    for halving in range(HALVINGS + 1):
        rho = wanted.rho / 2**halving
        boxes = surrogates.at(rho, budget)
        large = _large(boxes, rho)
        top = float(wanted.lowered(boxes.hits(hit), boxes.size)[large].max(initial=0.0))
        if top > best[0]:
            best = (top, rho)
        if top >= min(wanted.tau, wanted.tau_floor) or rho * len(hit) <= 1 or budget.expired:
            break
    return _rules(surrogates.at(best[1], budget), hit, min(best[0], wanted.tau), best[1], wanted)


def _large(boxes: Candidates, rho: float) -> np.ndarray:
    """Return the numbers of boxes with enough rows; the whole space is not a rule."""
    bounded = np.isfinite(boxes.lower).any(1) | np.isfinite(boxes.upper).any(1)
    return np.flatnonzero(bounded & (boxes.size >= rho * boxes.rows - 1e-9))


def _rules(boxes: Candidates, hit: np.ndarray, tau: float, rho: float, wanted: Wanted) -> Boxes:
    hits, large = boxes.hits(hit), _large(boxes, rho)
    lowered = wanted.lowered(hits, boxes.size)
    valid = large[(lowered[large] >= tau) & (hits[large] > 0)]
    kept = valid[maximal(boxes.lower[valid], boxes.upper[valid])]
    kept = kept[np.argsort(-boxes.size[kept], kind="stable")]
    cut = ["trees"] if boxes.cut else []
    if len(kept) > wanted.max_rules:
        kept, cut = kept[: wanted.max_rules], [*cut, "rules"]
    return Boxes(
        lower=boxes.lower[kept], upper=boxes.upper[kept], accuracy=hits[kept] / boxes.size[kept],
        feasibility=boxes.size[kept] / boxes.rows, tier=np.zeros(len(kept), dtype=np.int64),
        tau=tau, rho=rho, cut=cut,
    )  # fmt: skip


def maximal(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return the numbers of the boxes (B, d) that no other of these boxes contains, ascending.

    Boxes must differ. They are taken from wide to narrow, so that a box can only be contained in
    one that was kept before.

    >>> maximal(np.array([[0.0], [0.2], [0.5]]), np.array([[0.6], [0.5], [0.9]]))
    array([0, 2])
    """
    if not len(lower):
        return np.zeros(0, dtype=np.int64)
    used = np.flatnonzero((np.isfinite(lower) | np.isfinite(upper)).any(0))
    low, high = lower[:, used].astype(np.float64), upper[:, used].astype(np.float64)
    ends = np.concatenate([low, high])
    finite = np.where(np.isfinite(ends), ends, 0.0)
    low = np.where(np.isfinite(low), low, finite.min(0) - 1)
    high = np.where(np.isfinite(high), high, finite.max(0) + 1)
    kept: list[int] = []
    for i in np.argsort(-(high - low).sum(1), kind="stable"):
        contained = (low[kept] <= low[i]) & (high[kept] >= high[i])
        if not contained.all(1).any():
            kept.append(int(i))
    return np.sort(np.array(kept))


def inside(x: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Tell for rows (n, d) and boxes (R, d) which row is in which box, shape (R, n)."""
    used = np.flatnonzero((np.isfinite(lower) | np.isfinite(upper)).any(0))
    out = np.ones((len(lower), len(x)), dtype=bool)
    for column in used:
        value = x[:, column]
        out &= (value > lower[:, column, None]) & (value <= upper[:, column, None])
    return out
