"""DiCE by gradients: one set of k counterfactuals per row, kept apart by a determinant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import torch
from torch import Tensor

from cel.cf_methods.local_methods.dice.set_slope import SetSlope
from cel.cf_methods.query import Query
from cel.cf_methods.tangent.score_slopes import ScoreLayers
from cel.search import Adam, LastOf, gradient_search, soft_threshold

__all__ = ["Diversity", "GradientSettings", "diversity_of", "gradient_sets"]

Diversity = Literal["dpp", "logdet", "avg_dist"]
_JITTER = 1e-4  # on the diagonal of the kernel
_INVALID = 1e3  # price of a member without the wanted outcome
_CHECK = 10


@dataclass(frozen=True, kw_only=True)
class GradientSettings:
    """Weights and limits of the search; see `DiCE`."""

    k: int
    proximity_weight: float
    diversity_weight: float
    diversity: Diversity
    lr: float
    steps: int
    patience: int


@lru_cache(maxsize=8)
def _pairs(k: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pairs of k members, and which of them is each of k * k entries, or the last."""
    one, other = torch.triu_indices(k, k, 1)
    place = torch.full((k, k), len(one))
    place[one, other] = place[other, one] = torch.arange(len(one))
    return one.to(device), other.to(device), place.flatten().to(device)


def diversity_of(sets: Tensor, weight: Tensor, kind: Diversity) -> Tensor:
    """Return the diversity (n,) of sets (n, k, d) under weighted L1 distances, float64.

    With `K_ij = 1 / (1 + dist_ij) + 1e-4 [i = j]`: "dpp" is det K (Kulesza and Taskar, 2012),
    "logdet" its logarithm, which does not underflow for large k, and "avg_dist" is one minus the
    mean of K over pairs.
    """
    if sets.shape[1] == 1:
        return torch.zeros(len(sets), dtype=torch.float64, device=sets.device)
    kernel, _, near = _kernel(sets, weight)
    if kind == "avg_dist":
        return 1 - near.mean(-1)
    value: Tensor = torch.linalg.det(kernel) if kind == "dpp" else torch.linalg.slogdet(kernel)[1]
    return value


