"""What a row wants from its outputs, and the best points that were seen for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.query import MARGIN, Query
from cel.cf_methods.view import ModelView
from cel.protocols import Task

__all__ = ["BestPoints", "OutputGoal", "expected_gain", "outputs_of", "potential"]

_TIE = 1e-3  # slope where the potential is flat
_FLOOR = -10.0  # scores are modelled relative to the best one, no lower than this
_NODES, _WEIGHTS = (torch.as_tensor(v) for v in np.polynomial.legendre.leggauss(16))
_REACH = 6.0  # standard deviations beyond which nothing is counted
_FAR, _HALVINGS = 30.0, 30


def potential(z: Tensor) -> Tensor:
    """Return `z^2 exp(-z^2)` for z >= 0, with its peak 1/e at z = 1, and a slight slope below 0.

    >>> round(float(potential(torch.tensor(1.0))) * math.e, 6)
    1.0
    """
    up = z.clamp(min=0).square()
    return up * torch.exp(-up) + _TIE * z.clamp(max=0)


def expected_gain(mean: Tensor, sd: Tensor, level: Tensor) -> Tensor:
    """Return `E max(potential(Z) - level, 0)` for Z ~ N(mean, sd^2).

    The gain lives where the potential exceeds the level, an interval around 1. Gauss-Legendre
    nodes on that interval, as far as Z gets, see it however narrow it is; nodes that are fixed by
    mean and sd (Gauss-Hermite) miss it when the level is high.
    """
    low, high = _above(level.detach())
    left = torch.maximum(low, (mean - _REACH * sd).detach())
    right = torch.minimum(high, (mean + _REACH * sd).detach())
    half = ((right - left) / 2).clamp(min=0)
    z = ((left + right) / 2)[..., None] + half[..., None] * _NODES.to(mean)
    gain = (potential(z) - level[..., None]).clamp(min=0)
    density = torch.exp(-0.5 * ((z - mean[..., None]) / sd[..., None]).square())
    total = (gain * density * _WEIGHTS.to(mean)).sum(-1) * half
    return total / (sd * math.sqrt(2 * math.pi))


def _above(level: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ends of the interval where the potential exceeds a level, by bisection.

    Above the peak both ends are 1; at or below zero it is open to the right. Both are halved
    together, in numbers that are not negative: there the potential has no slope of its own.
    """
    inside = torch.ones(2, *level.shape, dtype=level.dtype, device=level.device)
    outside = torch.zeros_like(inside)
    outside[1] = _FAR
    for _ in range(_HALVINGS):
        middle = (inside + outside).mul_(0.5)
        up = middle.square()
        enough = up.neg().exp_().mul_(up) >= level
        inside = torch.where(enough, middle, inside)
        outside = torch.where(enough, outside, middle)
    open_ = level <= 0
    below = (level / _TIE).clamp(max=0)
    return torch.where(open_, below, inside[0]), torch.where(open_, torch.inf, inside[1])


def outputs_of(model: ModelView, x: Tensor) -> Tensor:
    """Return what is modelled of a model at (c, d): values, or scores that are not too small."""
    scores = model.scores(x).to(torch.float64)
    if model.task is Task.REGRESSION:
        return scores
    return (scores - scores.amax(1, keepdim=True)).clamp(min=_FLOOR)


def _norm(x: Tensor) -> Tensor:
    """Return the mean of fourth powers over outputs, to the power 1/4: a smooth largest value."""
    return x.abs().clamp(min=1e-9).pow(4).mean(-1).pow(0.25)


