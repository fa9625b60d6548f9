"""What local, group-wise and global counterfactuals of one density have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.cf_methods.tangent.plausible import DensityDemand
from cel.objectives import density_shortfall, hinge, probability_margin, safe_norm
from cel.space.simplex import project_simplex

__all__ = ["Distance", "ShiftObjective", "ShiftWeights", "entropy", "sparsemax"]

Distance = Literal["l1", "l2"]


@dataclass(frozen=True, kw_only=True)
class ShiftWeights:
    """Weights of the terms: distance, validity, plausibility, one shift a row, few, different."""

    distance: float
    validity: float
    plausibility: float
    choice: float
    groups: float
    difference: float


def sparsemax(scores: Tensor) -> Tensor:
    """Return the point of the simplex nearest to each row of scores (n, K).

    Martins and Astudillo, From softmax to sparsemax, ICML 2016.

    >>> sparsemax(torch.tensor([[2.0, 0.0], [0.5, 0.0]]))
    tensor([[1.0000, 0.0000],
            [0.7500, 0.2500]])
    """
    return project_simplex(scores, torch.ones_like(scores, dtype=torch.bool))


def entropy(p: Tensor) -> Tensor:
    """Return the entropy over the last axis, in nats, with a finite gradient at zero.

    >>> entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor([-0.0000, 0.6931])
    """
    return -(p * p.clamp(min=1e-12).log()).sum(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class ShiftObjective:
    """Distance plus what validity and plausibility miss, one number per row.

    Attributes:
        query: rows and targets.
        demand: the level of log-density that every row's answer should have.
        weights: of all terms.
        epsilon: by how much the target's probability shall exceed the best other one.
        distance: norm of the change in encoded units.
    """

    query: Query
    demand: DensityDemand
    weights: ShiftWeights
    epsilon: float
    distance: Distance

    def length(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the distances (a,) of points (a, d) from their rows."""
        delta = x - self.query.x[rows]
        return delta.abs().sum(-1) if self.distance == "l1" else safe_norm(delta)

    def loss(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the losses (a,) of points (a, d)."""
        query, w = self.query, self.weights
        margin = probability_margin(query.model.logits(x), query.target[rows])
        short = density_shortfall(self.demand.log_density(x, rows), self.demand.level[rows])
        missed = w.validity * hinge(margin, self.epsilon) + w.plausibility * short
        return w.distance * self.length(x, rows) + missed

    def plausible(self, x: Tensor, rows: Tensor) -> Tensor:
        """Tell which points (a, d) are at least as probable as their level, (a,)."""
        with torch.no_grad():
            return self.demand.log_density(x, rows) >= self.demand.level[rows]
