"""For whom a rule is meant and what it changes: predicates, packed rows, subgroups."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.explanations.predicates import Item
from cel.space import Feature

__all__ = [
    "Conditions",
    "Outer",
    "Then",
    "ThenSet",
    "count",
    "feature_edges",
    "if_items",
    "inner_conditions",
    "outer_conditions",
    "pack",
    "then_items",
    "unpack",
]

_BYTES = np.array([bin(i).count("1") for i in range(256)], dtype=np.uint8)


def pack(rows: np.ndarray) -> np.ndarray:
    """Pack (..., n) bool into (..., w) uint64, padded with zeros.

    >>> pack(np.array([True, False, True]))
    array([5], dtype=uint64)
    """
    n = rows.shape[-1]
    words = max(1, -(-n // 64))
    padded = np.zeros((*rows.shape[:-1], words * 64), dtype=bool)
    padded[..., :n] = rows
    return np.packbits(padded, axis=-1, bitorder="little").view("<u8").astype(np.uint64)


def unpack(bits: np.ndarray, n: int) -> np.ndarray:
    """Undo `pack`: (..., w) uint64 to (..., n) bool."""
    as_bytes = np.ascontiguousarray(bits.astype("<u8")).view(np.uint8)
    return np.unpackbits(as_bytes, axis=-1, count=n, bitorder="little").astype(bool)


def count(bits: np.ndarray) -> np.ndarray:
    """Return the number of rows in each set, (..., w) to (...,).

    >>> int(count(pack(np.array([True, False, True]))))
    2
    """
    if hasattr(np, "bitwise_count"):
        return np.asarray(np.bitwise_count(bits).sum(-1, dtype=np.int64))
    return np.asarray(_BYTES[np.ascontiguousarray(bits).view(np.uint8)].sum(-1, dtype=np.int64))


@dataclass(frozen=True)
class Then:
    """Set a feature to a value: an encoded number, or the position of a category."""

    feature: int
    value: float

    def satisfies(self, item: Item) -> bool:
        """Whether the new value satisfies a condition on the same feature."""
        if item.levels is not None:
            return item.levels[int(self.value)]
        return bool(item.low < self.value <= item.high)


ThenSet = tuple[Then, ...]
"""Changes of different features, ordered by feature."""


def feature_edges(column: np.ndarray, bins: int) -> np.ndarray:
    """Return inner bin edges of training values (m,): quantiles, and frequent values alone.

    Edges are training values and bins are half-open (low, high]. A value with a share of at least
    half a bin gets a bin of its own. The largest value is no edge.

    >>> feature_edges(np.array([0, 0, 0, 0, 0, 0, 1, 2, 3, 4.0]), 5)
    array([0., 1., 2., 3.])
    """
    values, counts = np.unique(column, return_counts=True)
    shares = np.arange(1, bins) / bins
    edges = set(np.quantile(column, shares, method="inverted_cdf").tolist())
    for i in np.flatnonzero(counts >= len(column) / (2 * bins)):
        edges.add(float(values[i]))
        if i:
            edges.add(float(values[i - 1]))
    return np.array(sorted(edges - {float(values[-1])}))


def if_items(problem: Cohort, bins: int) -> list[list[Item]]:
    """Return, for each feature, one-sided and two-sided intervals, or = and != conditions."""
    x = problem.train.x.cpu().numpy()
    out = []
    for position, feature in enumerate(problem.space):
        if feature.one_hot:
            size = len(feature.columns)
            one = np.eye(size, dtype=bool)
            found = [Item(position, levels=tuple(map(bool, row))) for row in one]
            found += [Item(position, levels=tuple(map(bool, ~row))) for row in one]
            out.append([i for i in dict.fromkeys(found) if not i.trivial and any(i.levels or ())])
            continue
        edges = feature_edges(x[:, feature.columns[0]], bins)
        found = [Item(position, high=e) for e in edges]
        found += [Item(position, low=e) for e in edges]
        found += [Item(position, low=a, high=b) for a, b in pairwise(edges)]
        out.append(found)
    return out


def then_items(problem: Cohort, bins: int, limit: int) -> tuple[list[Then], bool]:
    """Return what rules may set, and whether the limit cut the list short.

    Numbers go to the median of the target's training rows in each bin (of all rows where the bin
    holds none of the target); categories to every level that may be reached and was seen. Only
    movable features take part. When there are too many, features whose distribution differs most
    between target rows and affected rows come first.
    """
    space, movable = problem.space, problem.bin_cost.movable
    x, hit = problem.train.x.cpu().numpy(), problem.hit.cpu().numpy()
    groups: list[tuple[float, list[Then]]] = []
    contrast = _contrast(problem, x[hit])
    for position in np.flatnonzero(movable).tolist():
        feature = space.features[position]
        found = _levels(feature, x, position) if feature.one_hot else []
        if not feature.one_hot:
            found = _medians(x[:, feature.columns[0]], hit, bins, position)
        groups.append((-float(contrast[position]), found))
    groups.sort(key=lambda pair: pair[0])
    everything = [item for _, found in groups for item in found]
    return everything[:limit], len(everything) > limit


def _levels(feature: Feature, x: np.ndarray, position: int) -> list[Then]:
    seen = x[:, list(feature.columns)].max(0) > 0.5
    allowed = seen & np.array(feature.allowed_mask)
    return [Then(int(position), float(k)) for k in np.flatnonzero(allowed)]


def _medians(column: np.ndarray, hit: np.ndarray, bins: int, position: int) -> list[Then]:
    edges = feature_edges(column, bins)
    place = np.searchsorted(edges, column, side="left")
    values = []
    for b in np.unique(place):
        inside = column[(place == b) & hit]
        chosen = inside if len(inside) else column[place == b]
        values.append(float(np.quantile(chosen, 0.5, method="inverted_cdf")))
    return [Then(int(position), v) for v in dict.fromkeys(values)]


def _contrast(problem: Cohort, target_rows: np.ndarray) -> np.ndarray:
    """(p,) difference of means between target rows and affected rows, in bins."""
    space = problem.space
    if not len(target_rows):
        return np.zeros(len(space))
    gap = target_rows.mean(0) - problem.query.x.cpu().numpy().mean(0)
    out = np.zeros(len(space))
    np.add.at(out, space.owner, np.abs(gap) * problem.bin_cost.scale.cpu().numpy())
    return out


Items = tuple[Item, ...]
INNER = 24  # inner conditions kept for a change


@dataclass(frozen=True, kw_only=True, eq=False)
class Outer:
    """Subgroups: conditions and the rows (b, w) that satisfy them; the first is everybody."""

    items: list[Items]
    bits: np.ndarray
    cut: bool


class Conditions:
    """The if-items of every feature with the fitted rows that satisfy them.

    Args:
        problem: what to fit on.
        items: if-items by feature.
    """

    def __init__(self, problem: Cohort, items: list[list[Item]]) -> None:
        self.space, self.items = problem.space, items
        self.rows = problem.query.x.cpu().numpy()
        self.everybody = pack(np.ones(len(self.rows), dtype=bool))
        self._bits: dict[int, np.ndarray] = {}
        self._before: dict[Then, tuple[list[Item], np.ndarray, np.ndarray]] = {}

    def bits(self, feature: int) -> np.ndarray:
        """Return (items of the feature, w) packed rows."""
        if feature not in self._bits:
            holds = [i.holds(self.rows, self.space.features[feature]) for i in self.items[feature]]
            empty = np.zeros((0, len(self.rows)), dtype=bool)
            self._bits[feature] = pack(np.stack(holds) if holds else empty)
        return self._bits[feature]

    def before(self, then: Then) -> tuple[list[Item], np.ndarray, np.ndarray]:
        """Return what may be asked of a feature before it is set: (items, bits, excludes value).

        Items that contain the value are of no use, except the one that holds for everybody; the
        bin that holds the value is cut there, so that rows of it may move, too. With a direction,
        the value must lie on the right side of the whole interval.
        """
        if then not in self._before:
            self._before[then] = self._asked(then)
        return self._before[then]

    def _asked(self, then: Then) -> tuple[list[Item], np.ndarray, np.ndarray]:
        feature = self.space.features[then.feature]
        kept, rows = [], []
        around, around_bits = self._cut_at(then, feature)
        every = [*self.items[then.feature], *around]
        every_bits = np.concatenate([self.bits(then.feature), around_bits])
        for item, bits in zip(every, every_bits, strict=True):
            rises, falls = item.high <= then.value, item.low >= then.value
            wrong = (feature.direction == "up" and not rises) or (
                feature.direction == "down" and not falls
            )
            if not then.satisfies(item) and not wrong:
                kept.append(item)
                rows.append(bits)
        strict = [True] * len(kept)
        if feature.direction == "any":
            levels = (True,) * len(feature.columns) if feature.one_hot else None
            kept.append(Item(then.feature, levels=levels))
            rows.append(self.everybody)
            strict.append(False)
        shape = (len(rows), len(self.everybody))
        return kept, np.array(rows, dtype=np.uint64).reshape(shape), np.array(strict, dtype=bool)

    def _cut_at(self, then: Then, feature: Feature) -> tuple[list[Item], np.ndarray]:
        """Return the parts below and above the new value of the bin that holds it, with rows."""
        empty = np.zeros((0, len(self.everybody)), dtype=np.uint64)
        if feature.one_hot:
            return [], empty
        column = self.rows[:, feature.columns[0]]
        inside = [i for i in self.items[then.feature] if then.satisfies(i)]
        low = max((i.low for i in inside), default=-np.inf)
        high = min((i.high for i in inside), default=np.inf)
        below = column[(column > low) & (column < then.value)]
        parts = [Item(then.feature, low=low, high=float(below.max()))] if len(below) else []
        if bool(((column > then.value) & (column <= high)).any()):
            parts.append(Item(then.feature, low=then.value, high=high))
        parts = [p for p in parts if p not in self.items[then.feature]]
        if not parts:
            return [], empty
        return parts, pack(np.stack([p.holds(self.rows, feature) for p in parts]))


def outer_conditions(conditions: Conditions, *, support: float, length: int, limit: int) -> Outer:
    """Enumerate subgroups level by level: all sets of items that enough rows satisfy.

    Args:
        conditions: items with their rows.
        support: smallest share of the fitted rows.
        length: most items in a subgroup.
        limit: most subgroups; the largest ones are kept.
    """
    least = support * len(conditions.rows)
    singles: list[Items] = []
    parts = []
    for feature, items in enumerate(conditions.items):
        bits = conditions.bits(feature)
        enough = np.flatnonzero(count(bits) >= least)
        singles += [(items[i],) for i in enough]
        parts.append(bits[enough])
    single_bits = np.concatenate(parts)
    found, bits, cut = _largest(singles, single_bits, limit)
    level, level_bits = found, bits
    for _ in range(1, length):
        level, level_bits, more = _joined(level, level_bits, found, bits, least, limit)
        cut |= more
        found, bits, more = _largest([*found, *level], np.concatenate([bits, level_bits]), limit)
        cut |= more
    return Outer(
        items=[(), *found], bits=np.concatenate([conditions.everybody[None], bits]), cut=cut
    )


def _largest(
    found: list[Items], bits: np.ndarray, limit: int
) -> tuple[list[Items], np.ndarray, bool]:
    order = np.argsort(-count(bits), kind="stable")[:limit]
    return [found[i] for i in order], bits[order], len(found) > limit


def _joined(
    left: list[Items],
    left_bits: np.ndarray,
    right: list[Items],
    right_bits: np.ndarray,
    least: float,
    limit: int,
) -> tuple[list[Items], np.ndarray, bool]:
    """Join sets with single items of later features; keep the largest with enough rows."""
    pairs, sizes = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    last = np.array([r[0].feature if len(r) == 1 else -1 for r in right], dtype=np.int64)
    for number, (items, bits) in enumerate(zip(left, left_bits, strict=True)):
        later = np.flatnonzero(last > items[-1].feature)
        size = count(right_bits[later] & bits)
        enough = size >= least
        later = later[enough]
        pairs.append(np.stack([np.full(len(later), number), later], 1))
        sizes.append(size[enough])
    both, size = np.concatenate(pairs), np.concatenate(sizes)
    some = both[np.argsort(-size, kind="stable")[:limit]]
    kept = [(*left[i], right[k][0]) for i, k in some.tolist()]
    return kept, left_bits[some[:, 0]] & right_bits[some[:, 1]], len(both) > limit


def inner_conditions(
    conditions: Conditions, change: ThenSet, flips: np.ndarray, *, penalty: float, width: int
) -> tuple[list[Items], np.ndarray]:
    """Return the best inner conditions of a change: (items, bits (c, w)).

    Each feature of the change gets one item; at least one item excludes the new value. Of the
    growing product only the best are kept: most flipped rows, less `penalty` for each row that
    satisfies the condition in vain.

    Args:
        conditions: items with their rows.
        change: the "then" set.
        flips: (w,) rows that the change flips.
        penalty: weight of rows in vain.
        width: most items that are not trivial.
    """
    found: list[Items] = [()]
    bits, size = conditions.everybody[None], np.zeros(1, dtype=np.int64)
    for then in change:
        items, rows, excludes = conditions.before(then)
        if not items:
            return [], bits[:0]
        joint = (bits[:, None] & rows[None]).reshape(-1, bits.shape[1])
        sizes = (size[:, None] + excludes[None]).ravel()
        right = count(joint & flips)
        score = right - penalty * (count(joint) - right) + 0.25 * (sizes > 0)
        order = np.argsort(np.where(sizes > width, np.inf, -score), kind="stable")[:INNER]
        order = order[sizes[order] <= width]
        found = [(*found[i // len(items)], items[i % len(items)]) for i in order]
        bits, size = joint[order], sizes[order]
    useful = np.flatnonzero((size > 0) & (count(bits & flips) > 0))
    return [found[i] for i in useful], bits[useful]
