"""How good rules and metarules are on rows that they were not made from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from cel.cf_methods.explanations.cohort import Cohort, some_rows
from cel.cf_methods.group_methods.tcrex.boxes import Boxes, Surrogates, Wanted, find_rules, inside
from cel.cf_methods.group_methods.tcrex.metarules import (
    Metarules,
    cheapest_rules,
    neighbouring_rows,
)
from cel.cf_methods.group_methods.tcrex.reach import Reach
from cel.search import Budget

__all__ = ["HeldOut", "cross_fitted_accuracy", "held_out_accuracy", "metarule_agreement"]

HELD_OUT = 0.2  # share of the training rows when there are no others


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """How accurate rules are on rows that the trees have not seen.

    Attributes:
        accuracy: share of the pairs (row, rule around it) whose row has the target outcome.
        by_rule: (R,) the same for each rule, NaN for rules without rows.
        rows: (R,) held-out rows in each rule.
        source: "held-out rows", or "cross-fitted": rules made from 80 % of the training rows by
            the same settings, measured on the others.
    """

    accuracy: float
    by_rule: np.ndarray
    rows: np.ndarray
    source: str


def held_out_accuracy(rules: Boxes, x: np.ndarray, hit: np.ndarray) -> HeldOut:
    """Measure rules on rows (n, d), of which some have the target outcome (n,)."""
    member = inside(x, rules.lower, rules.upper)
    rows, right = member.sum(1), (member & hit).sum(1)
    share = np.where(rows > 0, right / np.maximum(rows, 1), np.nan)
    total = float(right.sum() / rows.sum()) if rows.sum() else float("nan")
    return HeldOut(accuracy=total, by_rule=share, rows=rows, source="held-out rows")


def cross_fitted_accuracy(
    surrogates: Surrogates, hit: np.ndarray, wanted: Wanted, budget: Budget, count: int
) -> HeldOut:
    """Estimate the accuracy of the first tier; `count` is the number of real rules."""
    order = some_rows(torch.as_tensor(surrogates.x), None, surrogates.seed).numpy()
    size = int(HELD_OUT * len(order))
    test, rest = order[:size], np.sort(order[size:])
    part = replace(surrogates, x=surrogates.x[rest], y=surrogates.y[rest], _grown={})
    rules = find_rules(part, hit[rest], wanted, budget)
    measured = held_out_accuracy(rules, surrogates.x[test], hit[test])
    unknown = np.full(count, np.nan)
    return HeldOut(
        accuracy=measured.accuracy, by_rule=unknown, rows=np.zeros(count, dtype=np.int64),
        source="cross-fitted",
    )  # fmt: skip


def metarule_agreement(
    reach: Reach, metarules: Metarules, problem: Cohort, held_out: np.ndarray | None
) -> float:
    """Return on how many unseen rows the metarules name the cheapest rule.

    The rows are held-out ones (n, d) or, if there are none, neighbours of the fitted rows.
    """
    if held_out is None or not len(held_out):
        held_out = neighbouring_rows(problem, 2000)
    told = metarules.rule[metarules.part_of(held_out)]
    return float((told == cheapest_rules(reach, held_out)).mean())
