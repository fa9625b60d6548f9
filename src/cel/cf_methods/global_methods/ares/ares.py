"""AReS: a short list of two-level recourse rules (Rawal and Lakkaraju, 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import GlobalMixin, Options
from cel.cf_methods.explanations.base import ExplanationMethod, FitSplit
from cel.cf_methods.explanations.cohort import Applied, Cohort, Learned
from cel.cf_methods.explanations.edits import BinCost, Edits, predict_edits, settle
from cel.cf_methods.explanations.predicates import Item, all_hold
from cel.cf_methods.global_methods.ares.comparisons import feature_costs
from cel.cf_methods.global_methods.ares.rule_list import RuleSet, learn_rules
from cel.cf_methods.query import Query
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.parameters import at_least
from cel.protocols import Predictor
from cel.space import FeatureSpace

__all__ = ["AReS"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Learnt:
    conditions: tuple[tuple[Item, ...], ...]
    edits: Edits
    bin_cost: BinCost


class AReS(GlobalMixin, ExplanationMethod):
    """Find few rules "if q and c then c'" that help as many rows as possible at low cost.

    With substitution c' decides the counterfactual alone, so every change is predicted once and
    all rules that use it follow by intersecting sets of rows.

    Args:
        model: any predictor.
        max_rules: most rules (epsilon 1 of the paper).
        max_width: most conditions of a rule (epsilon 2).
        max_groups: most different subgroups q (epsilon 3).
        max_changes: most features that a rule changes; more than `max_width` only for rows that
            nothing smaller helps.
        objective: "accuracy" maximises 100 * l1 * share of rows helped + l2 * (U - mean cost);
            "original" maximises l1 (U1 - incorrect) + l2 cover + l3 (U3 - feature costs) +
            l4 (U4 - changes in bins).
        weights: l of the objective; by default (1, 10) or (1, 1, 1, 1).
        bins: quantile bins of a number.
        then: "set" a number to the median of its new bin, or "shift" it by the difference.
        beam: "then" sets kept at each size.
        support: smallest share of rows of a subgroup.
        outer_length: most conditions of a subgroup.
        max_outer: most subgroups tried.
        max_items: most single changes tried.
        per_change: candidate rules kept for each "then" set.
        feature_costs: cost of touching a feature by name, for "original".
        comparisons: pairs (harder, easier) of feature names, turned into Bradley-Terry costs.
        oracle: give each row the cheapest matching rule that works for it; otherwise the first
            matching rule of the list, whether it works or not.
        default_rule: answer rows that no rule matches with the change that helps most.
        fit_split: see `ExplanationMethod`.
        max_rows: see `ExplanationMethod`.
        options: settings that every method has.

    Conditions of the kind "is anything" stand for the part of c that does not matter; at least one
    condition of c excludes its new value.
    """

    name: ClassVar[str] = "ares"
    version: ClassVar[int] = 2
    reference: ClassVar[str] = (
        "K. Rawal, H. Lakkaraju. Beyond Individualized Recourse: Interpretable and Interactive "
        "Summaries of Actionable Recourses. NeurIPS 2020, arXiv:2009.07165"
    )
    _test_params: ClassVar[dict[str, Any]] = {"max_rules": 5, "beam": 20, "max_outer": 20}

    def __init__(
        self,
        model: Predictor,
        *,
        max_rules: int = 20,
        max_width: int = 7,
        max_groups: int = 10,
        max_changes: int = 16,
        objective: Literal["accuracy", "original"] = "accuracy",
        weights: tuple[float, ...] | None = None,
        bins: int = 5,
        then: Literal["set", "shift"] = "set",
        beam: int = 60,
        support: float = 0.05,
        outer_length: int = 2,
        max_outer: int = 200,
        max_items: int = 400,
        per_change: int = 50,
        feature_costs: Mapping[str, float] | None = None,
        comparisons: Sequence[tuple[str, str]] | None = None,
        oracle: bool = True,
        default_rule: bool = False,
        fit_split: FitSplit = "train",
        max_rows: int | None = 1000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, fit_split=fit_split, max_rows=max_rows, **options)
        self.max_rules = max_rules
        self.max_width = max_width
        self.max_groups = max_groups
        self.max_changes = max_changes
        self.objective = objective
        self.weights = weights
        self.bins = bins
        self.then = then
        self.beam = beam
        self.support = support
        self.outer_length = outer_length
        self.max_outer = max_outer
        self.max_items = max_items
        self.per_change = per_change
        self.feature_costs = feature_costs
        self.comparisons = comparisons
        self.oracle = oracle
        self.default_rule = default_rule

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        super()._check(model, space)
        at_least(self, 1, "max_rules", "max_width", "max_groups")
        at_least(self, 1, "max_changes", "beam")
        at_least(self, 1, "max_items", "per_change")
        at_least(self, 2, "bins")
        at_least(self, 0, "support", "max_outer")
        size = 2 if self.objective == "accuracy" else 4
        if self.weights is not None and len(self.weights) != size:
            raise ConfigError(f"objective {self.objective!r} has {size} weights: {self.weights}")
        feature_costs(space, self.feature_costs, self.comparisons)

    def _learn(self, problem: Cohort) -> Learned:
        found: RuleSet = learn_rules(self, problem)
        if not found.units:
            return Learned(reason=found.reason, budget_hit=bool(found.cut), logs=found.logs)
        state = _Learnt(conditions=found.conditions, edits=found.edits, bin_cost=problem.bin_cost)
        return Learned(units=found.units, state=state, budget_hit=bool(found.cut), logs=found.logs)

    def _apply(self, state: _Learnt, query: Query) -> Applied:
        matches = self._matches(state, query)
        tried = predict_edits(query, state.edits, state.bin_cost)
        number = torch.arange(len(state.edits), device=query.x.device, dtype=query.x.dtype)
        # Rules are in order of worth: the first that matches is the answer without an oracle.
        rank = torch.where(matches, number[:, None] + 1e6, torch.inf)
        if self.oracle:
            works = matches & tried.flips
            rank = torch.where(works, tried.cost + 1e-6 * number[:, None], rank)
        best, unit = rank.min(0)
        unit = torch.where(best.isfinite(), unit, -1)
        points = state.edits.select(unit.clamp(min=0)).one_each(query.x)
        x = settle(points[None], query.region, state.bin_cost)[0]
        x = torch.where((unit >= 0)[:, None], x, torch.nan)
        return Applied(x=x, unit=unit, matches=matches.sum(0))

    def _matches(self, state: _Learnt, query: Query) -> Tensor:
        rows, space = query.x.cpu().numpy(), query.region.space
        out = torch.ones(len(state.edits), len(query), dtype=torch.bool)
        for number, items in enumerate(state.conditions):
            out[number] = torch.as_tensor(all_hold(items, rows, space))
        return out.to(query.x.device)
