"""Local counterfactuals of centroids: neighbours, random mixtures, or descent, all at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.explanations.edits import BinCost, settle
from cel.cf_methods.group_methods.glance.actions import centroid_query
from cel.cf_methods.query import MARGIN, Query
from cel.search import Adam, gradient_search, nearest

__all__ = ["GENERATORS", "local_counterfactuals"]

GENERATORS = ("nun", "random", "gradient")
DONORS = 5000
MIXTURES = 1000  # for each centroid
FIRST_LOOK = 128  # the cheapest of them, which the model is asked about first
STEPS = 300


def local_counterfactuals(
    problem: Cohort, centroids: Tensor, count: int, generator: str
) -> tuple[Tensor, Tensor]:
    """Return (points (a, d), their centroid (a,)): up to `count` for each centroid (k, d).

    Args:
        problem: what to fit on.
        centroids: (k, d).
        count: counterfactuals of each centroid.
        generator: "nun" takes the nearest training rows with the target; "random" mixes features
            of training rows into the centroid and keeps the cheapest that reach the target;
            "gradient" descends from noisy copies of the centroid.
    """
    number = torch.arange(len(centroids), device=centroids.device).repeat_interleave(count)
    if generator == "random":
        return _mixtures(problem, centroids, count)
    if generator == "gradient":
        points = _descents(centroid_query(problem, centroids[number]), problem.bin_cost)
    else:
        points, number = _neighbours(problem, centroids, count)
    query = centroid_query(problem, centroids[number])
    return settle(points[None], query.region, problem.bin_cost)[0], number


def _donors(problem: Cohort) -> Tensor:
    donors = problem.train.x[problem.hit]
    if len(donors) > DONORS:
        chosen = problem.rng.choice(len(donors), DONORS, replace=False)
        donors = donors[torch.as_tensor(np.sort(chosen), device=donors.device)]
    return donors


def _neighbours(problem: Cohort, centroids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    donors, scale = _donors(problem), problem.bin_cost.scale
    _, index = nearest(centroids * scale, donors * scale, count, p=1.0)
    number = torch.arange(len(centroids), device=centroids.device)
    number = number.repeat_interleave(index.shape[1])
    points = donors[index.ravel()]
    # Blocks that may not move, or not to that level, stay as they are.
    return _keep_fixed_blocks(points, centroids[number], problem), number


def _keep_fixed_blocks(points: Tensor, home: Tensor, problem: Cohort) -> Tensor:
    points = points.clone()
    for position, f in enumerate(problem.space):
        columns = list(f.columns)
        if not f.one_hot:
            if not problem.bin_cost.movable[position]:
                points[:, columns] = home[:, columns]
            continue
        allowed = torch.tensor(f.allowed_mask, device=points.device)
        level = points[:, columns].argmax(1)
        stays = ~allowed[level] | (not problem.bin_cost.movable[position])
        points[:, columns] = torch.where(stays[:, None], home[:, columns], points[:, columns])
    return points


def _mixtures(problem: Cohort, centroids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    space, rng = problem.space, problem.rng
    owner = torch.as_tensor(space.owner, device=centroids.device)
    points, numbers = [], []
    for number, centroid in enumerate(centroids):
        if problem.query.budget.expired:
            break
        home = centroid.expand(MIXTURES, -1)
        rows = torch.as_tensor(rng.integers(len(problem.train.x), size=MIXTURES))
        donors = _keep_fixed_blocks(problem.train.x[rows.to(centroid.device)], home, problem)
        share = rng.random((MIXTURES, 1)) ** 2
        taken = torch.as_tensor(rng.random((MIXTURES, len(space))) < share).to(centroid.device)
        query = centroid_query(problem, centroid[None])
        mixed = torch.where(taken[:, owner], donors, home)
        mixed = settle(mixed[None], query.region, problem.bin_cost)[0]
        best = _cheapest_good(query, mixed, problem.bin_cost(home, mixed), count)
        points.append(mixed[best])
        numbers.append(torch.full((len(best),), number, device=centroids.device))
    if not points:
        return centroids[:0], torch.zeros(0, dtype=torch.long, device=centroids.device)
    return torch.cat(points), torch.cat(numbers)


def _cheapest_good(query: Query, x: Tensor, cost: Tensor, count: int) -> Tensor:
    """Return the places of the `count` cheapest points (m, d) that reach the target of a query.

    The model is asked about the cheapest first, and about no more than it takes.
    """
    order, found = cost.argsort(stable=True), []
    for some in torch.split(order, _looks(len(order))):
        target = query.target.expand(len(some), *query.target.shape[1:])
        found.append(some[query.model.margin(x[some], target) >= MARGIN])
        if sum(map(len, found)) >= count:
            break
    return torch.cat(found)[:count]


def _looks(count: int) -> list[int]:
    """Return sizes that add up to `count`, each twice the one before."""
    sizes, size = [], FIRST_LOOK
    while count > 0:
        sizes.append(min(size, count))
        count, size = count - size, 2 * size
    return sizes


def _descents(query: Query, bin_cost: BinCost) -> Tensor:
    """Descend margin shortfall plus a little cost from noisy centroids."""
    noise = (
        query.rng.normal(query.x.shape[1]) * torch.arange(len(query)).to(query.x)[:, None].sin()
    )
    start = query.region.project(query.x + 0.05 * noise / bin_cost.scale.clamp(min=1e-6))

    def loss(x: Tensor, rows: Tensor) -> Tensor:
        margin = query.model.margin_of(query.model.logits(x), query.target[rows])
        return torch.relu(1 - margin) + 0.02 * bin_cost(query.x[rows], x)

    def cost(x: Tensor, rows: Tensor) -> Tensor:
        return bin_cost(query.x[rows], x)

    found = gradient_search(
        loss,
        start,
        stepper=Adam(0.02),
        project=query.project,
        accept=query.accept,
        cost=cost,
        steps=STEPS,
        check_every=5,
        patience=50,
        budget=query.budget,
    )
    return torch.where(found.ok[:, None], found.x, query.x)
