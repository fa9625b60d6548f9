"""Candidate rules: a beam over sets of changes, and (subgroup, condition, change) triples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.explanations.edits import Edits, Tried, predict_edits
from cel.cf_methods.explanations.predicates import Item, all_hold
from cel.cf_methods.global_methods.ares.conditions import (
    Conditions,
    Items,
    Outer,
    Then,
    ThenSet,
    count,
    inner_conditions,
    pack,
)
from cel.cf_methods.query import Query
from cel.space import FeatureSpace

__all__ = [
    "Beam",
    "Changes",
    "Triples",
    "beam_search",
    "build_triples",
    "set_edits",
    "shifted_changes",
]

LEVEL_VALUES = 2**26  # entries of all edited rows of one size
ENOUGH = 0.999  # share of sampled rows; deeper sets cannot add anything


@dataclass(frozen=True, kw_only=True)
class Beam:
    """Sizes of the search.

    Attributes:
        width: sets kept at each size.
        parents: sets extended at each size.
        extensions: single changes that extend them, best first.
        rows: sampled rows that judge a set.
        largest: most changes in a set, in the first round.
        rounds: searches; each after the first looks only at rows that no set helps yet.
        last_resort: most changes in a set, in later rounds.
    """

    width: int = 60
    parents: int = 12
    extensions: int = 100
    rows: int = 100
    largest: int = 7
    rounds: int = 3
    last_resort: int = 16

    def for_the_rest(self) -> Beam:
        """Return the sizes of later rounds: narrower and deeper."""
        width, parents = max(1, self.width // 3), max(1, self.parents // 2)
        return replace(self, width=width, parents=parents, largest=self.last_resort)


def set_edits(sets: Sequence[ThenSet], space: FeatureSpace, like: Tensor) -> Edits:
    """Return the edits that "then" sets stand for, in the dtype of `like` (n, d)."""
    fixed = np.zeros((len(sets), space.width), dtype=bool)
    value = np.zeros((len(sets), space.width), dtype=np.float32)
    for row, changes in enumerate(sets):
        for then in changes:
            columns = list(space.features[then.feature].columns)
            fixed[row, columns] = True
            if space.features[then.feature].one_hot:
                value[row, columns[int(then.value)]] = 1.0
            else:
                value[row, columns[0]] = then.value
    return Edits(
        shift=torch.zeros(len(sets), space.width, dtype=like.dtype, device=like.device),
        fixed=torch.as_tensor(fixed, device=like.device),
        value=torch.as_tensor(value).to(like),
    )


def beam_search(problem: Cohort, items: Sequence[Then], beam: Beam) -> tuple[list[ThenSet], Tried]:
    """Return "then" sets and what they do to every fitted row.

    Hard flip rates are all zero for small sets where many changes are needed, so sets are ranked
    by the mean margin of the target, half of the beam by how many rows they flip at what cost.
    """
    query = problem.query
    rows = problem.sample(beam.rows)
    found: dict[ThenSet, None] = {}
    tried: list[Tried] = []
    for number in range(beam.rounds):
        known, part = len(found), query.select(rows)
        sizes = beam.for_the_rest() if number else beam
        found |= dict.fromkeys(_one_beam(part, problem, items, sizes))
        fresh = list(found)[known:]
        if not fresh:
            break
        edits = set_edits(fresh, problem.space, query.x)
        tried.append(predict_edits(query, edits, problem.bin_cost))
        helped = torch.cat([t.flips for t in tried]).any(0)
        rows = (~helped).nonzero()[:, 0][: beam.rows]
        if len(rows) <= 0.01 * len(query) or query.budget.expired:
            break
    empty = query.x.new_zeros(0, len(query))
    return list(found), Tried(
        margin=torch.cat([empty, *(t.margin for t in tried)]),
        cost=torch.cat([empty, *(t.cost for t in tried)]),
    )


def _one_beam(query: Query, problem: Cohort, items: Sequence[Then], beam: Beam) -> list[ThenSet]:
    level: list[ThenSet] = [(i,) for i in items]
    singles: list[Then] = []
    kept: list[ThenSet] = []
    for size in range(1, beam.largest + 1):
        if not level:
            break
        tried = predict_edits(query, set_edits(level, problem.space, query.x), problem.bin_cost)
        soft = tried.margin.mean(1)
        worth = (tried.flips * (1 - tried.cost / problem.bin_cost.largest).clamp(min=0)).mean(1)
        best = _best(soft, worth, beam.width)
        kept += [level[i] for i in best]
        if size == 1:
            order = soft.argsort(descending=True, stable=True)[: _extensions(query, beam)]
            singles = [level[i][0] for i in order.tolist()]
        if float(tried.flips.to(soft).mean(1).max()) >= ENOUGH or query.budget.expired:
            break
        level = _extend([level[i] for i in _best(soft, worth, beam.parents)], singles)
    return kept


def _extensions(query: Query, beam: Beam) -> int:
    """Return how many single changes extend a set: fewer where rows are very wide."""
    values = beam.parents * len(query) * query.x.shape[1]
    return max(10, min(beam.extensions, LEVEL_VALUES // values))


def _best(soft: Tensor, worth: Tensor, count: int) -> list[int]:
    """Return positions: alternately the next best by soft score and by worth."""
    by_soft = soft.argsort(descending=True, stable=True).tolist()
    by_worth = worth.argsort(descending=True, stable=True).tolist()
    useful = [i for i in by_worth if float(worth[i]) > 0]
    mixed = [i for pair in zip(by_soft, useful, strict=False) for i in pair]
    return list(dict.fromkeys([*mixed, *by_soft]))[:count]


def _extend(parents: list[ThenSet], singles: list[Then]) -> list[ThenSet]:
    """Add every single change to every set that does not touch its feature yet."""
    out: dict[ThenSet, None] = {}
    for parent in parents:
        used = {t.feature for t in parent}
        for single in singles:
            if single.feature not in used:
                grown = sorted((*parent, single), key=lambda t: t.feature)
                out[tuple(grown)] = None
    return list(out)


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
    problem: Cohort, conditions: Conditions, sets: list[ThenSet], limit: int
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
    tried = predict_edits(problem.query, edits, problem.bin_cost)
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
