"""RBR (Nguyen, Bui and Nguyen, 2022): robust Bayesian recourse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.rbr.worst_kernels import kernel_table
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.parameters import check_positive
from cel.protocols import Need, Predictor
from cel.search import Adam, bisect_to_boundary, gradient_search
from cel.search.gradient import RowFunction
from cel.search.memo import LastOf
from cel.search.pool import Pool
from cel.space import FeatureSpace
from cel.space.simplex import project_simplex

__all__ = ["RBR"]

ROUNDING = 1e-5  # of a radius: what snapping may add to it
UNMOVED = 1e-6  # of an encoded number: less is no change, if the row is an answer without it


class RBR(LocalMixin, BaseCounterfactualMethod):
    """Minimise the odds of the unwanted class around the boundary, at worst.

    The nearest point of the boundary towards training rows of the class is the start x_b. Points
    around it are labelled by the model; each class becomes a sum of Gaussian kernels, and an
    adversary may move and widen those within `eps_op` and `eps_pe`. The answer minimises
    `log sum_unwanted exp(worst kernel) - log sum_wanted exp(worst kernel)` over the numbers within
    an L1 distance of `|x_b - x|_1 + delta_plus` of the row. With both eps 0 that is the log-odds
    of two kernel densities. Categories stay those of x_b.

    Args:
        model: any classifier; only its predictions are used.
        sigma: bandwidth of the kernels, in encoded units.
        eps_op: how far the kernels of the unwanted class may be moved.
        eps_pe: how far those of the wanted class may be.
        delta_plus: how much farther than x_b the answer may be, in L1 over numbers.
        samples: points around x_b.
        radius: of the ball they are drawn from, in units of the diameter of the training rows.
        donors: training rows towards which the boundary is looked for.
        steps: of the descent.
        lr: its step size.
        options: see `Options`.

    References:
        Nguyen, Bui and Nguyen: Robust Bayesian recourse. UAI 2022.
    """

    name = "rbr"
    version: ClassVar[int] = 3
    needs = frozenset({Need.TRAIN_ROWS})
    reference = "Nguyen, Bui and Nguyen, UAI 2022, arXiv:2206.10833"
    _copies: ClassVar[int] = 1200
    _test_params: ClassVar[Mapping[str, Any]] = {"steps": 30, "samples": 60, "donors": 8}

    def __init__(
        self,
        model: Predictor,
        *,
        sigma: float = 1.0,
        eps_op: float = 0.5,
        eps_pe: float = 0.5,
        delta_plus: float = 0.2,
        samples: int = 200,
        radius: float = 0.2,
        donors: int = 50,
        steps: int = 500,
        lr: float = 0.02,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.sigma, self.eps_op, self.eps_pe, self.delta_plus = sigma, eps_op, eps_pe, delta_plus
        self.samples, self.radius, self.donors = samples, radius, donors
        self.steps, self.lr = steps, lr

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "sigma", "samples", "radius", "donors", "steps", "lr")
        check_positive(self, "eps_op", "eps_pe", "delta_plus", zero=True)

    def _fit(self, train: TrainRows) -> None:
        x, y = train.x.to(self._device()), train.y.to(self._device())
        self.pool_ = Pool.of(x, y, self.space_, "l1_mad")
        numbers = torch.as_tensor(self.space_.numeric_columns, device=x.device)
        self.diameter_ = float((x.amax(0) - x.amin(0))[numbers].norm()) or 1.0

    def _explain(self, query: Query) -> Answer:
        start, ok = self._boundary(query)
        rows = ok.nonzero()[:, 0]
        x = torch.full_like(query.x, torch.nan)
        told: dict[str, list[Any]] = {"robust_margin": [None] * len(query)}
        if not len(rows):
            return Answer(x=x, row_logs=told)
        part = query.select(rows)
        around, wanted = self._labelled(part, start[rows])
        odds = self._odds(part, around, wanted)
        x[rows] = self._descend(part, start[rows], odds)
        both = wanted.any(1) & ~wanted.all(1)
        x[rows] = _unmoved(torch.where(both[:, None], x[rows], start[rows]), part)
        with torch.no_grad():
            value = odds(x[rows], part.rows())
        for row, number, known in zip(
            rows.tolist(), (-value).tolist(), both.tolist(), strict=True
        ):
            told["robust_margin"][row] = number if known else None
        logs = {"one_class_around": int((~both).sum())} if not bool(both.all()) else None
        return Answer(x=x, logs=logs, row_logs=told)

    @torch.no_grad()
    def _boundary(self, query: Query) -> tuple[Tensor, Tensor]:
        """Return the nearest point (n, d) of the class on segments to donors, and who has one."""
        near = self.pool_.nearest(
            query.x, query.target, self.donors, region=query.region, accept=query.accept,
            budget=query.budget,
        )  # fmt: skip
        n, k, d = near.x.shape
        many = query.select(query.rows().repeat_interleave(k))
        ok = near.ok.flatten()
        x = bisect_to_boundary(
            many.x, near.x.reshape(-1, d), ok, many.accept, slide=query.region.layout.numeric,
            steps=15,
        )  # fmt: skip
        far = self.pool_.between(many.x, torch.where(ok[:, None], x, many.x))
        best = far.masked_fill(~ok, torch.inf).reshape(n, k).argmin(1)
        points: Tensor = x.reshape(n, k, d)[query.rows(), best]
        return points, near.ok[:, 0]

    @torch.no_grad()
    def _labelled(self, query: Query, centre: Tensor) -> tuple[Tensor, Tensor]:
        """Return points (n, m, d) of a ball around centres, inside the region, and whose class."""
        n, d = centre.shape
        free = (query.region.layout.numeric & ~query.region.fixed).to(centre)
        move = query.rng.normal(self.samples, d).to(centre) * free[:, None]
        size = free.sum(1).clamp(min=1)[:, None]
        share = query.rng.uniform(self.samples).to(centre) ** (1 / size)
        length = move.norm(dim=-1).clamp(min=1e-12)
        ball = self.radius * self.diameter_ * share / length
        points = centre[:, None] + ball[..., None] * move
        low, high = query.region.lower[:, None], query.region.upper[:, None]
        points = torch.where(free[:, None] > 0, points.clamp(low, high), centre[:, None])
        target = query.target.repeat_interleave(self.samples)
        margin = query.model.margin(points.flatten(0, 1), target)
        return points, (margin > 0).reshape(n, self.samples)

    def _odds(self, query: Query, around: Tensor, wanted: Tensor) -> RowFunction:
        """Return the log-odds of the unwanted class, each sample at its worst."""
        numeric = query.region.layout.numeric
        free = (numeric & ~query.region.fixed).sum(1).clamp(min=1)
        most = 4 * self.diameter_ * math.sqrt(2)
        columns = numeric.nonzero()[:, 0]
        numbers = around[..., columns]
        samples = LastOf(lambda rows: numbers[rows])

        def odds(x: Tensor, rows: Tensor) -> Tensor:
            gap = x.index_select(1, columns)[:, None] - samples(rows)
            c = (gap.square().sum(-1) + 1e-12).sqrt()
            value = torch.zeros_like(x[:, 0])
            for q in sorted(set(free[rows].tolist())):
                here = (free[rows] == q).nonzero()[:, 0]
                sides = [
                    kernel_table("op", self.sigma, q, self.eps_op, most)(c[here]),
                    kernel_table("pe", self.sigma, q, self.eps_pe, most)(c[here]),
                ]
                good = wanted[rows[here]]
                bad = sides[0].masked_fill(good, -1e9).logsumexp(1)
                fine = sides[1].masked_fill(~good, -1e9).logsumexp(1)
                value = value.index_add(0, here, bad - fine)
            return value

        return odds

    def _descend(self, query: Query, start: Tensor, odds: RowFunction) -> Tensor:
        """Return the accepted point of each ball with the lowest odds; x_b is one of them."""
        numeric = query.region.layout.numeric
        room = ((start - query.x).abs() * numeric).sum(1) + self.delta_plus

        def project(x: Tensor, rows: Tensor) -> Tensor:
            move = (x - query.x[rows]) * numeric
            size = move.abs()
            outside = size.sum(1) > room[rows]
            share = project_simplex(
                size / room[rows, None].clamp(min=1e-12), torch.ones_like(size, dtype=torch.bool)
            )
            inside = share * room[rows, None] * move.sign()
            move = torch.where(outside[:, None], inside, move)
            low, high = query.region.lower[rows], query.region.upper[rows]
            moved = (query.x[rows] + move).clamp(low, high)
            return torch.where(numeric, moved, start[rows])

        def accept(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            seen, ok = query.accept(x, rows)
            far = ((seen - query.x[rows]).abs() * numeric).sum(1)
            return seen, ok & (far <= room[rows] + ROUNDING * (1 + room[rows]))

        found = gradient_search(
            odds, start, stepper=Adam(self.lr), project=project, accept=accept, cost=odds,
            steps=self.steps, check_every=5, patience=50, budget=query.budget,
        )  # fmt: skip
        return _best_of(found.x, start, query, odds)


@torch.no_grad()
def _best_of(x: Tensor, start: Tensor, query: Query, odds: RowFunction) -> Tensor:
    """Return x (n, d) where it is an answer with lower odds than the start, else the start."""
    rows = query.rows()
    known = ~x.isnan().any(1)
    value = odds(torch.where(known[:, None], x, start), rows)
    return torch.where((known & (value < odds(start, rows)))[:, None], x, start)


@torch.no_grad()
def _unmoved(x: Tensor, query: Query) -> Tensor:
    """Put numbers of x (n, d) back that differ from the row by rounding alone."""
    back = torch.where((x - query.x).abs() < UNMOVED, query.x, x)
    ok = query.accept(back, query.rows())[1]
    return torch.where(ok[:, None], back, x)
