"""From affected rows to a rule list: predicates, changes, triples, selection, words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.explanations.edits import BINS, Edits
from cel.cf_methods.explanations.predicates import Item
from cel.cf_methods.explanations.units import Unit
from cel.cf_methods.global_methods.ares.comparisons import feature_costs
from cel.cf_methods.global_methods.ares.conditions import (
    Conditions,
    count,
    if_items,
    outer_conditions,
    then_items,
    unpack,
)
from cel.cf_methods.global_methods.ares.selection import (
    RuleLimits,
    SetFunction,
    exchange,
    lazy_greedy,
)
from cel.cf_methods.global_methods.ares.triples import (
    Beam,
    Changes,
    Triples,
    beam_search,
    build_triples,
    set_edits,
    shifted_changes,
)

__all__ = ["RuleSet", "RuleSettings", "learn_rules", "rule_objective"]


class RuleSettings(Protocol):
    """Settings of AReS that learning looks at."""

    max_rules: int
    max_width: int
    max_groups: int
    max_changes: int
    objective: Literal["accuracy", "original"]
    weights: tuple[float, ...] | None
    bins: int
    then: Literal["set", "shift"]
    beam: int
    support: float
    outer_length: int
    max_outer: int
    max_items: int
    per_change: int
    feature_costs: Mapping[str, float] | None
    comparisons: Sequence[tuple[str, str]] | None
    default_rule: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class RuleSet:
    """Chosen rules in order of worth, or the reason why there are none."""

    units: tuple[Unit, ...] = ()
    conditions: tuple[tuple[Item, ...], ...] = ()
    edits: Edits
    cut: list[str]
    logs: dict[str, Any]
    reason: str | None = None


def learn_rules(settings: RuleSettings, problem: Cohort) -> RuleSet:
    """Run all steps of AReS for one target."""
    changes, conditions, cut = _changes(settings, problem)
    outer = outer_conditions(
        conditions,
        support=settings.support,
        length=settings.outer_length,
        limit=settings.max_outer,
    )
    triples = build_triples(
        changes,
        conditions,
        outer,
        width=settings.max_width,
        penalty=_penalty(settings),
        per_change=settings.per_change,
    )
    cut += ["subgroups"] if outer.cut else []
    logs: dict[str, Any] = {"changes": len(changes.sets), "triples": len(triples)}
    logs["subgroups"] = len(outer.items)
    chosen, value, unfinished = _choose(settings, problem, triples, changes)
    cut += ["exchange"] if unfinished else []
    logs |= {"cut": cut, "objective": value}
    if not chosen:
        reason = "no change of up to max_changes features reaches the target for any row"
        if len(triples):
            reason = "no rule is worth its mistakes and costs under these weights"
        nothing = Edits.nothing(0, problem.query.x)
        return RuleSet(edits=nothing, cut=cut, logs=logs, reason=reason)
    rules = [(*outer.items[triples.outer[i]], *triples.inner[i]) for i in chosen]
    return _rule_set(settings, problem, triples, changes, chosen, rules, logs)


def _choose(
    settings: RuleSettings, problem: Cohort, triples: Triples, changes: Changes
) -> tuple[list[int], float, bool]:
    """Return (chosen triples, best first; their objective; whether the search was cut short)."""
    if not len(triples):
        return [], 0.0, False
    limits = RuleLimits(rules=settings.max_rules, groups=settings.max_groups)
    function = rule_objective(settings, problem, triples, changes)
    chosen, unfinished = exchange(function, lazy_greedy(function, limits), limits)
    at = np.array(chosen, dtype=np.int64)
    alone = function.gains(at, np.zeros(function.rows))
    chosen = at[np.argsort(-alone, kind="stable")].tolist()
    return chosen, float(function(chosen)), unfinished


def _rule_set(
    settings: RuleSettings,
    problem: Cohort,
    triples: Triples,
    changes: Changes,
    chosen: list[int],
    rules: list[tuple[Item, ...]],
    logs: dict[str, Any],
) -> RuleSet:
    """Put chosen rules into words, and add the default rule if there is to be one."""
    edits = changes.edits.select(triples.change[chosen].tolist())
    units = [
        _unit(problem, triples, changes, i, r, n)
        for n, (i, r) in enumerate(zip(chosen, rules, strict=True))
    ]
    if settings.default_rule:
        extra, unit = _default(problem, changes, len(units))
        rules, edits, units = [*rules, ()], _joined(edits, extra), [*units, unit]
    return RuleSet(
        units=tuple(units), conditions=tuple(rules), edits=edits, cut=logs["cut"], logs=logs
    )


def _changes(settings: RuleSettings, problem: Cohort) -> tuple[Changes, Conditions, list[str]]:
    conditions = Conditions(problem, if_items(problem, settings.bins))
    items, many = then_items(problem, settings.bins, settings.max_items)
    cut = ["items"] if many else []
    beam = Beam(
        width=settings.beam,
        largest=min(settings.max_width, settings.max_changes),
        last_resort=settings.max_changes,
    )
    sets, tried = beam_search(problem, items, beam)
    if settings.then == "shift":
        return shifted_changes(problem, conditions, sets, settings.beam), conditions, cut
    edits = set_edits(sets, problem.space, problem.query.x)
    free = Changes(sets=sets, edits=edits, tried=tried, inner=[None] * len(sets))
    return free, conditions, cut


def _penalty(settings: RuleSettings) -> float:
    """Return what a row in vain costs against a row that flips, for ranking single rules."""
    if settings.objective == "accuracy":
        return 1e-3
    l1, l2 = (settings.weights or (1.0, 1.0))[:2]
    return l1 / max(l2, 1e-9) - 1


def rule_objective(
    settings: RuleSettings, problem: Cohort, triples: Triples, changes: Changes
) -> SetFunction:
    """Return the objective of the method as a function of sets of triples."""
    n = len(problem.query)
    cost = changes.tried.cost.double().cpu().numpy()
    if settings.objective == "accuracy":
        l1, l2 = settings.weights or (1.0, 10.0)
        top = BINS * settings.max_width
        worth = (100 * l1 + l2 * (top - np.minimum(cost, top))) / n

        def accuracy(which: np.ndarray) -> np.ndarray:
            return np.asarray(unpack(triples.right[which], n) * worth[triples.change[which]])

        return SetFunction(
            own=np.zeros(len(triples)), values=accuracy, rows=n, group=triples.outer
        )
    l1, l2, l3, l4 = settings.weights or (1.0, 1.0, 1.0, 1.0)
    touched = feature_costs(problem.space, settings.feature_costs, settings.comparisons)
    effort = np.array([sum(touched[t.feature] for t in s) for s in changes.sets])
    covered = count(triples.covered)
    change = _mean_cost(triples, cost, covered)
    wrong = covered - count(triples.right)
    own = -l1 * wrong - l3 * effort[triples.change] - l4 * change
    size = settings.max_rules * settings.max_width
    top = l1 * n * settings.max_rules + (l3 * touched.max() + l4 * problem.bin_cost.largest) * size

    def cover(which: np.ndarray) -> np.ndarray:
        return np.asarray(l2 * unpack(triples.covered[which], n).astype(np.float64))

    return SetFunction(own=own, values=cover, rows=n, group=triples.outer, constant=top)


def _mean_cost(triples: Triples, cost: np.ndarray, covered: np.ndarray) -> np.ndarray:
    """(V,) mean cost in bins over the rows that each rule is meant for."""
    n, out = cost.shape[1], np.zeros(len(triples))
    size = max(1, 2**22 // max(n, 1))
    for start in range(0, len(triples), size):
        part = slice(start, start + size)
        rows = unpack(triples.covered[part], n)
        out[part] = (rows * cost[triples.change[part]]).sum(1)
    return np.asarray(out / np.maximum(covered, 1))


def _unit(
    problem: Cohort, triples: Triples, changes: Changes, i: int, rule: tuple[Item, ...], n: int
) -> Unit:
    rows = len(problem.query)
    right = unpack(triples.right[i], rows)
    covered = int(count(triples.covered[i]))
    number = int(triples.change[i])
    cost = changes.tried.cost[number].cpu().numpy()
    return _word(
        problem, changes.edits, number, rule, n,
        cost=float(cost[right].mean()) if right.any() else float("nan"),
        coverage=covered / rows,
        correctness=int(right.sum()) / max(covered, 1),
    )  # fmt: skip


def _word(
    problem: Cohort,
    edits: Edits,
    at: int,
    rule: tuple[Item, ...],
    n: int,
    *,
    cost: float,
    coverage: float,
    correctness: float,
) -> Unit:
    parts = (a[at].cpu().numpy() for a in (edits.shift, edits.fixed, edits.value))
    return Unit(
        id=problem.unit_id(n),
        kind="rule",
        conditions=tuple(i.word(problem.space, problem.wording) for i in rule),
        effects=problem.wording.edit(*parts),
        cost=cost,
        coverage=coverage,
        correctness=correctness,
    )


def _default(problem: Cohort, changes: Changes, n: int) -> tuple[Edits, Unit]:
    """Return the change that helps most rows, for those that no rule matches."""
    share = changes.tried.flips.double().mean(1)
    best = int(share.argmax())
    flips = changes.tried.flips[best]
    cost = float(changes.tried.cost[best][flips].mean()) if bool(flips.any()) else float("nan")
    unit = _word(
        problem, changes.edits, best, (), n,
        cost=cost, coverage=1.0, correctness=float(share[best]),
    )  # fmt: skip
    return changes.edits.select([best]), unit


def _joined(a: Edits, b: Edits) -> Edits:
    names = ("shift", "fixed", "value")
    return Edits(**{n: torch.cat([getattr(a, n), getattr(b, n)]) for n in names})
