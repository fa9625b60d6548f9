"""Bayesian optimisation for all rows side by side, over one shared process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cel.cf_methods.local_methods.cearm.gaussian_process import Posterior, Process
from cel.cf_methods.local_methods.cearm.goal import (
    BestPoints,
    OutputGoal,
    expected_gain,
    potential,
)
from cel.cf_methods.query import Query
from cel.search import LastOf, RowStreams, row_gradient

__all__ = ["SearchSettings", "optimise"]

_CHUNK = 256  # rows whose local processes are held in memory together
_DRAWS = 16  # draws of a stream used by one round
_SCALES = (0.02, 0.05, 0.15, 0.4)
_SMALLEST = 1e-18  # squared distance that has a root with a slope
_STRIDE = 0.1  # first step of an ascent
_MOMENTUM = 0.5
_BOLD, _CAUTIOUS = 0.5, 2.0  # powers of the probability that a nearer point is an answer


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Limits of the search; see `CEARM`."""

    rho: float
    rounds: int
    batch: int
    candidates: int
    ascent: int
    neighbours: int
    patience: int
    max_data: int


@dataclass(frozen=True, eq=False)
class _BayesSearch:
    query: Query
    goal: OutputGoal
    settings: SearchSettings
    unit: Tensor  # (d,) what a change of one means in each column
    best: BestPoints

    def distance(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return Euclidean distances (a, c) of points (a, c, d) to their rows, in ranges."""
        given = self._home(rows), self.unit, self._numbers
        out: Tensor = _Distance.apply(x, *given)  # type: ignore[no-untyped-call]
        return out

    @cached_property
    def _home(self) -> LastOf[Tensor]:
        """(a,) row numbers -> their rows (a, 1, d) in double precision."""
        return LastOf(lambda rows: self.query.x[rows].to(torch.float64)[:, None, :])

    @cached_property
    def _goals(self) -> LastOf[OutputGoal]:
        """(a,) row numbers -> their goals."""
        return LastOf(self.goal.select)

    @cached_property
    def _weight(self) -> LastOf[Tensor]:
        """(a,) row numbers -> minus the weights (a, 1) of their distances; see `nearness`."""
        most = self.settings.rho
        return LastOf(lambda rows: -(4 * self.goal.slack[rows]).clamp(max=most)[:, None])

    @cached_property
    def _numbers(self) -> Tensor:
        """Columns of numbers, in which points are climbed."""
        return self.query.region.layout.numeric.nonzero()[:, 0]

    def nearness(self, distance: Tensor, rows: Tensor) -> Tensor:
        """Return the factor by which distances (a, c) lower the utility.

        Around its peak the potential falls as exp(-2 (z - 1)^2), so that a weight rho moves the
        best z by rho / 4 per unit of distance. The weight is held so low that the goal stays
        within reach.
        """
        return torch.exp(self._weight(rows) * distance)

    def promise(
        self, moments: tuple[Tensor, Tensor], x: Tensor, rows: Tensor, bold: Sequence[bool]
    ) -> Tensor:
        """Return what points (a, c, d) with these moments promise, shape (b, a, c).

        Until a row has an answer: the expected improvement of the utility, or the utility of the
        expected outputs unless `bold`, for expected improvement alone keeps exploring where there
        are many outputs or features. Then: the improvement of the distance times a power of the
        probability that the point is an answer. With rho = 0 distance never counts.

        Args:
            moments: means and standard deviations of the outputs (a, c, m).
            x: points.
            rows: (a,) rows that all have an answer, or all have none.
            bold: which of the two promises are wanted, b of them.
        """
        if self.answered(rows):
            closer, chance = self._closer(moments, x, rows)
            return torch.stack([closer * chance ** (_BOLD if b else _CAUTIOUS) for b in bold])
        mean, sd = self._goals(rows).progress(*moments)
        distance = self.distance(x, rows)
        near = self.nearness(distance, rows)
        level = self.best.utility[rows][:, None] / near
        return near * torch.stack(
            [expected_gain(mean, sd, level) if b else potential(mean) for b in bold]
        )

    def _closer(
        self, moments: tuple[Tensor, Tensor], x: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return by how much (a, c) points are nearer than the answers, and their chances."""
        goal = self._goals(rows)
        chance = goal.chance(*goal.progress(*moments)).clamp(min=1e-12)
        known = self.best.distance[rows][:, None]
        return (known - self.distance(x, rows)).clamp(min=0), chance

    def answered(self, rows: Tensor) -> bool:
        """Tell whether rows, all of one kind, search for nearer points than they have."""
        return self.settings.rho > 0 and bool(self.best.distance[rows[:1]].isfinite().all())

    def of_one_kind(self, rows: Tensor) -> list[Tensor]:
        """Divide rows into those with an answer and those without, and into chunks."""
        known = self.best.distance[rows].isfinite() & (self.settings.rho > 0)
        parts = (rows[known], rows[~known])
        return [c for p in parts if len(p) for c in torch.split(p, _CHUNK)]

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Ask the model about points (a, b, d); return all points and outputs, flat."""
        flat = x.flatten(0, 1)
        outputs = self.goal.outputs(flat)
        y = outputs.reshape(*x.shape[:2], -1)
        goal = self._goals(rows)
        progress, _ = goal.progress(y, y[:, :0])
        distance = self.distance(x, rows)
        utility = potential(progress) * self.nearness(distance, rows)
        self.best.update(rows, x, utility, goal.error(y), distance, goal)
        return flat, outputs

    def from_data(self, process: Process, rows: Tensor) -> Tensor:
        """Return known points (a, b, d) from which rows begin, as far as each can go.

        Those of highest utility, and last the nearest one that is an answer: the others may all
        lie close together, just short of the goal, where earlier rows have searched.
        """
        goal = self._goals(rows)
        y = process.y[None].expand(len(rows), -1, -1)
        progress, _ = goal.progress(y, y[:, :0])
        a, b = self.query.x[rows].to(torch.float64) / self.unit, process.x / self.unit
        distance = torch.cdist(a, b)
        value = potential(progress) * self.nearness(distance, rows)
        top = value.topk(min(self.settings.batch, len(process.x)), dim=1).indices
        answers = distance.masked_fill_(~goal.reached(y, progress), torch.inf)
        far, nearest = answers.min(1)
        top[:, -1] = torch.where(far.isfinite(), nearest, top[:, -1])
        return self.snapped(process.x[top].to(self.query.x), rows)

    def snapped(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return points (a, b, d) as they can be had."""
        source = rows.repeat_interleave(x.shape[1])
        return self.query.snap(x.flatten(0, 1), source).reshape(x.shape)

    def clipped(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return points (a, b, d) inside the boxes of their rows."""
        low, high = self._box(rows)
        return torch.minimum(torch.maximum(x, low), high)

    def _box(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds (a, 1, d) of rows."""
        region = self.query.region
        return region.lower[rows][:, None, :], region.upper[rows][:, None, :]

    def propose(self, process: Process, rows: Tensor, number: int) -> Tensor:
        """Return `batch` points (a, b, d) per row that promise most."""
        near = process.near(self.best.centre(rows), self.settings.neighbours)
        posterior = process.condition(near)
        pool = self._pool(rows, number)
        labels = bool(self.query.region.layout.blocks.numel())
        # Numbers are chosen and climbed roughly; what is chosen is judged exactly.
        rough = posterior if labels else posterior.single()
        pool = self.snapped(pool, rows) if labels else self.clipped(pool, rows)
        few = self.settings.batch // 2
        counts = (self.settings.batch - few, few)
        values = self.promise(rough(pool), pool, rows, (True, False))
        tops = [v.topk(count, dim=1).indices for v, count in zip(values, counts, strict=True)]
        chosen = torch.cat(tops, 1)
        x = pool.gather(1, chosen[..., None].expand(-1, -1, pool.shape[-1]))
        climbed = self.snapped(self._climb(rough, x, rows, counts[0]), rows)
        x = x if labels else self.snapped(x, rows)
        before, after = (self._own(posterior, t, rows, counts[0]) for t in (x, climbed))
        return torch.where((after >= before)[..., None], climbed, x)

    def _own(self, posterior: Posterior, x: Tensor, rows: Tensor, bold: int) -> Tensor:
        """Return promises (a, b) of points (a, b, d): the first `bold` ones are bold."""
        mean, sd = posterior(x)
        if self.answered(rows):
            closer, chance = self._closer((mean, sd), x, rows)
            power = torch.full_like(chance[0], _CAUTIOUS)
            power[:bold] = _BOLD
            return closer * chance**power
        distance = self.distance(x, rows)
        progress, doubt = self._goals(rows).progress(mean, sd[:, :bold])
        near = self.nearness(distance, rows)
        level = self.best.utility[rows][:, None] / near[:, :bold]
        gain = expected_gain(progress[:, :bold], doubt, level)
        return near * torch.cat([gain, potential(progress[:, bold:])], 1)

    def _pool(self, rows: Tensor, number: int) -> Tensor:
        """Draw candidates: anywhere, around row and incumbent, and on the way between them.

        Rows with an answer want nearer points: none of them is beyond it, hardly one anywhere.
        """
        region, d = self.query.region, self.query.x.shape[1]
        stream = RowStreams(self.query.rng.keys[rows], self.query.rng.draw + _DRAWS * number)
        count = max(1, self.settings.candidates // 4)
        low, high = self._box(rows)
        home, best = self.query.x[rows][:, None, :], self.best.centre(rows)[:, None, :]
        anywhere = low + stream.uniform(count, d) * (high - low)
        answered = self.answered(rows)
        way = home + stream.uniform(count, 1) * (1.0 if answered else 1.3) * (best - home)
        around = []
        for centre in (home, best):
            which = stream.integers(len(_SCALES), count)
            scale = torch.tensor(_SCALES, device=rows.device)[which][..., None]
            share = stream.uniform(count, 1).clamp(min=1.5 / d)
            owner = region.layout.owner
            moves = stream.uniform(count, len(region.space))[..., owner] < share
            step = scale * self.unit.to(home.dtype) * stream.normal(count, d)
            around.append(torch.where(moves, centre + step, centre))
        return torch.cat([best, way, *around] if answered else [best, anywhere, way, *around], 1)

    def _climb(self, posterior: Posterior, x: Tensor, rows: Tensor, bold: int) -> Tensor:
        """Raise the promise of points (a, b, d) by gradient steps in their numbers."""
        region, shape = self.query.region, x.shape
        numeric, box = region.layout.numeric, self._box(rows)
        labels = bool(region.layout.blocks.numel())
        speed, kept = torch.zeros_like(x), self._keeps_labels(x)
        source = rows.repeat_interleave(shape[1])

        def loss(points: Tensor, _: Tensor) -> Tensor:
            return -self._own(posterior, points, rows, bold).sum(1)

        for left in range(self.settings.ascent, 0, -1):
            _, slope = row_gradient(loss, x, rows)
            if labels:
                slope = torch.where(numeric, slope, torch.zeros_like(slope))
            way = slope / slope.norm(dim=-1, keepdim=True).clamp(min=1e-30)
            speed = _MOMENTUM * speed + (1 - _MOMENTUM) * way
            x = x - _STRIDE * left / self.settings.ascent * speed
            if kept:
                x = torch.minimum(torch.maximum(x, box[0]), box[1])
            else:
                x = self.query.project(x.flatten(0, 1), source).reshape(shape)
        return x

    def _keeps_labels(self, x: Tensor) -> bool:
        """Tell whether snapped points (a, b, d) have a label in every block: then it stays.

        A block of a category that is not known is empty, and would be projected.
        """
        lay = self.query.region.layout
        if not lay.blocks.numel():
            return True
        values = x.flatten(0, 1).index_select(1, lay.blocks.flatten())
        values = values.reshape(-1, *lay.blocks.shape) * lay.real
        return bool((values.sum(-1) == 1).all() & (values.amax(-1) == 1).all())


class _Distance(torch.autograd.Function):
    """Distances (a, c) of points (a, c, d) to homes (a, 1, d), with gradients in some columns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, home: Tensor, unit: Tensor, columns: Tensor) -> Tensor:
        delta = (x.to(torch.float64) - home) / unit
        square = delta.square().sum(-1)
        out = square.clamp(min=_SMALLEST).sqrt()
        ctx.kind = x.dtype
        ctx.save_for_backward(delta, square, out, unit, columns)
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:
        delta, square, out, unit, columns = ctx.saved_tensors
        slope = torch.where(square >= _SMALLEST, slope / (2 * out), torch.zeros_like(slope))
        some = len(columns) < len(unit)
        if some:
            whole, delta, unit = delta, delta[..., columns], unit[columns]
        grad = (slope[..., None] * (2 * delta) / unit).to(ctx.kind)
        if some:
            grad = torch.zeros_like(whole, dtype=ctx.kind).index_copy_(-1, columns, grad)
        return grad, None, None, None


@torch.no_grad()
def optimise(
    query: Query, goal: OutputGoal, process: Process, settings: SearchSettings
) -> tuple[BestPoints, Process, int]:
    """Return (incumbents, the process with all that was learned, rounds used).

    A round proposes points for every active row, asks the model about all of them together, and
    gives the answers to the one process. A row ends when it has an answer and `patience` rounds
    brought none that is nearer by a hundredth; with rho = 0, at its first answer.
    """
    lay = query.region.layout
    width = torch.where(lay.numeric, lay.upper - lay.lower, torch.full_like(lay.upper, 2.0**0.5))
    unit = torch.where((width > 1e-9) & width.isfinite(), width, torch.ones_like(width))
    search = _BayesSearch(query, goal, settings, unit.to(torch.float64), BestPoints.of(query.x))
    used = 0
    rows = (~query.region.fixed.all(1)).nonzero()[:, 0]
    for number in range(settings.rounds + 1):
        if not len(rows) or query.budget.expired:
            break
        new = []
        for part in search.of_one_kind(rows):
            if number == 0:
                points = search.from_data(process, part)
            else:
                points = search.propose(process, part, number)
            new.append(search.evaluate(points, part))
        x, outputs = (torch.cat(t) for t in zip(*new, strict=True))
        process = process.extended(x, outputs, settings.max_data)
        used = number
        going = search.best.stale[rows] < settings.patience
        if settings.rho == 0:
            going = ~search.best.distance[rows].isfinite()
        rows = rows[going]
    return search.best, process, used
