"""The descent of the paper: distance plus alpha times what validity and plausibility miss."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.tangent.plausible import DensityDemand
from cel.objectives import density_shortfall, hinge, probability_margin, safe_norm
from cel.search import Adam, Found, gradient_search

__all__ = ["DescentSettings", "descend_once"]

MAX_NORM = 3.0  # of a row's gradient; log-densities are steep, and Adam remembers


class DescentSettings(Protocol):
    """Settings of PPCEF that its descent looks at."""

    alpha: float
    epsilon: float
    steps: int
    lr: float


def descend_once(
    settings: DescentSettings,
    problem: NearestPoint,
    demand: DensityDemand,
    start: Tensor,
    number: int,
) -> Found:
    """Descend from some points (n, d); in later rounds `number` alpha and the steps are larger."""
    query = problem.query
    # Rounding to grids and categories costs density, so later rounds ask for some to spare.
    spare = 0.5 * number * demand.spread if problem.is_discrete else 0.0
    level = demand.level + spare
    alpha, steps = settings.alpha * 10.0**number, settings.steps

    def loss(x: Tensor, rows: Tensor) -> Tensor:
        margin = probability_margin(query.model.logits(x), query.target[rows])
        short = density_shortfall(demand.log_density(x, rows), level[rows])
        return safe_norm(x - query.x[rows]) + alpha * (hinge(margin, settings.epsilon) + short)

    return gradient_search(
        loss,
        start,
        stepper=Adam(settings.lr, betas=(0.9, 0.99), max_norm=MAX_NORM),
        project=query.project,
        accept=problem.accept,
        cost=problem.cost.value,
        steps=steps * (1 + (number > 0)),
        check_every=4,
        patience=max(20, steps // 4),
        give_up=max(30, steps // 3),
        budget=query.budget,
    )
