"""Boxes in words: rules and metarules in original units, with what they do for the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from cel.cf_methods.explanations.cohort import Applied, Cohort
from cel.cf_methods.explanations.units import Unit
from cel.cf_methods.explanations.wording import Term, Wording
from cel.cf_methods.group_methods.tcrex.boxes import Boxes
from cel.cf_methods.group_methods.tcrex.held_out import HeldOut
from cel.cf_methods.group_methods.tcrex.metarules import Metarules
from cel.cf_methods.query import MARGIN
from cel.space import Feature

__all__ = ["box_terms", "box_units"]

MOST_PARTS = 20  # metarules told with a rule, the largest first


def box_terms(
    wording: Wording, features: Sequence[Feature], lower: np.ndarray, upper: np.ndarray
) -> tuple[Term, ...]:
    """Word the smallest box around boxes (b, d); features that may be anything are left out."""
    terms = []
    for f in features:
        columns = list(f.columns)
        low, high = lower[:, columns], upper[:, columns]
        if f.is_categorical:
            on, off = (low < 1) & (high >= 1), (low < 0) & (high >= 0)
            allowed = on & ((~off).sum(1, keepdims=True) - ~off == 0)
            term = wording.levels(f, allowed.any(0).tolist())
        else:
            term = wording.interval(f, _on_grid(f, low.min()), _on_grid(f, high.max()))
        if term.operator != "any":
            terms.append(term)
    return tuple(terms)


def _on_grid(f: Feature, bound: float) -> float:
    """Round a bound down to the grid: nothing lies between, and > and <= stay what they were."""
    if not f.step or not np.isfinite(bound):
        return float(bound)
    return f.anchor + f.step * float(np.floor((bound - f.anchor) / f.step + 1e-4))


def box_units(
    problem: Cohort, rules: Boxes, metarules: Metarules, held_out: HeldOut, applied: Applied,
    *, by_rule: bool,
) -> tuple[Unit, ...]:  # fmt: skip
    """Describe every rule, or every metarule, and what it does for the fitted rows."""
    part = metarules.part_of(problem.query.x.cpu().numpy())
    worth = _Worth.of(problem, applied)
    if by_rule:
        return tuple(
            _rule_unit(problem, rules, metarules, held_out, part, worth, i)
            for i in range(len(rules))
        )
    return tuple(
        _part_unit(problem, rules, metarules, held_out, worth, number, i)
        for number, i in enumerate(np.flatnonzero(metarules.rule >= 0).tolist())
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Worth:
    """Which unit answers which fitted row, whether that works, and its cost."""

    unit: Tensor
    valid: Tensor
    cost: Tensor

    @classmethod
    def of(cls, problem: Cohort, applied: Applied) -> _Worth:
        query = problem.query
        have = ~applied.x.isnan().any(1)
        valid = have.clone()
        valid[have] = query.model.margin(applied.x[have], query.target[have]) >= MARGIN
        return cls(unit=applied.unit, valid=valid, cost=problem.bin_cost(query.x, applied.x))

    def numbers(self, unit: int) -> dict[str, float]:
        """Return coverage, correctness and cost of a unit."""
        mine = self.unit == unit
        good = mine & self.valid
        some = bool(good.any())
        return {
            "coverage": float(mine.double().mean()),
            "correctness": float(self.valid[mine].double().mean()) if bool(mine.any()) else 0.0,
            "cost": float(self.cost[good].mean()) if some else float("nan"),
        }


def _rule_details(rules: Boxes, held_out: HeldOut, i: int) -> dict[str, Any]:
    return {
        "rule": i,
        "feasibility": float(rules.feasibility[i]),
        "accuracy": float(rules.accuracy[i]),
        "held_out_accuracy": float(held_out.by_rule[i]),
        "held_out_rows": int(held_out.rows[i]),
    }


def _rule_unit(
    problem: Cohort, rules: Boxes, metarules: Metarules, held_out: HeldOut, part: np.ndarray,
    worth: _Worth, i: int,
) -> Unit:  # fmt: skip
    features, wording = problem.space.features, problem.wording
    mine = np.flatnonzero(metarules.rule == i)
    share = np.bincount(part, minlength=len(metarules)) / max(len(part), 1)
    largest = mine[np.argsort(-share[mine], kind="stable")][:MOST_PARTS]
    told = [
        {
            "if": box_terms(wording, features, metarules.lower[[m]], metarules.upper[[m]]),
            "coverage": float(share[m]),
        }
        for m in largest
    ]
    around: tuple[Term, ...] = ()
    if len(mine):
        around = box_terms(wording, features, metarules.lower[mine], metarules.upper[mine])
    return Unit(
        id=problem.unit_id(i),
        kind="box",
        conditions=around,
        effects=box_terms(wording, features, rules.lower[[i]], rules.upper[[i]]),
        details=_rule_details(rules, held_out, i) | {"parts": len(mine), "metarules": told},
        **worth.numbers(i),
    )


def _part_unit(
    problem: Cohort, rules: Boxes, metarules: Metarules, held_out: HeldOut, worth: _Worth,
    number: int, m: int,
) -> Unit:  # fmt: skip
    features, wording = problem.space.features, problem.wording
    i = int(metarules.rule[m])
    return Unit(
        id=problem.unit_id(number),
        kind="box",
        conditions=box_terms(wording, features, metarules.lower[[m]], metarules.upper[[m]]),
        effects=box_terms(wording, features, rules.lower[[i]], rules.upper[[i]]),
        details=_rule_details(rules, held_out, i),
        **worth.numbers(number),
    )
