"""PROBE (Pawelczyk et al., 2023): answers that survive being carried out imprecisely."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.tangent.ladder import climb, known_rows, restarts, tangents
from cel.cf_methods.tangent.robust import keeping_relations, noisy_margins, robust_problem
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support
from cel.space import FeatureSpace
from cel.space.distances import mad_scale

__all__ = ["PROBE", "invalidation_bound"]

ROUNDS = 8  # of asking for more where draws say no
GROWTH = 1.2  # of the standard deviations asked for
FIRST = 200  # draws that settle clear rows
CONFIDENCE = 1.645  # one-sided 95 %


class PROBE(LocalMixin, BaseCounterfactualMethod):
    """Minimise the distance subject to a bounded rate of invalidation under Gaussian noise.

    `P(f(x' + e) is not the wanted class) <= r` for noise e on the free numbers. To first order
    that asks for a margin of `sigma |slope| z`, z the (1 - r) quantile of the normal law; linear
    models have it exactly. The first-order demand guides the search; acceptance is a count: the
    upper end of a one-sided 95 % interval over `draws` noisy copies of the answer must not exceed
    `r + eps`. The search therefore aims at the rate whose interval ends there; rows that cannot be
    so clear are tried at r itself, and are `infeasible` only if that is proved impossible, too.
    Rows whose draws say no are asked for more and searched anew, up to eight times.

    Args:
        model: any classifier with gradients.
        rate: largest rate of invalidation r, below 0.5.
        variance: of the noise, in encoded units; categories and frozen columns have none.
        eps: what the count may exceed the rate by.
        draws: noisy copies of each answer.
        distance: "l1" or "l1_mad".
        steps: tangents per row.
        restarts: other starting points for unanswered rows.
        options: see `Options`.

    References:
        Pawelczyk, Datta, van den Heuvel, Kasneci and Lakkaraju: Probabilistically robust recourse.
        ICLR 2023.
    """

    name = "probe"
    infeasible_means = "no allowed row keeps the class under so much noise"
    version = 3
    needs = frozenset({Need.GRADIENTS, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Pawelczyk et al., ICLR 2023, arXiv:2203.06768"
    _copies: ClassVar[int] = 120
    _test_params: ClassVar[dict[str, Any]] = {"steps": 20, "draws": 400}

    def __init__(
        self,
        model: Predictor,
        *,
        rate: float = 0.35,
        variance: float = 0.01,
        eps: float = 0.005,
        draws: int = 2000,
        distance: Literal["l1", "l1_mad"] = "l1",
        steps: int = 50,
        restarts: int = 8,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.rate, self.variance, self.eps, self.draws = rate, variance, eps, draws
        self.distance, self.steps, self.restarts = distance, steps, restarts

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "draws", "steps")
        check_positive(self, "variance", "eps", "restarts", zero=True)
        if not 0 < self.rate <= 0.5:
            raise ConfigError(f"PROBE: rate must lie in (0, 0.5], got {self.rate!r}")

    def _fit(self, train: TrainRows) -> None:
        scale = mad_scale(train.x.cpu().numpy(), self.space_)
        self.scale_ = torch.as_tensor(scale).to(train.x)

    def _explain(self, query: Query) -> Answer:
        depth = query.x.new_full((len(query),), _depth(self._aim()))
        x = torch.full_like(query.x, torch.nan)
        infeasible = torch.zeros_like(depth, dtype=torch.bool)
        rate = torch.full_like(depth, torch.nan)
        todo = query.rows()
        for number in range(ROUNDS):
            part = query.select(todo)
            answer = self._solve(part, depth[todo])
            ok, bound = self._survives(part, answer.x)
            x[todo[ok]], rate[todo[ok]] = answer.x[ok], bound[ok]
            if not number:
                rows = todo[answer.x.isnan().any(1)]
                x[rows], rate[rows], infeasible[rows] = self._barely(query.select(rows))
            todo = todo[~ok & ~answer.x.isnan().any(1)]
            if not len(todo) or query.budget.expired:
                break
            depth[todo] = torch.where(depth[todo] > 0.05, depth[todo] * GROWTH, 0.1)
        told = [None if math.isnan(r) else r for r in rate.tolist()]
        return Answer(x=x, infeasible=infeasible, row_logs={"invalidation_rate": told})

    def _barely(self, query: Query) -> tuple[Tensor, Tensor, Tensor]:
        """Return answers (n, d) at the rate itself, their bounds, and rows proved to have none."""
        x, bound = torch.full_like(query.x, torch.nan), torch.full_like(query.x[:, 0], torch.nan)
        none = torch.zeros_like(bound, dtype=torch.bool)
        if not len(query):
            return x, bound, none
        answer = self._solve(query, torch.full_like(bound, _depth(self.rate)))
        ok, bound = self._survives(query, answer.x)
        x[ok] = answer.x[ok]
        bound = torch.where(ok, bound, torch.nan)
        return x, bound, none if answer.infeasible is None else answer.infeasible

    def _aim(self) -> float:
        """Return the rate whose count over `draws` copies is expected to be accepted."""
        most, low, high = self.rate + self.eps, 0.0, self.rate
        draws = torch.tensor(float(self.draws))
        for _ in range(40):
            middle = (low + high) / 2
            fits = float(invalidation_bound(middle * draws, self.draws)) <= most
            low, high = (middle, high) if fits else (low, middle)
        return low or self.rate

    def _solve(self, query: Query, depth: Tensor) -> Answer:
        """Return the nearest points that are clear of the boundary by `depth` (n,)."""
        margins = noisy_margins(query, math.sqrt(self.variance), depth)
        unit = self.scale_.to(query.x) if self.distance == "l1_mad" else 1.0
        problem = robust_problem(query, margins, unit)
        others = restarts(known_rows(self.train_, self.restarts), self.steps)
        return climb(problem, [tangents(self.steps), keeping_relations(self.steps), others])

    def _survives(self, query: Query, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return which answers (n, d) draws accept, and the upper ends of their rates.

        Rows that a few draws show to lie far on either side are not asked for more of them.
        """
        most, open_ = self.rate + self.eps, ~x.isnan().any(1)
        bound = torch.full_like(x[:, 0], torch.nan)
        for draws in (FIRST, self.draws) if self.draws > FIRST else (self.draws,):
            rows = open_.nonzero()[:, 0]
            if not len(rows):
                break
            lost = self._lost(query.select(rows), x[rows], draws)
            bound[rows] = invalidation_bound(lost, draws)
            hopeless = 1 - invalidation_bound(draws - lost, draws) > most
            open_[rows] = (bound[rows] > most) & ~hopeless
        return bound <= most, bound

    @torch.no_grad()
    def _lost(self, query: Query, x: Tensor, draws: int) -> Tensor:
        """Return (n,) how many noisy copies of x (n, d) have another class."""
        free = (query.region.layout.numeric & ~query.region.fixed).to(x)
        size = max(1, 2**22 // max(x.shape[1] * draws, 1))
        lost = []
        for part in torch.split(query.rows(), size):
            noise = query.rng.select(part).normal(draws, x.shape[1]).to(x)
            points = x[part][:, None] + math.sqrt(self.variance) * noise * free[part][:, None]
            wanted = query.target[part].repeat_interleave(draws)
            margin = query.model.margin(points.flatten(0, 1), wanted)
            lost.append((margin <= 0).reshape(len(part), draws).sum(1))
        return torch.cat(lost).to(x)


def invalidation_bound(lost: Tensor, draws: int) -> Tensor:
    """Return the upper end of the one-sided 95 % interval of a rate (Wilson, 1927).

    >>> bool(invalidation_bound(torch.tensor([10.0]), 100) > 0.1)
    True
    """
    z, p = CONFIDENCE, lost / draws
    middle = p + z**2 / (2 * draws)
    spread = z * (p * (1 - p) / draws + z**2 / (4 * draws**2)).sqrt()
    return (middle + spread) / (1 + z**2 / draws)


def _depth(rate: float) -> float:
    """Return the standard deviations beyond which a normal law has the share `rate`."""
    share = torch.tensor(1 - 2 * rate, dtype=torch.float64)
    return math.sqrt(2) * float(torch.erfinv(share))
