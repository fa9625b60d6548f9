"""For whom a rule is meant: subgroups that are large enough, and inner conditions of a change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cel.cf_methods.global_methods.ares_beam import ThenSet
from cel.cf_methods.global_methods.ares_bits import count, pack
from cel.cf_methods.global_methods.ares_items import Then
from cel.cf_methods.predicates import Item
from cel.cf_methods.problem import Problem

__all__ = ["Conditions", "Outer", "inner_conditions", "outer_conditions"]

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

    def __init__(self, problem: Problem, items: list[list[Item]]) -> None:
        self.space, self.items = problem.space, items
        self.rows = problem.query.x.cpu().numpy()
        self.everybody = pack(np.ones(len(self.rows), dtype=bool))
        self._bits: dict[int, np.ndarray] = {}

    def bits(self, feature: int) -> np.ndarray:
        """Return (items of the feature, w) packed rows."""
        if feature not in self._bits:
            holds = [i.holds(self.rows, self.space.features[feature]) for i in self.items[feature]]
            empty = np.zeros((0, len(self.rows)), dtype=bool)
            self._bits[feature] = pack(np.stack(holds) if holds else empty)
        return self._bits[feature]

    def before(self, then: Then) -> tuple[list[Item], np.ndarray, np.ndarray]:
        """Return what may be asked of a feature before it is set: (items, bits, excludes value).

        Items that contain the value are of no use, except the one that holds for everybody. With
        a direction, the value must lie on the right side of the whole interval.
        """
        feature = self.space.features[then.feature]
        kept, rows = [], []
        for item, bits in zip(self.items[then.feature], self.bits(then.feature), strict=True):
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
        level, level_bits = _joined(level, level_bits, found, bits, least)
        level, level_bits, more = _largest(level, level_bits, limit)
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
) -> tuple[list[Items], np.ndarray]:
    """Join sets with single items of later features, keeping those with enough rows."""
    out: list[Items] = []
    parts = [np.zeros((0, left_bits.shape[1]), dtype=np.uint64)]
    last = np.array([r[0].feature if len(r) == 1 else -1 for r in right])
    for items, bits in zip(left, left_bits, strict=True):
        later = np.flatnonzero(last > items[-1].feature)
        both = right_bits[later] & bits
        enough = count(both) >= least
        out += [(*items, right[i][0]) for i in later[enough]]
        parts.append(both[enough])
    return out, np.concatenate(parts)


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
