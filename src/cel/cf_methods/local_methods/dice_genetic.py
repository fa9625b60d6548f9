"""DiCE by a genetic search over a small population per row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cel.cf_methods.local_methods.dice_pool import best_distinct, changed_count, near_rows
from cel.cf_methods.local_methods.dice_random import Sampler
from cel.cf_methods.query import MARGIN, Query, TrainRows
from cel.search.streams import RowStreams

__all__ = ["GeneticSettings", "genetic_sets"]

_INVALID = 1e6  # price of a row without the wanted outcome, on top of its hinge
_DRAWS = 8  # draws of a stream used by one generation
_FROM_FIRST, _FROM_SECOND = 0.4, 0.8  # shares of a child's features, cumulated


@dataclass(frozen=True, kw_only=True)
class GeneticSettings:
    """Weights and limits of the genetic search; see `DiCE`."""

    k: int
    proximity_weight: float
    sparsity_weight: float
    generations: int
    patience: int = 5
    tolerance: float = 1e-2


@torch.no_grad()
def genetic_sets(
    query: Query, train: TrainRows | None, weight: Tensor, settings: GeneticSettings
) -> Tensor:
    """Return (n, k, d) sets by crossover and mutation (after GeCo, Schleich et al., 2021).

    The population of 10 k rows starts from near rows of the target class and random ones. The
    fittest k survive, parents come from the fitter half; a child takes each feature from one
    parent (40 %), the other (40 %) or a random draw (20 %).
    """
    size, k = 10 * settings.k, settings.k
    sampler, rows = Sampler.of(query.region), query.rows()
    people = _first_people(query, train, sampler, size)
    people, price = _priced(query, people, rows, weight, settings)
    stale, last = torch.zeros_like(price[:, 0]), price[:, :k].mean(1)
    for generation in range(settings.generations):
        live = rows[(stale[rows] < settings.patience) & (sampler.count[rows] > 0)]
        if not len(live) or query.budget.expired:
            break
        stream = RowStreams(query.rng.keys[live], query.rng.draw + _DRAWS * (generation + 1))
        children = _children(sampler, people[live], live, stream, size - k)
        family = torch.cat([people[live, :k], children], 1)
        people[live], price[live] = _priced(query, family, live, weight, settings)
        now = price[live, :k].mean(1)
        better = last[live] - now > settings.tolerance
        all_valid = price[live, k - 1] < _INVALID
        stale[live] = torch.where(better | ~all_valid, torch.zeros_like(now), stale[live] + 1)
        last[live] = now
        rows = live
    return best_distinct(people, price, price < _INVALID, k)


def _first_people(query: Query, train: TrainRows | None, sampler: Sampler, size: int) -> Tensor:
    """Return (n, size, d): near rows of the target class first, random ones to fill up."""
    people = query.x[:, None, :].repeat(1, size, 1)
    if train is not None:
        half = size // 2
        people[:, :half] = near_rows(query, train, query.rows(), half)
    stream = RowStreams(query.rng.keys, query.rng.draw)
    same = (people == query.x[:, None, :]).all(-1, keepdim=True)
    return torch.where(same, sampler.everything(people, query.rows(), stream), people)


def _priced(
    query: Query, people: Tensor, rows: Tensor, weight: Tensor, settings: GeneticSettings
) -> tuple[Tensor, Tensor]:
    """Return the people as they will be seen, fittest first, and their prices (a, size).

    Price: hinge of the margin + a weighted distance per feature + b share of changed features.
    """
    size = people.shape[1]
    source = rows.repeat_interleave(size)
    seen: Tensor = query.region.select(source).snap(people.flatten(0, 1))
    margin = query.model.margin(seen, query.target[source]).reshape(-1, size)
    x = seen.reshape(people.shape)
    p = len(query.region.space)
    distance = ((x - query.x[rows][:, None, :]).abs() * weight).sum(-1) / p
    changes = changed_count(query, x, rows) / p
    price = settings.proximity_weight * distance + settings.sparsity_weight * changes
    price = torch.where(margin >= MARGIN, price, _INVALID + torch.relu(MARGIN - margin))
    price, order = price.sort(dim=1, stable=True)
    return x.gather(1, order[..., None].expand_as(x)), price


def _children(
    sampler: Sampler, people: Tensor, rows: Tensor, stream: RowStreams, count: int
) -> Tensor:
    """Mix the features of two parents from the fitter half and some random draws."""
    size, d = people.shape[1:]
    half = max(1, size // 2)
    first, second = (
        people.gather(1, stream.integers(half, count)[..., None].expand(-1, -1, d))
        for _ in range(2)
    )
    region = sampler.region
    fate = stream.uniform(count, len(region.space))[..., region.layout.owner]
    fresh = sampler.everything(people[:, :1].expand(-1, count, -1), rows, stream)
    child = torch.where(fate < _FROM_FIRST, first, second)
    return torch.where(fate < _FROM_SECOND, child, fresh)