def _kernel(sets: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return K (n, k, k) of sets (n, k, d), differences (n, p, d) of pairs, K of pairs (n, p)."""
    x, k = sets * weight, sets.shape[1]
    one, other, place = _pairs(k, x.device)
    away = x.index_select(1, one) - x.index_select(1, other)
    near = 1 / (1 + away.abs().sum(-1).to(torch.float64))
    own = torch.full_like(near[:, :1], 1 + _JITTER)
    kernel = torch.cat([near, own], 1).index_select(1, place).reshape(-1, k, k)
    return kernel, away, near


@dataclass(frozen=True, eq=False)
class _SetProblem:
    """The objective over sets, written for rows of k * d numbers."""

    query: Query
    weight: Tensor  # (d,) of the distance
    settings: GradientSettings

    @property
    def share(self) -> float:
        """Weight of one unit of distance of one member."""
        return self.settings.proximity_weight / (self.settings.k * self.query.x.shape[1])

    @cached_property
    def shares(self) -> Tensor:
        """(k d,) weight of one unit of each number of a set."""
        return self.share * self.weight.repeat(self.settings.k)

    @cached_property
    def home(self) -> LastOf[Tensor]:
        """Row numbers (a,) -> the rows themselves as sets (a, k d)."""
        return LastOf(lambda rows: self.query.x[rows].repeat(1, self.settings.k))

    def members(self, flat: Tensor) -> Tensor:
        """(a, k d) -> (a, k, d)."""
        return flat.reshape(len(flat), self.settings.k, -1)

    @cached_property
    def each(self) -> LastOf[Tensor]:
        """Repeat row numbers, (a,) -> (a k,)."""
        return LastOf(lambda rows: rows.repeat_interleave(self.settings.k))

    def closed(self) -> SetSlope | None:
        """Return `smooth` with its gradient, for models whose layers are known."""
        settings, query = self.settings, self.query
        layers = ScoreLayers.to_the_bit(query.model, query.x)
        if layers is None or settings.diversity != "dpp":
            return None
        return SetSlope(
            query, layers, self.each, self.weight, settings.k, settings.diversity_weight,
            _pairs(settings.k, query.x.device), lambda c: _kernel(c, self.weight),
        )  # fmt: skip

    def hinge(self, c: Tensor, rows: Tensor) -> Tensor:
        """Return the mean over the members (a,) of `max(0, 1 - margin)`.

        Most members are beyond the hinge most of the time: the graph is built for the others.
        """
        points, target = c.flatten(0, 1), self.query.target[self.each(rows)]
        short = 1 - self.query.model.margin(points.detach(), target)
        at = (short > 0).nonzero()[:, 0]
        if torch.is_grad_enabled() and len(at):
            scores = self.query.model.logits(points[at])
            short = short.index_copy(0, at, 1 - self.query.model.margin_of(scores, target[at]))
        return torch.relu(short).reshape(-1, self.settings.k).mean(1)

    def smooth(self, flat: Tensor, rows: Tensor) -> Tensor:
        """Return the differentiable part (a,): hinge minus diversity."""
        c = self.members(flat)
        hinge = self.hinge(c, rows)
        if self.settings.k == 1 or self.settings.diversity_weight == 0:
            return hinge
        spread = diversity_of(c, self.weight, self.settings.diversity)
        return hinge - self.settings.diversity_weight * spread.to(flat.dtype)

    def prox(self, flat: Tensor, step: Tensor, rows: Tensor) -> Tensor:
        """Take the proximal step of the distance to the row."""
        home = self.home(rows)
        return home + soft_threshold(flat - home, self.shares * step)

    def project(self, flat: Tensor, rows: Tensor) -> Tensor:
        """Move all members into the region of their row."""
        inside = self.query.project(self.members(flat).flatten(0, 1), self.each(rows))
        return inside.reshape(flat.shape)

    def accept(self, flat: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return sets with NaN for invalid members, and whether any member is valid."""
        seen, ok = self.query.accept(self.members(flat).flatten(0, 1), self.each(rows))
        seen = torch.where(ok[:, None], seen, torch.full_like(seen, torch.nan))
        return seen.reshape(flat.shape), ok.reshape(len(rows), -1).any(1)

    def cost(self, flat: Tensor, rows: Tensor) -> Tensor:
        """Return the whole objective (a,); members that are missing cost most."""
        home = self.home(rows)
        absent = flat.isnan()
        c = torch.where(absent, home, flat)
        near = self.share * ((c - home).abs() * self.weight.repeat(self.settings.k)).sum(1)
        missing = self.members(absent).any(-1).sum(1)
        return self.smooth(c, rows) + near + _INVALID * missing


def gradient_sets(query: Query, weight: Tensor, settings: GradientSettings) -> Tensor:
    """Return (n, k, d) sets, NaN for members without the wanted outcome.

    Minimises, over the set C of a row x,
    `mean hinge(c) + a / (k d) sum dist(c, x) - b diversity(C)` with `hinge = max(0, 1 - margin)`.
    The set with most valid members, then with the lowest objective, of all checked steps is kept.
    """
    problem = _SetProblem(query, weight, settings)
    found = gradient_search(
        problem.smooth,
        _start(query, settings.k).flatten(1),
        stepper=Adam(settings.lr, prox=problem.prox),
        project=problem.project,
        accept=problem.accept,
        cost=problem.cost,
        steps=settings.steps,
        check_every=_CHECK,
        patience=settings.patience,
        budget=query.budget,
        closed=problem.closed(),
    )
    return problem.members(found.x)


def _start(query: Query, k: int) -> Tensor:
    """Return (n, k, d) copies of each row, apart from each other: equal ones stay equal.

    The i-th copy is moved by 0.01 i in every number, away from the bound if there is one in the
    way, and its label probabilities are mixed a little at random.
    """
    region, lay = query.region, query.region.layout
    shift = 0.01 * torch.arange(1, k + 1, device=query.x.device)[None, :, None]
    up, down = query.x[:, None, :] + shift, query.x[:, None, :] - shift
    numbers = torch.where(up <= region.upper[:, None, :], up, down)
    labels = query.x[:, None, :] + 0.1 * query.rng.uniform(k, query.x.shape[1])
    start = torch.where(lay.numeric, numbers, labels)
    rows = query.rows().repeat_interleave(k)
    return query.project(start.flatten(0, 1), rows).reshape(start.shape)
