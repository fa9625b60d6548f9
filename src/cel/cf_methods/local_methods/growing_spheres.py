"""Growing spheres: sample ever larger shells around the row, then give features back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError, NotFittedError
from cel.parameters import check_positive
from cel.protocols import Predictor
from cel.search import Found, RowStreams, revert_features
from cel.search.shells import Radial, grow_shells, shell_points
from cel.space import FeatureSpace
from cel.space.layout import by_feature

__all__ = ["GrowingSpheres"]

_SHRINKS = 20  # at most: the boundary is then nearer than numbers can tell
_REFINE, _SHRINK = 2**20, 2**21  # first draws of the balls around answers and of shrinking ones
CHUNK = 2**18  # numbers of samples that exist at a time


class GrowingSpheres(LocalMixin, BaseCounterfactualMethod):
    """Find the nearest sample of the target class, then change as few features as needed.

    1. A ball around the row shrinks until no sample in it has the target class.
    2. Shells around that ball are sampled, each `growth` times as thick as the one before, until
       one holds such samples; the nearest wins.
    3. Features are given back, the smallest change first, while the class holds.
    4. Balls around the answer, of half its distance and each half as large as the one before, are
       sampled for points nearer to the row; only features that are changed already move.

    Distances are Euclidean over numbers, in encoded units or standard deviations; a changed
    category counts 1. Only columns that may move are sampled. A search ends at the farthest corner
    of the region.

    Args:
        model: any classifier; only its predictions are used.
        samples: points per shell.
        radius: radius of the first ball.
        shrink: factor by which the ball shrinks.
        step: thickness of the first shell, in units of the ball.
        growth: how many times as thick each shell is as the one before.
        refine: balls around the answer that are sampled.
        radial: "linear" for radii that are uniform in a shell, "volume" for points that are, as
            published.
        categories: "sampled": at radius r each category that may change does so with probability
            min(0.5, r / sqrt(number of free features)); "held": numbers alone move, as published.
        scale: "range" for encoded units, "std" for standard deviations of the training rows.
        sparse: whether features are given back.
        **options: see `Options`.

    Reference: Laugel, Lesot, Marsala, Renard and Detyniecki, Comparison-based inverse
    classification for interpretability in machine learning, IPMU 2018.
    """

    name: ClassVar[str] = "growing_spheres"
    reference: ClassVar[str] = "Laugel et al., IPMU 2018, arXiv:1712.08443"
    _copies: ClassVar[int] = 60
    _test_params: ClassVar[Mapping[str, Any]] = {"samples": 200}

    def __init__(
        self,
        model: Predictor,
        *,
        samples: int = 500,
        radius: float = 0.1,
        shrink: float = 4.0,
        step: float = 0.5,
        growth: float = 1.25,
        refine: int = 3,
        radial: Radial = "linear",
        categories: Literal["sampled", "held"] = "sampled",
        scale: Literal["range", "std"] = "range",
        sparse: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.samples, self.radius, self.shrink = samples, radius, shrink
        self.step, self.growth, self.refine = step, growth, refine
        self.radial, self.categories = radial, categories
        self.scale, self.sparse = scale, sparse

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "samples", "radius", "step", "growth")
        check_positive(self, "refine", zero=True)
        if not self.shrink > 1:
            raise ConfigError(f"GrowingSpheres: shrink must be above 1, got {self.shrink!r}")
        if self.growth < 1:
            raise ConfigError(f"GrowingSpheres: growth must be at least 1, got {self.growth!r}")

    def _fit(self, train: TrainRows) -> None:
        spread = train.x.to(self._device()).double().std(0, unbiased=False)
        self.spread_ = torch.where(spread > 1e-9, spread, torch.ones_like(spread))

    def _require_fit(self) -> None:
        if self.scale == "std" and not hasattr(self, "spread_"):
            raise NotFittedError(
                "GrowingSpheres(scale='std') measures by the training rows; call fit first"
            )

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        unit = self.spread_.to(query.x) if self.scale == "std" else torch.ones_like(query.x[0])
        ground = _Ground.of(query, unit, sampled=self.categories == "sampled")
        radius = self._shrunk(query, ground)
        found = grow_shells(
            ground.center,
            ground.judge,
            like=query.x,
            rng=query.rng,
            step=self.step,
            samples=self.samples,
            limit=ground.limit,
            start=1.0,
            growth=self.growth,
            unit=radius,
            free=ground.free,
            radial=self.radial,
            budget=query.budget,
        )
        self._give_back(query, ground, found)
        for number in range(self.refine):
            if query.budget.expired:
                break
            self._nearer(query, ground, found, number)
        if self.refine:
            self._give_back(query, ground, found)
        return Answer(x=found.x)

    def _give_back(self, query: Query, ground: _Ground, found: Found) -> None:
        """Return features to the row while the class holds."""
        if not self.sparse or query.budget.expired:
            return
        owner, rows = query.region.layout.owner, found.ok.nonzero()[:, 0]
        found.x[rows] = revert_features(found.x, query.x, found.ok, query.accept, owner)[rows]
        found.cost[rows] = ground.distance(found.x[rows], rows)

    def _shrunk(self, query: Query, ground: _Ground) -> Tensor:
        """Return the radius (n,) of the largest ball tried in which no sample is accepted."""
        radius = torch.full_like(query.x[:, 0], self.radius)
        rows = ground.free.any(1).nonzero()[:, 0]
        for number in range(_SHRINKS):
            if not len(rows) or query.budget.expired:
                break
            hit = self._samples(query, ground, rows, 0 * radius, radius, _SHRINK + 3 * number)[1]
            rows = rows[hit.isfinite()]
            radius[rows] /= self.shrink
        return radius

    def _nearer(self, query: Query, ground: _Ground, found: Found, number: int) -> None:
        """Look around the answers for points that are nearer to the row, categories held."""
        rows, reach = found.ok.nonzero()[:, 0], 0.5 ** (number + 1)
        around = ground.standing_on(found.x)
        x, cost = self._samples(
            query, around, rows, 0 * found.cost, reach * found.cost, _REFINE + 3 * number
        )
        better = cost < found.cost[rows]
        found.x[rows[better]], found.cost[rows[better]] = x[better], cost[better]

    def _samples(
        self, query: Query, ground: _Ground, rows: Tensor, inner: Tensor, outer: Tensor, draw: int
    ) -> tuple[Tensor, Tensor]:
        """Return the nearest accepted sample (a, d) of each shell and its distance; inf: none."""
        x, cost = torch.empty_like(query.x[rows]), torch.empty_like(query.x[rows, 0])
        size = max(1, CHUNK // (self.samples * query.x.shape[1]))
        for at in torch.split(torch.arange(len(rows), device=rows.device), size):
            part = rows[at]
            points = shell_points(
                ground.center[part],
                RowStreams(query.rng.keys[part], draw),
                inner[part],
                outer[part],
                samples=self.samples,
                free=ground.free[part],
                radial=self.radial,
            )
            seen, price = ground.judge(points, part)
            cost[at], which = price.min(1)
            x[at] = seen.gather(1, which[:, None, None].expand(-1, 1, seen.shape[2]))[:, 0]
        return x, cost


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ground:
    """The coordinates in which shells are round: numbers in their units, one axis per category.

    Attributes:
        query: the rows.
        base: (n, d) where offsets are added; the rows themselves at first.
        unit: (d,) lengths of the encoded columns.
        numbers: (q,) columns of numbers.
        center: (n, q + g) the bases; axes of categories start at 0.
        free: (n, q + g) bool, what may move.
        limit: (n,) distance to the farthest corner of the region.
    """

    query: Query
    base: Tensor
    unit: Tensor
    numbers: Tensor
    center: Tensor
    free: Tensor
    limit: Tensor

    @classmethod
    def of(cls, query: Query, unit: Tensor, *, sampled: bool) -> _Ground:
        region, lay = query.region, query.region.layout
        numbers, g = lay.numeric.nonzero()[:, 0], len(lay.blocks)
        here = (query.x / unit)[:, numbers]
        stuck = region.fixed[:, lay.blocks[:, 0]] if g else query.x.new_ones(len(query), 0).bool()
        free = torch.cat([~region.fixed[:, numbers], ~stuck & sampled], 1)
        reach = torch.maximum(region.upper - query.x, query.x - region.lower) / unit
        reach = torch.where(region.fixed, 0.0, reach)[:, numbers].nan_to_num(posinf=1e3)
        limit = (reach.square().sum(1) + (~stuck & sampled).sum(1)).sqrt()
        center = torch.cat([here, here.new_zeros(len(here), g)], 1)
        return cls(
            query=query, base=query.x, unit=unit, numbers=numbers, center=center, free=free,
            limit=limit,
        )  # fmt: skip

    def standing_on(self, base: Tensor) -> _Ground:
        """Return the same ground around other points (n, d): what they leave as it is, is held."""
        center, free, q = self.center.clone(), self.free.clone(), len(self.numbers)
        center[:, :q] = (base / self.unit)[:, self.numbers]
        free[:, :q] &= (base != self.query.x)[:, self.numbers]
        free[:, q:] = False
        return replace(self, base=base, center=center, free=free)

    def judge(self, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return points (a, s, d) as they will be seen, and their distances; infinite: refused."""
        a, s, q = len(rows), points.shape[1], len(self.numbers)
        source = rows.repeat_interleave(s)
        offset = (points - self.center[rows, None]).flatten(0, 1)
        x = self.base[source]
        if self.free[:, q:].any():
            x, switched = self._switch(x, points.flatten(0, 1), offset, source)
            length = offset.square().sum(1)
            left = (length - switched).clamp(min=0)  # a switch has used up its share of the radius
            part = offset[:, :q].square().sum(1).clamp(min=1e-30)
            offset = offset * torch.where(switched > 0, (left / part).sqrt(), 1.0)[:, None]
        x[:, self.numbers] += offset[:, :q] * self.unit[self.numbers]
        seen, ok = self.query.accept(x, source)
        cost = self.distance(seen, source).masked_fill(~ok, torch.inf)
        return seen.reshape(a, s, seen.shape[1]), cost.reshape(a, s)

    def distance(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the distance (a,) of points (a, d) to their rows."""
        lay = self.query.region.layout
        gap = (x - self.query.x[rows]) / self.unit
        total = gap[:, self.numbers].square().sum(1)
        if lay.blocks.numel():
            moved = torch.where(lay.numeric, 0.0, gap.abs()) > 0.5
            hits = by_feature(moved, lay.owner, len(self.query.region.space))
            total = total + (hits > 0).sum(1)
        return total.sqrt()

    def _switch(
        self, x: Tensor, points: Tensor, offset: Tensor, source: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Switch categories of rows (b, d) at random; return them and how many switched (b,).

        The random numbers are a function of the point, so that a sample is the same in any batch.
        """
        lay, q = self.query.region.layout, len(self.numbers)
        free = self.free[source, q:]
        length = offset.square().sum(1)
        chance = length.sqrt() / self.free[source].sum(1).clamp(min=1).sqrt()
        rng = RowStreams.of(points, 0)
        order, u = rng.uniform(len(lay.blocks)), rng.uniform(*lay.blocks.shape)
        wants = free & (order < chance.clamp(max=0.5)[:, None])
        rank = order.masked_fill(~wants, torch.inf).argsort(1).argsort(1)
        wants &= rank < length[:, None].floor()  # each one counts 1 in the radius
        block = x[:, lay.blocks]
        reachable = self.query.region.reachable[source][:, lay.blocks] & lay.real & (block < 0.5)
        choice = u.masked_fill(~reachable, -1).argmax(2)
        hot = torch.nn.functional.one_hot(choice, lay.blocks.shape[1]).to(x.dtype)
        wants &= reachable.any(2)
        columns = torch.where(wants[..., None], hot, block).flatten(1)[:, lay.place]
        return torch.where(lay.numeric, x, columns), wants.sum(1).to(x.dtype)
