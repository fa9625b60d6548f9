"""Candidate directions for GLOBE-CE: random sparse ones and informed ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.explanations.cohort import Cohort
from cel.search import nearest
from cel.space import FeatureSpace
from cel.space.layout import by_feature

__all__ = ["candidate_directions", "feasible_part", "random_directions"]

TRUNCATIONS = (2, 4, 8, 16)
DONORS = 5000


def random_directions(problem: Cohort, count: int, n_features: int, power: float) -> Tensor:
    """Draw (count, d) directions on `n_features` features each.

    Magnitudes are uniform(0, 1) ** power, numbers get a random sign; a large power makes a
    direction lean on few features.
    """
    space, rng = problem.space, problem.rng
    movable = np.flatnonzero(problem.bin_cost.movable)
    order = rng.random((count, len(movable))).argsort(1)[:, :n_features]
    chosen = np.zeros((count, len(space)), dtype=bool)
    np.put_along_axis(chosen, movable[order], True, axis=1)
    size = rng.random((count, space.width)) ** power
    sign = np.ones((count, space.width))
    numeric = space.numeric_columns
    sign[:, numeric] = rng.choice([-1.0, 1.0], (count, len(numeric)))
    scale = problem.bin_cost.scale
    drawn = np.where(chosen[:, space.owner], size * sign, 0.0)
    return torch.as_tensor(drawn).to(scale) / scale


def candidate_directions(
    problem: Cohort, *, count: int, n_features: int, power: float, informed: bool, nearby: int
) -> Tensor:
    """Return all candidates (D, d) that the space permits, without zeros and repetitions.

    Args:
        problem: what to fit on.
        count: number of random directions.
        n_features: features of a random direction.
        power: sparsity of a random direction.
        informed: add the difference of class means, differences to nearest target rows, and the
            mean gradient if there is one, each also cut down to its dearest features.
        nearby: number of rows whose nearest target row gives a direction.
    """
    parts = [random_directions(problem, count, n_features, power)]
    if informed:
        found = [*_from_neighbours(problem, nearby), *_from_gradient(problem)]
        parts += [_with_truncations(d, problem) for d in found]
    everything = feasible_part(torch.cat(parts), problem)
    cost = everything.abs() @ problem.bin_cost.scale
    everything = everything[cost > 1e-9] / cost[cost > 1e-9][:, None]
    rounded = (everything * problem.bin_cost.scale * 1e4).round().cpu().numpy()
    _, first = np.unique(rounded, axis=0, return_index=True)
    return everything[torch.as_tensor(np.sort(first), device=everything.device)]


def feasible_part(delta: Tensor, problem: Cohort) -> Tensor:
    """Remove what may not move: fixed features and forbidden signs."""
    space = problem.space
    movable = torch.as_tensor(problem.bin_cost.movable[space.owner], device=delta.device)
    lay = problem.query.region.layout
    delta = torch.where(movable, delta, 0)
    delta = torch.where(lay.up, delta.clamp(min=0), delta)
    return torch.where(lay.down, delta.clamp(max=0), delta)


def _from_neighbours(problem: Cohort, nearby: int) -> list[Tensor]:
    """Mean difference (1, d) and differences to the nearest target rows (nearby, d)."""
    donors = problem.train.x[problem.hit]
    if not len(donors):
        return []
    x, scale = problem.query.x, problem.bin_cost.scale
    if len(donors) > DONORS:
        donors = donors[torch.as_tensor(problem.rng.choice(len(donors), DONORS, replace=False))]
    mean = donors.mean(0, keepdim=True) - x.mean(0, keepdim=True)
    rows = x[problem.sample(nearby)]
    _, index = nearest(rows * scale, donors * scale, p=1.0)
    return [mean, donors[index[:, 0]] - rows]


def _from_gradient(problem: Cohort, rows: int = 256) -> list[Tensor]:
    """The mean gradient of the margin, and the same per unit of cost, with both signs."""
    query = problem.query
    if not query.model.differentiable:
        return []
    part = query.select(problem.sample(rows))
    with torch.enable_grad():
        x = part.x.detach().requires_grad_(True)
        margin = query.model.margin_of(query.model.logits(x), part.target)
        (grad,) = torch.autograd.grad(margin.sum(), x)
    mean = torch.nan_to_num(grad).mean(0, keepdim=True)
    steep = mean / problem.bin_cost.scale.square()
    return [mean, -mean, steep, -steep]


def _with_truncations(delta: Tensor, problem: Cohort) -> Tensor:
    """Add to directions (D, d) what is left of them when only their dearest features move."""
    space: FeatureSpace = problem.space
    delta = feasible_part(delta, problem)
    owner = torch.as_tensor(space.owner, device=delta.device)
    share = by_feature(delta.abs() * problem.bin_cost.scale, owner, len(space))
    rank = share.argsort(dim=1, descending=True, stable=True).argsort(dim=1)[:, owner]
    cuts = [m for m in TRUNCATIONS if m < len(space)]
    return torch.cat([delta, *(torch.where(rank < m, delta, 0) for m in cuts)])
