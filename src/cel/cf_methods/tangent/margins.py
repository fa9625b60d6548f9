"""Margins of classes: what searches climb, and what acceptance asks for."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.query import MARGIN, Query
from cel.protocols import Task
from cel.search.gradient import RowFunction, SnapTest
from cel.solvers.least_change import RowOutputs

__all__ = [
    "AIM",
    "accept_beyond",
    "accept_within",
    "class_margin",
    "class_margins",
    "output_demands",
]

AIM = 1.5 * MARGIN  # searches head a little beyond the margin that is asked for


def class_margin(query: Query) -> RowFunction:
    """Return the score of the wanted class minus the best other one, differentiable."""
    return lambda x, rows: query.model.margin_of(query.model.logits(x), query.target[rows])


def class_margins(query: Query) -> RowOutputs:
    """Return the score of the wanted class minus every other one, (a, K - 1), differentiable."""
    others = torch.arange(query.model.n_outputs - 1, device=query.x.device)

    def margins(x: Tensor, rows: Tensor) -> Tensor:
        scores, wanted = query.model.logits(x), query.target[rows][:, None]
        return scores.gather(1, wanted) - scores.gather(1, others + (others >= wanted))

    return margins


def accept_beyond(query: Query, margin: float = 0.0) -> SnapTest:
    """Return a test that asks for the wanted class by at least `margin`, in scores."""
    least = max(margin, MARGIN)

    def judge(seen: Tensor, rows: Tensor) -> Tensor:
        return query.model.margin(seen, query.target[rows]) >= least

    return SnapTest(query.snap, judge)


def accept_within(query: Query, eps: float) -> SnapTest:
    """Return a test that asks for every output within `eps` of the wanted value."""

    def judge(seen: Tensor, rows: Tensor) -> Tensor:
        miss = (query.model.scores(seen) - query.target[rows]).abs().amax(-1)
        return miss <= eps * (1 - 1e-4)

    return SnapTest(query.snap, judge)


def output_demands(query: Query) -> tuple[Tensor, Tensor]:
    """Return what outputs must do: `mix . outputs + shift >= 0`, (n, m, K) and (n, m), float64."""
    target = query.target.detach().cpu()
    n, outputs = len(query), query.model.n_outputs
    eye = torch.eye(outputs, dtype=torch.float64)
    if query.model.task is Task.REGRESSION:
        wanted, tolerance = target.double().reshape(n, -1), query.model.tolerance
        mix = torch.cat([eye, -eye]).expand(n, -1, -1)
        return mix, torch.cat([tolerance - wanted, tolerance + wanted], 1)
    others = torch.arange(outputs - 1)
    other = others + (others >= target[:, None])
    mix = eye[target][:, None] - eye[other]
    return mix, torch.zeros(n, outputs - 1, dtype=torch.float64)
