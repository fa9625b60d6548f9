"""DiCE by gradients: one set of k counterfactuals per row, kept apart by a determinant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.search import Adam, gradient_search, soft_threshold

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


def diversity_of(sets: Tensor, weight: Tensor, kind: Diversity) -> Tensor:
    """Return the diversity (n,) of sets (n, k, d) under weighted L1 distances, float64.

    With `K_ij = 1 / (1 + dist_ij) + 1e-4 [i = j]`: "dpp" is det K (Kulesza and Taskar, 2012),
    "logdet" its logarithm, which does not underflow for large k, and "avg_dist" is one minus the
    mean of K over pairs.
    """
    x = (sets * weight).to(torch.float64)
    k = x.shape[1]
    if k == 1:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    near = 1 / (1 + (x[:, :, None, :] - x[:, None, :, :]).abs().sum(-1))
    if kind == "avg_dist":
        upper = torch.triu_indices(k, k, 1, device=x.device)
        return 1 - near[:, upper[0], upper[1]].mean(-1)
    kernel = near + _JITTER * torch.eye(k, dtype=x.dtype, device=x.device)
    return torch.linalg.det(kernel) if kind == "dpp" else torch.linalg.slogdet(kernel)[1]


def gradient_sets(query: Query, weight: Tensor, settings: GradientSettings) -> Tensor:
    """Return (n, k, d) sets, NaN for members without the wanted outcome.

    Minimises, over the set C of a row x,
    `mean hinge(c) + a / (k d) sum dist(c, x) - b diversity(C)` with `hinge = max(0, 1 - margin)`.
    The set with most valid members, then with the lowest objective, of all checked steps is kept.
    """
    n, d = query.x.shape
    k = settings.k
    share = settings.proximity_weight / (k * d)

    def diverse(c: Tensor) -> Tensor:
        if k == 1 or settings.diversity_weight == 0:
            return torch.zeros_like(c[:, 0, 0])
        value = diversity_of(c, weight, settings.diversity).to(c.dtype)
        return settings.diversity_weight * value

    def smooth(flat: Tensor, rows: Tensor) -> Tensor:
        c = flat.reshape(len(rows), k, d)
        target = query.target[rows].repeat_interleave(k)
        margin = query.model.margin_of(query.model.logits(c.reshape(-1, d)), target)
        return torch.relu(1 - margin).reshape(-1, k).mean(1) - diverse(c)

    def prox(flat: Tensor, step: Tensor, rows: Tensor) -> Tensor:
        home = query.x[rows].repeat(1, k)
        return home + soft_threshold(flat - home, share * weight.repeat(k) * step)

    def project(flat: Tensor, rows: Tensor) -> Tensor:
        return query.project(flat.reshape(-1, d), rows.repeat_interleave(k)).reshape(-1, k * d)

    def accept(flat: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        seen, ok = query.accept(flat.reshape(-1, d), rows.repeat_interleave(k))
        seen = torch.where(ok[:, None], seen, torch.full_like(seen, torch.nan))
        return seen.reshape(-1, k * d), ok.reshape(-1, k).any(1)

    def cost(flat: Tensor, rows: Tensor) -> Tensor:
        c, home = flat.reshape(-1, k, d), query.x[rows][:, None, :]
        absent = c.isnan()
        c = torch.where(absent, home, c)
        near = share * ((c - home).abs() * weight).sum((1, 2))
        missing = absent.any(-1).sum(1)
        return smooth(c.flatten(1), rows) + near + _INVALID * missing

    found = gradient_search(
        smooth,
        _start(query, k).flatten(1),
        stepper=Adam(settings.lr, prox=prox),
        project=project,
        accept=accept,
        cost=cost,
        steps=settings.steps,
        check_every=_CHECK,
        patience=settings.patience,
        budget=query.budget,
    )
    return found.x.reshape(n, k, d)


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
