"""The search of MOC: NSGA-II over four objectives, one population per row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from cel.cf_methods.local_methods.moc.gower_parts import GowerParts, Reference
from cel.cf_methods.query import MARGIN, Query
from cel.protocols import Task
from cel.search.feature_draws import Sampler
from cel.search.fronts import DominatedVolume, crowding, nondominated
from cel.search.population import evolve_parts
from cel.search.streams import RowStreams, content_keys
from cel.search.variation import Variation, changed, tournament

__all__ = ["FrontSettings", "Fronts", "front_of", "shortfall"]

_LEAST = 1e-6  # shortfall of individuals that miss the margin by rounding only
_CHANCE = (0.01, 0.99)  # of a feature to differ at first, from the flattest curve to the steepest
_PART = 8192  # individuals of one search: small enough for the cache


@dataclass(frozen=True, kw_only=True)
class FrontSettings:
    """Sizes, probabilities and the end of the search; see `MOC`."""

    mu: int
    generations: int
    patience: int | None
    p_rec: float
    p_rec_gen: float
    p_mut: float
    p_mut_gen: float
    p_use_orig: float
    k: int
    penalty: float | None
    donors: float
    ice_points: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Fronts:
    """What was found for n rows, fittest individuals first.

    Attributes:
        x: (n, mu, d) individuals.
        values: (n, mu, 4) shortfall, distance to the row, changed features, distance to data.
        first: (n, mu) bool, whether a person is in the first front.
    """

    x: Tensor
    values: Tensor
    first: Tensor


def shortfall(query: Query, scores: Tensor, rows: Tensor) -> Tensor:
    """Return how far (m,) scores (m, K) are from the wanted outcome; 0 for those that have it.

    Classes: half the gap between the best other probability and that of the target, which for two
    classes is what the target lacks to one half. Values: the distance to the wanted interval.
    """
    target = query.target[rows]
    margin = query.model.margin_of(scores, target)
    if query.model.task is Task.REGRESSION:
        gap = -margin
    else:
        gap = -query.model.margin_of(torch.softmax(scores, 1), target) / 2
    return torch.where(margin >= MARGIN, torch.zeros_like(gap), gap.clamp(min=_LEAST))


@torch.no_grad()
def front_of(query: Query, known: Reference, settings: FrontSettings) -> Fronts:
    """Search the fronts of all rows, in parts that fit into the cache."""

    def search(part: Tensor) -> tuple[_FrontSearch, RowStreams]:
        some = query.select(part)
        return _FrontSearch(some, known, settings), some.rng

    x, values = evolve_parts(
        query.rows(), _PART // settings.mu, search, generations=settings.generations,
        budget=query.budget,
    )  # fmt: skip
    return Fronts(x=x, values=values, first=nondominated(values, enough=1) == 0)


@dataclass(frozen=True, eq=False)
class _FrontSearch:
    """The search of some rows. People are kept fittest first: by front, then the loneliest."""

    query: Query
    known: Reference
    settings: FrontSettings
    draws: ClassVar[int] = 12
    tolerance: ClassVar[float] = 0.0

    @cached_property
    def vary(self) -> Variation:
        return Variation(Sampler.of(self.query.region), self.known.sd)

    @cached_property
    def gower(self) -> GowerParts:
        return GowerParts(self.known, self.query.region)

    @cached_property
    def volume(self) -> DominatedVolume:
        """What is dominated, below the row itself and half of all distances."""
        query, rows = self.query, self.query.rows()
        start = shortfall(query, query.model.scores(query.x), rows)
        whole = torch.ones_like(start)
        worst = [2 * start.clamp(min=_LEAST), whole / 2, whole * len(query.region.space)]
        return DominatedVolume(torch.stack([*worst, whole / 2], 1))

    def first(self, stream: RowStreams) -> tuple[Tensor, Tensor]:
        """Return individuals, whose features differ the likelier the more they matter; donors."""
        query, mu, rows = self.query, self.settings.mu, self.query.rows()
        sampler = self.vary.sampler
        chance = self.vary.columns(self.chance()[:, None, :])
        differs = self.vary.columns(stream.uniform(mu, len(query.region.space))) < chance
        drawn = sampler.at(stream.uniform(mu, len(query.region.space)), rows)
        x = torch.where(differs, drawn, query.x[:, None, :])
        count = int(self.settings.donors * mu)
        if count:
            x[:, mu - count :] = self.donors(stream, count)
        x = self.vary.inside(x, rows, surely=True)
        values = self.values(x, rows)
        if self.settings.patience is not None:
            self.volume.add(values, rows)
        return self.fittest(x, values)

    def chance(self) -> Tensor:
        """Return the probability (n, p) of each feature to differ, by the spread of its curve.

        The curve of a feature is the outcome along its values, all others as they are.
        """
        query, points = self.query, self.settings.ice_points
        p, sampler = len(query.region.space), self.vary.sampler
        at = (torch.arange(points, device=query.x.device) + 0.5) / points
        drawn = sampler.at(at[None, :, None].expand(len(query), -1, p), query.rows())
        feature = torch.arange(p, device=query.x.device)
        own = query.region.layout.owner == feature[:, None]  # (p, d)
        curves = torch.where(own[None, :, None, :], drawn[:, None], query.x[:, None, None, :])
        scores = query.model.scores(curves.flatten(0, 2))
        if query.model.task is not Task.REGRESSION:
            wanted = query.target.repeat_interleave(p * points)
            scores = torch.softmax(scores, 1).gather(1, wanted[:, None])
        spread = scores.reshape(len(query), p, points, -1).std(2).sum(-1)
        moves = torch.zeros_like(spread, dtype=torch.bool)
        moves[:, query.region.layout.owner] |= ~query.region.fixed
        low = spread.masked_fill(~moves, torch.inf).amin(1, keepdim=True)
        high = spread.masked_fill(~moves, -torch.inf).amax(1, keepdim=True)
        share = ((spread - low) / (high - low).clamp(min=1e-8)).clamp(0, 1)
        return _CHANCE[0] + (_CHANCE[1] - _CHANCE[0]) * share.nan_to_num(nan=0.0)

    def donors(self, stream: RowStreams, count: int) -> Tensor:
        """Return known rows (n, count, d), nearest first, those with the wanted outcome first."""
        query, known = self.query, self.known
        apart = torch.cdist(query.x * known.unit, known.x * known.unit, p=1)
        if query.model.task is not Task.REGRESSION:
            apart = apart + 2.0 * (known.y[None, :] != query.target[:, None])
        place = apart.topk(min(count, len(known.x)), largest=False, sorted=True).indices
        again = torch.arange(count, device=place.device) % place.shape[1]
        return known.x[place[:, again]]

    def breed(
        self, population: Tensor, worth: Tensor, rows: Tensor, stream: RowStreams
    ) -> tuple[Tensor, Tensor]:
        """Return the fittest of population and children."""
        s, vary = self.settings, self.vary
        pairs = (s.mu + 1) // 2
        chosen = tournament(stream, s.mu, 2 * pairs)
        parents = population.gather(1, chosen[..., None].expand(-1, -1, population.shape[2]))
        both = vary.cross(
            parents[:, :pairs], parents[:, pairs:], stream, pair=s.p_rec, gene=s.p_rec_gen
        )
        x = torch.cat(both, 1)[:, : s.mu]
        x = vary.mutate(x, rows, stream, person=s.p_mut, gene=s.p_mut_gen)
        x = vary.inside(vary.reset(x, rows, stream, s.p_use_orig), rows)
        values = self.values(x, rows)
        if self.settings.patience is not None:
            self.volume.add(values, rows)
        return self.fittest(torch.cat([population, x], 1), torch.cat([worth, values], 1))

    def values(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the four objectives (a, m, 4) of individuals (a, m, d)."""
        query, m = self.query, x.shape[1]
        flat, source = x.flatten(0, 1), rows.repeat_interleave(m)
        missing = shortfall(query, query.model.scores(flat), source)
        origin = query.x[rows]
        moved = changed(x, origin, query.region)
        step = ((x - origin[:, None, :]).abs() * self.known.unit).sum(-1)
        near = self.gower.near(flat, source, self.settings.k)
        parts = [missing.reshape(-1, m), step, moved.sum(-1).to(x.dtype), near.reshape(-1, m)]
        return torch.stack(parts, -1)

    def fittest(self, x: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mu fittest of individuals (a, m, d) and their values, fittest first."""
        mu, limit = self.settings.mu, self.settings.penalty
        copy = _copies(x)
        seen = values.masked_fill(copy[..., None], torch.inf)
        front = nondominated(seen, enough=mu if limit is None else None)
        if limit is not None:
            front = torch.where(seen[..., 0] > limit, front + x.shape[1], front)
        lonely = crowding(values, front, self.gower.moved(x, x))
        best = (front == 0) & (values[..., 0] == 0)  # the nearest answer is never crowded out
        step = values[..., 1].masked_fill(~best, torch.inf)
        lonely = lonely.masked_fill(best & (step == step.amin(1, keepdim=True)), torch.inf)
        order = (-lonely).argsort(dim=1, stable=True)
        order = order.gather(1, front.gather(1, order).argsort(dim=1, stable=True))[:, :mu]
        return (
            x.gather(1, order[..., None].expand(-1, -1, x.shape[2])),
            values.gather(1, order[..., None].expand(-1, -1, values.shape[2])),
        )

    def goal(self, worth: Tensor, rows: Tensor) -> Tensor:
        """Return what is not dominated yet."""
        if self.settings.patience is None:  # every generation is used, whatever it brings
            return torch.zeros_like(worth[:, 0, 0])
        return 1 - self.volume.share[rows]

    def open(self, worth: Tensor, stale: Tensor, rows: Tensor) -> Tensor:
        """Tell for which rows one more generation may help."""
        moves = self.vary.sampler.count[rows] > 0
        if self.settings.patience is None:
            return moves
        return moves & (stale < self.settings.patience)


def _copies(x: Tensor) -> Tensor:
    """Tell (a, m) which individuals (a, m, d) equal an earlier one."""
    keys = content_keys(x.flatten(0, 1)).reshape(x.shape[:2])
    same, order = keys.sort(dim=1, stable=True)
    again = torch.zeros_like(same, dtype=torch.bool)
    again[:, 1:] = same[:, 1:] == same[:, :-1]
    return torch.zeros_like(again).scatter(1, order, again)
