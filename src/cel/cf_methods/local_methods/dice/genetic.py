"""DiCE by a genetic search over a small population per row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from cel.cf_methods.local_methods.dice.known_rows import best_distinct, changed_count, near_rows
from cel.cf_methods.query import MARGIN, Query, TrainRows
from cel.search.feature_draws import Sampler
from cel.search.population import evolve
from cel.search.streams import RowStreams

__all__ = ["GeneticSettings", "genetic_sets"]

_INVALID = 1e6  # cost of a row without the wanted outcome, on top of its hinge
_FROM_FIRST, _FROM_SECOND = 0.4, 0.8  # shares of a child's features, cumulated
_LOOKS = (0.5, 0.6, 0.75, 1.0)  # shares of the children, cheapest first, shown to the model
_PART = 8192  # individuals of one search: small enough for the cache


@dataclass(frozen=True, kw_only=True)
class GeneticSettings:
    """Weights and limits of the genetic search; see `DiCE`."""

    k: int
    proximity_weight: float
    sparsity_weight: float
    generations: int
    patience: int = 5
    give_up: int = 25


@torch.no_grad()
def genetic_sets(
    query: Query, train: TrainRows | None, weight: Tensor, settings: GeneticSettings
) -> Tensor:
    """Return (n, k, d) sets by crossover and mutation (after GeCo, Schleich et al., 2021).

    The population of 10 k rows starts from near rows of the target class and random ones. The
    fittest k survive, parents come from the fitter half; a child takes each feature from one
    parent (40 %), the other (40 %) or a random draw (20 %). A row ends when the mean cost of its
    fittest k has not fallen for `patience` generations, or `give_up` if some are not valid.
    """
    parts = torch.split(query.rows(), max(1, _PART // (10 * settings.k)))
    return torch.cat([_of_part(query.select(p), train, weight, settings) for p in parts])


def _of_part(
    query: Query, train: TrainRows | None, weight: Tensor, settings: GeneticSettings
) -> Tensor:
    """Return the sets (a, k, d) of some rows."""
    search = _Evolution(query, train, weight, settings)
    population, cost = evolve(
        search, query.rng, generations=settings.generations, budget=query.budget
    )
    late = cost.isinf()
    row, _ = late.nonzero(as_tuple=True)
    cost[late] = search.judged(
        population[late], search.cheapness(population, query.rows())[late], row
    )
    return best_distinct(population, cost, cost < _INVALID, settings.k)


@dataclass(frozen=True, eq=False)
class _Evolution:
    """The search of some rows. Costs are float64: those of invalid individuals are large."""

    query: Query
    train: TrainRows | None
    weight: Tensor  # (d,) of the distance
    settings: GeneticSettings
    draws: ClassVar[int] = 8
    tolerance: ClassVar[float] = 1e-2

    @cached_property
    def sampler(self) -> Sampler:
        return Sampler.of(self.query.region)

    def first(self, stream: RowStreams) -> tuple[Tensor, Tensor]:
        """Return near rows and random ones, and their costs."""
        query, k = self.query, self.settings.k
        population = _first_population(query, self.train, self.sampler, 10 * k, stream)
        nothing = torch.full(population.shape[:2], torch.nan, dtype=torch.float64).to(
            population.device
        )
        return self.fittest(population[:, :0], nothing[:, :0], population, nothing, query.rows())

    def breed(
        self, population: Tensor, worth: Tensor, rows: Tensor, stream: RowStreams
    ) -> tuple[Tensor, Tensor]:
        """Return the fittest k and their children, and their costs."""
        k = self.settings.k
        children, known = _children(self.sampler, population, worth, rows, stream, 9 * k)
        return self.fittest(population[:, :k], worth[:, :k], children, known, rows)

    def goal(self, worth: Tensor, rows: Tensor) -> Tensor:
        """Return the mean cost of the fittest k."""
        return worth[:, : self.settings.k].mean(1)

    def open(self, worth: Tensor, stale: Tensor, rows: Tensor) -> Tensor:
        """Tell for which rows one more generation may help."""
        enough = worth[:, self.settings.k - 1] < _INVALID
        hope = (stale < self.settings.patience) | (~enough & (stale < self.settings.give_up))
        return hope & (self.sampler.count[rows] > 0)

    @cached_property
    def leaves_region(self) -> bool:
        """Whether features that are fine alone need snapping: grids round, relations pull."""
        region = self.query.region
        return bool(region.space.constraints) or bool((region.layout.step > 0).any())

    def fittest(
        self, elders: Tensor, known: Tensor, children: Tensor, worth: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return elders (a, e, d) and children (a, c, d), fittest first, and costs (a, e + c).

        The half that counts is found without asking the model about all: children that are copies
        have a cost already (`worth`, else NaN), and the cheapest are judged first. Where they
        and the elders give enough valid individuals, all others are dearer; they cost infinity.
        """
        (a, count), half = children.shape[:2], 5 * self.settings.k
        if not elders.shape[1] or self.leaves_region:
            source = rows.repeat_interleave(count)
            seen: Tensor = self.query.region.select(source).snap(children.flatten(0, 1))
            children = seen.reshape(children.shape)
        base = self.cheapness(children, rows)
        order = base.argsort(dim=1, stable=True)
        cost = torch.full_like(base, torch.inf)
        here, shown = torch.arange(a, device=rows.device), [0, *(int(s * count) for s in _LOOKS)]
        for start, stop in pairwise(shown):
            part = order[:, start:stop]
            at = here[:, None].expand(-1, part.shape[1]), part[here]
            values = worth[at]
            new = values.isnan()
            one, child = at[0][new], at[1][new]
            values[new] = self.judged(children[one, child], base[one, child], rows[one])
            cost[at] = values
            valid = (cost < _INVALID).sum(1) + (known < _INVALID).sum(1)
            here = (valid < half).nonzero()[:, 0]
        population, cost = torch.cat([elders, children], 1), torch.cat([known, cost], 1)
        cost, order = cost.sort(dim=1, stable=True)
        return population.gather(1, order[..., None].expand_as(population)), cost

    def cheapness(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return a weighted distance per feature + b share of changed features (a, b)."""
        query, p = self.query, len(self.query.region.space)
        distance = ((x - query.x[rows][:, None, :]).abs() * self.weight).sum(-1) / p
        changes = changed_count(query, x, rows) / p
        cost = self.settings.proximity_weight * distance + self.settings.sparsity_weight * changes
        return cost.to(torch.float64)

    def judged(self, x: Tensor, base: Tensor, rows: Tensor) -> Tensor:
        """Return the cost (m,) of points (m, d): `base`, or the hinge of invalid ones."""
        margin = self.query.model.margin(x, self.query.target[rows])
        return torch.where(margin >= MARGIN, base, _INVALID + torch.relu(MARGIN - margin))


def _first_population(
    query: Query, train: TrainRows | None, sampler: Sampler, size: int, stream: RowStreams
) -> Tensor:
    """Return (n, size, d): near rows of the target class first, random ones to fill up."""
    population = query.x[:, None, :].repeat(1, size, 1)
    if train is not None:
        half = size // 2
        population[:, :half] = near_rows(query, train, query.rows(), half)
    same = (population == query.x[:, None, :]).all(-1, keepdim=True)
    return torch.where(same, sampler.everything(population, query.rows(), stream), population)


def _children(
    sampler: Sampler,
    population: Tensor,
    cost: Tensor,
    rows: Tensor,
    stream: RowStreams,
    count: int,
) -> tuple[Tensor, Tensor]:
    """Mix the features of two parents from the fitter half and some random draws.

    Returns:
        children (a, count, d), and their costs (a, count) where they are copies of a parent
        whose cost is known, NaN elsewhere.
    """
    size, d = population.shape[1:]
    half = max(1, size // 2)
    chosen = [stream.integers(half, count) for _ in range(2)]
    first, second = (population.gather(1, c[..., None].expand(-1, -1, d)) for c in chosen)
    region = sampler.region
    fate = stream.uniform(count, len(region.space))
    # What is left of a fate beyond the parents' shares is uniform again.
    fresh = sampler.at(((fate - _FROM_SECOND) / (1 - _FROM_SECOND)).clamp(min=0), rows)
    fate = fate[..., region.layout.owner]
    child = torch.where(fate < _FROM_FIRST, first, second)
    child = torch.where(fate < _FROM_SECOND, child, fresh)
    worth = torch.full_like(cost, torch.nan)[:, :1].expand(-1, count)
    for parent, which in zip((first, second), chosen, strict=True):
        worth = torch.where((child == parent).all(-1), cost.gather(1, which), worth)
    return child, worth.masked_fill(worth.isinf(), torch.nan)
