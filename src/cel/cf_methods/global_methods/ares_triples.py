"""Candidate rules of AReS: (subgroup, inner condition, change) triples as packed rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from cel.cf_methods.edits import Edits, Tried, predict_edits
from cel.cf_methods.global_methods.ares_beam import ThenSet, set_edits
from cel.cf_methods.global_methods.ares_bits import count, pack
from cel.cf_methods.global_methods.ares_conditions import (
    Conditions,
    Items,
    Outer,
    inner_conditions,
)
from cel.cf_methods.predicates import Item, all_hold
from cel.cf_methods.problem import Problem

__all__ = ["Changes", "Triples", "build_triples", "shifted_changes"]

_Part = tuple[np.ndarray, list[Items], int, np.ndarray, np.ndarray]
SHIFTS = 8  # inner conditions of a change that is a shift


@dataclass(frozen=True, kw_only=True, eq=False)
class Changes:
    """E changes with what they do to the fitted rows.

    Attributes:
        sets: the "then" set of each.
        edits: how each is applied.
        tried: margins and costs (E, n).
        inner: the only inner condition that a change fits, or None where any will do.
    """

    sets: list[ThenSet]
    edits: Edits
    tried: Tried
    inner: list[Items | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Triples:
    """V candidate rules.

    Attributes:
        outer: (V,) position of the subgroup.
        inner: inner condition of each rule.
        change: (V,) position of the change.
        covered: (V, w) rows that it is meant for.
        right: (V, w) rows among them that it flips.
    """

    outer: np.ndarray
    inner: list[Items]
    change: np.ndarray
    covered: np.ndarray
    right: np.ndarray

    def __len__(self) -> int:
        return len(self.inner)


def shifted_changes(
    problem: Problem, conditions: Conditions, sets: list[ThenSet], limit: int
) -> Changes:
    """Turn "set to the value" into "add the difference to the middle of the row's bin".

    The shift depends on where a row starts, so each change comes with one inner condition made
    of bins; the largest few are kept.
    """
    train = problem.train.x.cpu().numpy()
    pairs: list[tuple[ThenSet, Items]] = []
    for change in sets[:limit]:
        options = []
        for then in change:
            items, bits, strict = conditions.before(then)
            narrow = [i for i, s in enumerate(strict) if s and _is_bin(items, i)]
            best = sorted(narrow, key=lambda i, b=bits: -int(count(b[i])))[:SHIFTS]  # type: ignore[misc]
            options.append([items[i] for i in best])
        pairs += [(change, c) for c in list(product(*options))[:SHIFTS]]
    edits = set_edits([s for s, _ in pairs], problem.space, problem.query.x)
    for row, (change, inner) in enumerate(pairs):
        for then, item in zip(change, inner, strict=True):
            feature = problem.space.features[then.feature]
            if not feature.one_hot:
                column = feature.columns[0]
                inside = train[item.holds(train, feature), column]
                middle = float(np.quantile(inside, 0.5, method="inverted_cdf"))
                edits.fixed[row, column] = False
                edits.shift[row, column] = then.value - middle
    tried = predict_edits(problem.query, edits, problem.price)
    return Changes(
        sets=[s for s, _ in pairs], edits=edits, tried=tried, inner=[c for _, c in pairs]
    )


def _is_bin(items: list[Item], position: int) -> bool:
    """Whether an item is a category or an interval without a smaller one inside it."""
    item = items[position]
    if item.levels is not None:
        return sum(item.levels) == 1
    others = [o for o in items if o is not item and not o.trivial]
    return not any(item.low <= o.low and o.high <= item.high for o in others)


def build_triples(
    changes: Changes,
    conditions: Conditions,
    outer: Outer,
    *,
    width: int,
    penalty: float,
    per_change: int,
) -> Triples:
    """Combine changes, inner conditions and subgroups, and keep the best of each change.

    Args:
        changes: the changes.
        conditions: items with their rows.
        outer: subgroups.
        width: most conditions of a rule, inner and outer together.
        penalty: weight of rows that a rule is meant for in vain, against rows that it flips.
        per_change: triples kept for each change.
    """
    flips = pack(changes.tried.flips.cpu().numpy())
    features = [frozenset(i.feature for i in q) for q in outer.items]
    lengths = np.array([len(f) for f in features])
    parts: list[_Part] = []
    for number, change in enumerate(changes.sets):
        known, hit = changes.inner[number], flips[number]
        if known is None:
            inner, rows = inner_conditions(conditions, change, hit, penalty=penalty, width=width)
        else:
            inner, rows = _known_condition(conditions, known, hit)
        if not inner:
            continue
        used = {t.feature for t in change}
        apart = np.array([not (f & used) for f in features], dtype=bool)
        sizes = np.array([sum(not i.trivial for i in c) for c in inner])
        open_to = apart[None] & (sizes[:, None] + lengths[None] <= width)
        q, c, covered = _best_pairs(rows, outer.bits, open_to, hit, penalty, per_change)
        parts.append((q, [inner[i] for i in c], number, covered, covered & hit))
    return _stack(parts, flips.shape[1])


def _known_condition(
    conditions: Conditions, inner: Items, flips: np.ndarray
) -> tuple[list[Items], np.ndarray]:
    bits = pack(all_hold(inner, conditions.rows, conditions.space))[None]
    useful = bool(count(bits & flips)[0] > 0)
    return ([inner], bits) if useful else ([], bits[:0])


def _best_pairs(
    inner: np.ndarray,
    outer: np.ndarray,
    open_to: np.ndarray,
    flips: np.ndarray,
    penalty: float,
    limit: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (outer positions, inner positions, covered rows) of the best combinations."""
    choices = np.flatnonzero(open_to.any(0))
    joint = inner[:, None] & outer[choices][None]
    right = count(joint & flips)
    possible = (right > 0) & open_to[:, choices]
    score = np.where(possible, right - penalty * (count(joint) - right), -np.inf)
    # Fewer conditions win ties: the first subgroup is everybody.
    order = np.argsort(-score, axis=None, kind="stable")[:limit]
    order = order[np.isfinite(score.ravel()[order])]
    c, q = np.divmod(order, len(choices))
    return choices[q], c, joint[c, q]


def _stack(parts: list[_Part], words: int) -> Triples:
    empty = np.zeros((0, words), dtype=np.uint64)
    none = np.zeros(0, dtype=np.int64)
    return Triples(
        outer=np.concatenate([none, *(p[0] for p in parts)]),
        inner=[c for p in parts for c in p[1]],
        change=np.concatenate([none, *(np.full(len(p[1]), p[2]) for p in parts)]),
        covered=np.concatenate([empty, *(p[3] for p in parts)]),
        right=np.concatenate([empty, *(p[4] for p in parts)]),
    )
