"""The descent of the paper: distance plus alpha times what validity and plausibility miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.tangent.plausible import DensityDemand
from cel.objectives import density_shortfall, hinge, probability_margin, safe_norm
from cel.search import Adam, Found, Race, gradient_search
from cel.search.gradient import Hopeful

__all__ = ["DescentSettings", "Pace", "descend_once"]

HOPE = (1.5, 1.2)  # spreads, of the first and of later rounds
KEEP = 2  # starts of a row that go on
MAX_NORM = 3.0  # of a row's gradient; log-densities are steep, and Adam remembers
FIRST_LOOK = 8  # steps before a row can be given up as hopeless
ALMOST = 0.03  # spreads below the level that a rounded point may have to spare


class DescentSettings(Protocol):
    """Settings of PPCEF that its descent looks at."""

    alpha: float
    epsilon: float
    lr: float


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When descents end; see `gradient_search`.

    With a `hope` (h, s) rows that were never accepted end as soon as their log-density misses the
    level by more than `h (1 - step / s)` spreads and a little: what is missing falls about so
    fast where a row arrives.
    """

    steps: int
    patience: int
    give_up: int
    late: int | None = None
    hope: tuple[float, int] | None = None
    race: Race | None = None

    @classmethod
    def alone(cls, steps: int, number: int) -> Pace:
        """Return the pace of a descent whose end is the answer."""
        return cls(
            steps=steps * (1 + (number > 0)),
            patience=max(20, steps // 4),
            give_up=max(30, steps // 3),
        )

    @classmethod
    def ahead(cls, steps: int, number: int, starts: int) -> Pace:
        """Return the pace of a descent that others go on from.

        Nearly all rows that arrive do so in the first half of the steps; of several starts two
        that are ahead after an eighth win, and where they arrive matters little.
        """
        late, give_up = max(1, 2 * steps // 5), max(10, steps // 5)
        if not number:
            hope = HOPE[0], late
            return cls(steps=steps, patience=give_up, give_up=give_up, late=late, hope=hope)
        race = Race(starts=starts, keep=KEEP, after=max(1, steps // 8))
        return cls(
            steps=max(1, steps // 2),
            patience=4,
            give_up=give_up,
            hope=(HOPE[1], max(1, steps // 3)),
            race=race,
        )


def descend_once(
    settings: DescentSettings,
    problem: NearestPoint,
    demand: DensityDemand,
    start: Tensor,
    number: int,
    pace: Pace,
) -> Found:
    """Descend from some points (n, d); in later rounds `number` alpha is larger."""
    query = problem.query
    # Rounding to grids and categories costs density, so later rounds ask for some to spare.
    spare = 0.5 * number * demand.spread if problem.is_discrete else 0.0
    level = demand.level + spare
    alpha = settings.alpha * 10.0**number
    lack = _Lack.nothing_known(start, demand.spread, spare)

    def loss(x: Tensor, rows: Tensor) -> Tensor:
        margin = probability_margin(query.model.logits(x), query.target[rows])
        short = density_shortfall(demand.log_density(x, rows), level[rows])
        lack.note(short.detach(), rows)
        return safe_norm(x - query.x[rows]) + alpha * (hinge(margin, settings.epsilon) + short)

    return gradient_search(
        loss,
        start,
        stepper=Adam(settings.lr, betas=(0.9, 0.99), max_norm=MAX_NORM),
        project=query.project,
        accept=problem.accept,
        cost=problem.cost.value,
        steps=pace.steps,
        check_every=4,
        patience=pace.patience,
        give_up=pace.give_up,
        late=pace.late,
        hopeful=None if pace.hope is None else lack.hopeful(*pace.hope),
        race=pace.race,
        budget=query.budget,
    )


@dataclass(frozen=True, eq=False)
class _Lack:
    """The least that the log-density of n points lacked to the level so far, in spreads."""

    least: Tensor  # (n,)
    spread: float
    spare: float

    @classmethod
    def nothing_known(cls, start: Tensor, spread: float, spare: float) -> _Lack:
        return cls(torch.full_like(start[:, 0], torch.inf), spread, spare)

    def note(self, short: Tensor, rows: Tensor) -> None:
        now = (short - self.spare) / self.spread
        self.least[rows] = torch.minimum(now, self.least[rows])

    def hopeful(self, most: float, steps: int) -> Hopeful:
        """Return which rows may still arrive; after so many steps those near the level alone."""

        def hopeful(step: int, rows: Tensor) -> Tensor:
            if step < FIRST_LOOK:
                return torch.ones_like(rows, dtype=torch.bool)
            return self.least[rows] <= max(most * (1 - step / steps), ALMOST)

        return hopeful
