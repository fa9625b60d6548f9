"""What global and group-wise methods are given to learn from, and what they hand back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.explanations.edits import BinCost
from cel.cf_methods.explanations.units import Unit
from cel.cf_methods.explanations.wording import Wording
from cel.cf_methods.query import Query, TrainRows
from cel.search.streams import row_keys
from cel.space import FeatureSpace

__all__ = ["Applied", "Cohort", "Learned", "infeasible_reason", "some_rows"]

IDS_PER_TARGET = 10_000  # unit ids of target k start at k times this


@dataclass(frozen=True, kw_only=True, eq=False)
class Cohort:
    """What an explanation is fitted on.

    Attributes:
        query: the affected rows in random order, with their targets and regions.
        train: all training rows with the model's predictions.
        hit: (m,) bool, training rows that have the target outcome.
        bin_cost: cost in bins.
        wording: decodes values.
        rng: the source of all random choices.
        key: what the explanation is filed under.
    """

    query: Query
    train: TrainRows
    hit: Tensor
    bin_cost: BinCost
    wording: Wording
    rng: np.random.Generator
    key: int

    @property
    def space(self) -> FeatureSpace:
        """The encoded features."""
        return self.query.region.space

    @property
    def price(self) -> BinCost:
        """The earlier name of `bin_cost`."""
        return self.bin_cost

    def unit_id(self, number: int) -> int:
        """Return the id of the unit with a number; ids of different targets never collide."""
        return self.key * IDS_PER_TARGET + number

    def sample(self, count: int) -> Tensor:
        """Return at most `count` row numbers; the rows of a problem are in random order."""
        return self.query.rows()[:count]


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """What a method learned: its units, the state that `_apply` needs, its answers if known."""

    units: tuple[Unit, ...] = ()
    state: Any = None
    reason: str | None = None
    budget_hit: bool = False
    logs: dict[str, Any] = field(default_factory=dict)
    applied: Applied | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Applied:
    """Candidates (n, d) with NaN, the unit's position (n,) or -1, and how many units matched."""

    x: Tensor
    unit: Tensor
    matches: Tensor

    @classmethod
    def nothing(cls, like: Tensor) -> Applied:
        """Return no candidate for the rows of `like` (n, d)."""
        none = torch.full((len(like),), -1, dtype=torch.long, device=like.device)
        return cls(x=torch.full_like(like, torch.nan), unit=none, matches=torch.zeros_like(none))


def some_rows(x: Tensor, count: int | None, seed: int) -> Tensor:
    """Return at most `count` row numbers of `x` (n, d) in an order that only content decides.

    The order looks random, but the same rows in another order give the same sample.
    """
    return row_keys(x, seed).argsort(stable=True)[:count]


def infeasible_reason(problem: Cohort) -> str | None:
    """Return why nothing can be learned, or None."""
    if not len(problem.query):
        return "no row needs an explanation: the model gives the target to every row"
    if not problem.bin_cost.movable.any():
        return "no feature can change: all are immutable or constant in the training rows"
    return None
