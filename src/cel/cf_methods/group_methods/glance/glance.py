"""GLANCE: a handful of actions that together help everybody (Kavouras et al., 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import GroupMixin, Options
from cel.cf_methods.explanations.base import ExplanationMethod, FitSplit
from cel.cf_methods.explanations.cohort import Applied, Cohort, Learned
from cel.cf_methods.explanations.edits import BinCost, Edits, predict_edits, settle
from cel.cf_methods.explanations.predicates import Item, all_hold
from cel.cf_methods.explanations.units import Unit
from cel.cf_methods.group_methods.glance.actions import join_edits
from cel.cf_methods.group_methods.glance.groups import Group, solve_groups
from cel.cf_methods.group_methods.glance.subgroups import Leaf, solve_tree
from cel.cf_methods.query import Query
from cel.cf_methods.view import ModelView
from cel.errors import UnsupportedError
from cel.parameters import at_least
from cel.protocols import Predictor
from cel.space import FeatureSpace

__all__ = ["GLANCE"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Grouped:
    """Actions, the centroids of their rows (s, d), and conditions if a tree made them."""

    edits: Edits
    homes: Tensor
    items: list[tuple[Item, ...]] | None
    bin_cost: BinCost


class GLANCE(GroupMixin, ExplanationMethod):
    """Cluster affected rows, find counterfactuals of the centroids, keep few actions.

    Clusters merge by the similarity of their rows and of their counterfactuals; each final cluster
    keeps the action that flips most of its rows, the cheapest among equals. An action adds to
    numbers and sets categories; it is the same for every row.

    Args:
        model: any predictor.
        n_actions: final clusters; 1 gives one action for everybody, the global form.
        initial_clusters: clusters of the k-means that begins.
        n_local: counterfactuals of each centroid.
        weights: of rows and of counterfactuals in the similarity of clusters.
        generator: where counterfactuals come from: "nun" (nearest training rows with the target),
            "random" (mixtures with training rows), "gradient" (descent; needs gradients).
        sparsify: give back features of counterfactuals that their centroid does not need; the
            complete ones stay in the pool.
        choice: "max-eff", "low-cost" (cheapest of those that flip `threshold` of the rows) or
            "mean-act" (the mean of all actions, as some published code does).
        threshold: for "low-cost".
        goal: while no action flips this share of a cluster's rows, longer ones are tried; 0 never.
        select: "merge", or "greedy" choice of actions from the whole pool without merging.
        variant: "clusters" (C-GLANCE), or "tree" (T-GLANCE).
        split_features: features that split the tree, each once per branch; by default the two
            whose shuffling changes the model's output most.
        child_count: children of a node.
        node_actions: actions of each leaf.
        oracle: give each row the cheapest action that flips it; otherwise that of its cluster.
        fit_split: see `ExplanationMethod`.
        max_rows: see `ExplanationMethod`.
        options: settings that every method has.
    """

    name: ClassVar[str] = "glance"
    reference: ClassVar[str] = (
        "L. Kavouras et al. GLANCE: Global Actions in a Nutshell for Counterfactual "
        "Explainability. 2024, arXiv:2405.18921"
    )
    _test_params: ClassVar[dict[str, Any]] = {"initial_clusters": 10, "n_actions": 2}

    def __init__(
        self,
        model: Predictor,
        *,
        n_actions: int = 4,
        initial_clusters: int = 100,
        n_local: int = 5,
        weights: tuple[float, float] = (0.5, 0.5),
        generator: Literal["nun", "random", "gradient"] = "nun",
        sparsify: bool = True,
        choice: Literal["max-eff", "mean-act", "low-cost"] = "max-eff",
        threshold: float = 0.95,
        goal: float = 0.99,
        select: Literal["merge", "greedy"] = "merge",
        variant: Literal["clusters", "tree"] = "clusters",
        split_features: Sequence[str] | None = None,
        child_count: int = 2,
        node_actions: int = 3,
        oracle: bool = True,
        fit_split: FitSplit = "train",
        max_rows: int | None = 2000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, fit_split=fit_split, max_rows=max_rows, **options)
        self.n_actions = n_actions
        self.initial_clusters = initial_clusters
        self.n_local = n_local
        self.weights = weights
        self.generator = generator
        self.sparsify = sparsify
        self.choice = choice
        self.threshold = threshold
        self.goal = goal
        self.select = select
        self.variant = variant
        self.split_features = split_features
        self.child_count = child_count
        self.node_actions = node_actions
        self.oracle = oracle

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        super()._check(model, space)
        at_least(self, 1, "n_actions", "initial_clusters")
        at_least(self, 1, "n_local", "node_actions")
        at_least(self, 2, "child_count")
        if self.generator == "gradient" and not model.differentiable:
            raise UnsupportedError("generator 'gradient' needs logits(); use 'nun' or 'random'")

    def _learn(self, problem: Cohort) -> Learned:
        if self.generator == "nun" and not bool(problem.hit.any()):
            return Learned(reason="no training row has the target, so there is nowhere to go")
        if self.variant == "tree":
            leaves = solve_tree(self, problem)
        else:
            everybody = np.arange(len(problem.query))
            groups = solve_groups(
                self, problem, problem.query, self.n_actions, self.initial_clusters
            )
            leaves = [Leaf(items=(), rows=everybody, groups=groups)]
        groups = [g for leaf in leaves for g in leaf.groups]
        if not groups:
            return Learned(reason=f"generator {self.generator!r} found no action")
        items = [leaf.items for leaf in leaves for _ in leaf.groups]
        state = _Grouped(
            edits=join_edits([g.edit for g in groups]),
            homes=torch.stack([g.home for g in groups]),
            items=items if self.variant == "tree" else None,
            bin_cost=problem.bin_cost,
        )
        screened = sum(g.logs["screened"] for g in groups)
        return Learned(
            units=tuple(_unit(problem, g, items[n], n) for n, g in enumerate(groups)),
            state=state,
            budget_hit=screened > 0,
            logs={"cut": ["actions"] if screened else []},
        )

    def _apply(self, state: _Grouped, query: Query) -> Applied:
        tried = predict_edits(query, state.edits, state.bin_cost)
        own, allowed = self._own(state, query)
        rank = torch.full_like(tried.cost, torch.inf)
        rank[own, query.rows()] = 1e9
        if self.oracle:
            rank = torch.where(tried.flips & allowed, tried.cost, rank)
        unit = rank.argmin(0)
        points = state.edits.select(unit).one_each(query.x)
        x = settle(points[None], query.region, state.bin_cost)[0]
        return Applied(x=x, unit=unit, matches=torch.ones_like(unit))

    def _own(self, state: _Grouped, query: Query) -> tuple[Tensor, Tensor]:
        """Return (the action of each row's cluster (n,), actions that it may take (s, n))."""
        distance = state.bin_cost(state.homes[:, None], query.x[None])
        allowed = torch.ones_like(distance, dtype=torch.bool)
        if state.items is None:
            return distance.argmin(0), allowed
        rows, space = query.x.cpu().numpy(), query.region.space
        for number, items in enumerate(state.items):
            allowed[number] = torch.as_tensor(all_hold(items, rows, space))
        # A row with a category that the tree has never seen goes to the nearest leaf.
        allowed |= ~allowed.any(0)
        first = torch.arange(len(allowed), device=allowed.device, dtype=distance.dtype)
        lost = allowed.all(0)
        order = torch.where(lost, distance, first[:, None])
        return torch.where(allowed, order, torch.inf).argmin(0), allowed


def _unit(problem: Cohort, group: Group, items: tuple[Item, ...], number: int) -> Unit:
    rows = torch.as_tensor(group.rows, device=group.flips.device)
    right = float(group.flips[rows].double().mean())
    helped = group.cost[group.flips]
    parts = (a[0].cpu().numpy() for a in (group.edit.shift, group.edit.fixed, group.edit.value))
    return Unit(
        id=problem.unit_id(number),
        kind="action",
        conditions=tuple(i.word(problem.space, problem.wording) for i in items),
        effects=problem.wording.edit(*parts),
        cost=float(helped.mean()) if len(helped) else float("nan"),
        coverage=len(rows) / len(problem.query),
        correctness=right,
        details={"effectiveness": float(group.flips.double().mean()), "rows": len(rows)},
    )