@dataclass(frozen=True, eq=False)
class OutputGoal:
    """How far outputs are on the way from where a row is (0) to where it should be (1).

    One output: `(f - f0) / (y* - f0)`. Several: one minus the size of f - y* over that of the way
    to go, in a fourth-power mean, a smooth stand-in for the largest. Classes: the same ratio of
    margins, the wanted one being `margin`.

    Attributes:
        model: turns scores into margins.
        start: (n, m) outputs of the rows.
        target: (n,) classes or (n, m) values.
        reach: (n,) distance to go.
        eps: largest |f - y*| that counts as reached.
        margin: margin to aim at between classes.
    """

    model: ModelView
    start: Tensor
    target: Tensor
    reach: Tensor
    eps: float
    margin: float

    @classmethod
    def of(cls, query: Query, eps: float, margin: float) -> OutputGoal:
        """Read the goals of the rows of a query."""
        start = outputs_of(query.model, query.x)
        target = query.target
        if query.model.task is Task.REGRESSION:
            target = target.to(torch.float64)
            reach = _norm(target - start)
        else:
            reach = margin - query.model.margin_of(start, target)
        return cls(query.model, start, target, reach.clamp(min=1e-6), eps, margin)

    @property
    def slack(self) -> Tensor:
        """(n,) progress that may be missing at the end."""
        return (self.eps if self.model.task is Task.REGRESSION else self.margin) / self.reach

    def select(self, rows: Tensor) -> OutputGoal:
        """Return the goals of some rows."""
        names = ("start", "target", "reach")
        return replace(self, **{n: getattr(self, n)[rows] for n in names})

    def outputs(self, x: Tensor) -> Tensor:
        """Evaluate the model at (c, d), in float64."""
        return outputs_of(self.model, x)

    def progress(self, mean: Tensor, sd: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (a, c) and standard deviation (a, b) of the progress of outputs (a, c, m).

        Standard deviations (a, b, m) may be given for the first b of the c points alone.
        """
        reach, few = self.reach[:, None], sd.shape[1]
        if self.model.task is Task.REGRESSION and mean.shape[-1] == 1:
            way = (self.target - self.start)[:, None, :]
            way = torch.where(way.abs() > 1e-6, way, torch.full_like(way, 1e-6))
            return ((mean - self.start[:, None, :]) / way)[..., 0], sd[..., 0] / reach
        if self.model.task is Task.REGRESSION:
            error = _norm(mean - self.target[:, None, :])
            return 1 - error / reach, _norm(sd) / reach
        wanted = self.target[:, None, None].expand(*mean.shape[:2], 1)
        rest, best = mean.scatter(2, wanted, -torch.inf).max(-1)
        margin = mean.gather(2, wanted)[..., 0] - rest
        rival = sd.gather(2, best[:, :few, None])
        both = sd.gather(2, wanted[:, :few]).square() + rival.square()
        return 1 + (margin - self.margin) / reach, both[..., 0].sqrt() / reach

    def chance(self, mean: Tensor, sd: Tensor) -> Tensor:
        """Return the probability (a, c) that progress N(mean, sd^2) is enough and not too much.

        Doubt is kept above a quarter of the tolerance, so that the probability has a slope.
        """
        slack = self.slack[:, None]
        sd = torch.maximum(sd, slack / 4)
        enough: Tensor = torch.special.ndtr((mean - 1 + slack) / sd)
        if self.model.task is Task.REGRESSION and self.start.shape[1] == 1:
            enough = enough - torch.special.ndtr((mean - 1 - slack) / sd)
        return enough

    def reached(self, outputs: Tensor, progress: Tensor) -> Tensor:
        """Tell which outputs (a, c, m), with their progress (a, c), are answers up to rounding."""
        if self.model.task is Task.REGRESSION:
            return self.error(outputs) <= self.eps
        return (progress - 1) * self.reach[:, None] + self.margin >= 2 * MARGIN

    def error(self, outputs: Tensor) -> Tensor:
        """Return how much (a, c) outputs (a, c, m) miss the goal by; at most eps is a hit."""
        if self.model.task is Task.REGRESSION:
            return (outputs - self.target[:, None, :]).abs().amax(-1)
        flat = outputs.flatten(0, 1)
        margin = self.model.margin_of(flat, self.target.repeat_interleave(outputs.shape[1]))
        return torch.relu(2 * MARGIN - margin).reshape(outputs.shape[:2]) + self.eps * (
            margin.reshape(outputs.shape[:2]) < 2 * MARGIN
        )


@dataclass(eq=False)
class BestPoints:
    """The best points of each row so far.

    Attributes:
        x: (n, d) point of highest utility, at first the row itself.
        utility: (n,) potential times exp(-rho distance).
        answer: (n, d) nearest point that reached the goal, NaN for none.
        distance: (n,) its distance.
        closest: (n, d) point of smallest error.
        error: (n,) its error.
        stale: (n,) rounds since a usable point last improved.
    """

    x: Tensor
    utility: Tensor
    answer: Tensor
    distance: Tensor
    closest: Tensor
    error: Tensor
    stale: Tensor

    @classmethod
    def of(cls, x: Tensor) -> BestPoints:
        """Start at the rows themselves."""
        zero = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        none = torch.full_like(x, torch.nan)
        far = torch.full_like(zero, torch.inf)
        return cls(x.clone(), zero, none, far, none.clone(), far.clone(), zero.clone())

    @classmethod
    def join(cls, parts: list[BestPoints], x: Tensor) -> BestPoints:
        """Put the incumbents of consecutive rows of `x` (n, d) together."""
        if not parts:
            return cls.of(x)
        return cls(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def centre(self, rows: Tensor) -> Tensor:
        """Return where to search on: around the answer, or the point of highest utility."""
        return torch.where(self.answer[rows].isnan(), self.x[rows], self.answer[rows])

    def update(
        self,
        rows: Tensor,
        x: Tensor,
        utility: Tensor,
        error: Tensor,
        distance: Tensor,
        goal: OutputGoal,
    ) -> None:
        """Take in points (a, b, d) with their utility, error and distance (a, b)."""
        here = torch.arange(len(rows), device=rows.device)
        value, index = utility.max(1)
        better = value > self.utility[rows]
        self.x[rows[better]] = x[here, index][better]
        self.utility[rows[better]] = value[better]
        value, index = error.min(1)
        better = value < self.error[rows]
        nearer_goal = value < 0.95 * self.error[rows]
        self.closest[rows[better]] = x[here, index][better]
        self.error[rows[better]] = value[better]
        value, index = distance.masked_fill(error > goal.eps, torch.inf).min(1)
        better = value < self.distance[rows]
        nearer_home = value < 0.99 * self.distance[rows]
        self.answer[rows[better]] = x[here, index][better]
        self.distance[rows[better]] = value[better]
        answered = self.distance[rows].isfinite()
        moved = torch.where(answered, nearer_home, nearer_goal)
        usable = self.error[rows] <= goal.model.tolerance - MARGIN
        self.stale[rows] = torch.where(moved, torch.zeros_like(value), self.stale[rows] + usable)
