"""From training rows to boxes, donors, metarules and words, for one target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.explanations.cohort import Applied, Cohort, Learned
from cel.cf_methods.explanations.wording import Wording
from cel.cf_methods.group_methods.tcrex.box_words import box_terms, box_units
from cel.cf_methods.group_methods.tcrex.boxes import Boxes, Surrogates, Wanted, find_rules
from cel.cf_methods.group_methods.tcrex.completion import Donors
from cel.cf_methods.group_methods.tcrex.held_out import (
    HeldOut,
    cross_fitted_accuracy,
    held_out_accuracy,
    metarule_agreement,
)
from cel.cf_methods.group_methods.tcrex.metarules import (
    Metarules,
    cheapest_rules,
    learn_metarules,
)
from cel.cf_methods.group_methods.tcrex.reach import Reach
from cel.cf_methods.query import Query
from cel.space import FeatureSpace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BoxSettings", "Evidence", "Learnt", "actionable_views", "learn_boxes"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Learnt:
    """What is needed to answer rows.

    Attributes:
        rules: the boxes.
        reach: how rows get into them.
        donors: training rows to copy from.
        metarules: which rows share a rule.
        coverage: (L,) share of the fitted rows in each metarule.
        wording: decodes bounds.
    """

    rules: Boxes
    reach: Reach
    donors: Donors
    metarules: Metarules
    coverage: np.ndarray
    wording: Wording

    def table(self) -> pd.DataFrame:
        """Return one line per metarule, the largest first."""
        import pandas as pd

        features, told = self.reach.space.features, self.metarules
        lines = []
        for m in np.argsort(-self.coverage, kind="stable"):
            who = box_terms(self.wording, features, told.lower[[m]], told.upper[[m]])
            lines.append((int(told.rule[m]), _text(who, "everybody"), float(self.coverage[m])))
        rules = [
            _text(box_terms(self.wording, features, low[None], high[None]), "nothing")
            for low, high in zip(self.rules.lower, self.rules.upper, strict=True)
        ]
        rows = [(r, who, rules[r] if r >= 0 else "no rule is in reach", c) for r, who, c in lines]
        return pd.DataFrame(rows, columns=["rule", "if", "then", "coverage"])


def _text(terms: tuple[Any, ...], otherwise: str) -> str:
    return " and ".join(map(str, terms)) or otherwise


def actionable_views(space: FeatureSpace, actionable: bool) -> tuple[np.ndarray, ...]:
    """Return the sets of columns that trees are grown on: all, the mutable, the quite free."""
    every = np.arange(space.width)
    if not actionable:
        return (every,)
    mutable = space.mutable_mask
    free = mutable & np.array([f.direction == "any" for f in space])
    views = [every]
    for features in (mutable, free):
        columns = every[features[space.owner]]
        if len(columns) and len(columns) < len(views[-1]):
            views.append(columns)
    return tuple(views)


class BoxSettings(Protocol):
    """Settings of T-CREx that learning looks at."""

    tau: float
    rho: float
    tau_floor: float
    confidence: float
    max_rules: int
    max_donors: int
    groups: Literal["rule", "metarule"]
    random_state: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What learning rests on besides the rows of the cohort.

    Attributes:
        surrogates: trees over all columns, then over fewer.
        near: (m,) bool, training rows with the target outcome or close to it.
        unseen: rows that nothing was fitted on and which of them have the target, or None.
    """

    surrogates: tuple[Surrogates, ...]
    near: Tensor
    unseen: tuple[np.ndarray, np.ndarray] | None = None


def learn_boxes(
    settings: BoxSettings,
    problem: Cohort,
    evidence: Evidence,
    apply: Callable[[Learnt, Query], Applied],
) -> Learned:
    """Run all steps of T-CREx for one target; `apply` answers rows with what was learnt."""
    hit = problem.hit.cpu().numpy()
    if not hit.any():
        return Learned(reason="no training row has the target outcome")
    wanted = Wanted(
        tau=settings.tau,
        rho=settings.rho,
        tau_floor=settings.tau_floor,
        max_rules=settings.max_rules,
        confidence=settings.confidence,
    )
    rules = _reachable_rules(evidence.surrogates, problem, wanted, hit)
    if not len(rules):
        return Learned(reason="the surrogate has no split: no box is smaller than the space")
    state = _state(settings, problem, rules, evidence.near)
    held_out = _held_out(evidence, problem, hit, rules, wanted)
    applied = apply(state, problem.query)
    units = box_units(
        problem, rules, state.metarules, held_out, applied, by_rule=settings.groups == "rule"
    )
    if not units:
        return Learned(reason="every rule is out of reach of every row")
    fidelity = evidence.surrogates[0].at(settings.rho, problem.query.budget).fidelity
    logs = _logs(problem, state, held_out, evidence) | {
        "fidelity": fidelity,
        "out_of_reach": float((applied.unit < 0).double().mean()),
    }
    return Learned(
        units=units, state=state, budget_hit=bool(rules.cut), logs=logs, applied=applied
    )


def _logs(problem: Cohort, state: Learnt, held_out: HeldOut, evidence: Evidence) -> dict[str, Any]:
    rules = state.rules
    other = None if evidence.unseen is None else evidence.unseen[0][~evidence.unseen[1]]
    return {
        "tau_effective": rules.tau,
        "rho_effective": rules.rho,
        "rules": len(rules),
        "tiers": int(rules.tier.max()) + 1,
        "metarules": len(state.metarules),
        "metarule_agreement": metarule_agreement(state.reach, state.metarules, problem, other),
        "held_out_accuracy": held_out.accuracy,
        "held_out_source": held_out.source,
        "cut": rules.cut,
    }


def _reachable_rules(
    surrogates: tuple[Surrogates, ...], problem: Cohort, wanted: Wanted, hit: np.ndarray
) -> Boxes:
    """Return the rules of the first surrogate, and of others for rows out of reach of them."""
    rows, budget = problem.query.x.cpu().numpy(), problem.query.budget
    rules = find_rules(surrogates[0], hit, wanted, budget)
    for more in surrogates[1:]:
        if budget.expired:
            break
        if len(rules):
            reach = Reach.of(rules, problem.train.x, problem.space)
            if (cheapest_rules(reach, rows) >= 0).all():
                break
        rules = rules.extended(find_rules(more, hit, wanted, budget))
    return rules


def _state(settings: BoxSettings, problem: Cohort, rules: Boxes, near: Tensor) -> Learnt:
    train, space = problem.train, problem.space
    reach = Reach.of(rules, train.x, space)
    donors = Donors.of(
        rules,
        train.x,
        train.y,
        near,
        problem.bin_cost,
        limit=settings.max_donors,
        owner=torch.as_tensor(space.owner).to(train.x.device),
        seed=settings.random_state,
    )
    metarules = learn_metarules(reach, problem)
    part = metarules.part_of(problem.query.x.cpu().numpy())
    return Learnt(
        rules=rules,
        reach=reach,
        donors=donors,
        metarules=metarules,
        coverage=np.bincount(part, minlength=len(metarules)) / max(len(part), 1),
        wording=problem.wording,
    )


def _held_out(
    evidence: Evidence, problem: Cohort, hit: np.ndarray, rules: Boxes, wanted: Wanted
) -> HeldOut:
    if evidence.unseen is None:
        budget = problem.query.budget
        return cross_fitted_accuracy(evidence.surrogates[0], hit, wanted, budget, len(rules))
    return held_out_accuracy(rules, *evidence.unseen)
