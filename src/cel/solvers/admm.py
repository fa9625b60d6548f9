"""Nearest points of convex sets: consensus ADMM for many small programs at once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.steppers import soft_threshold
from cel.solvers.ellipsoid import CLOSE, Ellipsoids

__all__ = ["Programs", "Solution", "Splitting", "solve_programs"]

UNDECIDED, SOLVED, INFEASIBLE = 0, 1, 2
_CHECK = 25  # iterations between looks at the residuals
_ADAPT_UNTIL = 1500  # a step size that changes for ever need not converge
_RELAX = 1.6


@dataclass(frozen=True, kw_only=True, eq=False)
class Programs:
    """p programs `min theta(x - origin)` over box, half-spaces and one ellipsoid each, float64.

    Attributes:
        origin: (p, d).
        weight: (d,) weights of the L1 norm; ignored by L2.
        normals: (p, h, d) and
        offsets: (p, h), the half-spaces `normal . x <= offset`.
        lower: (p, d) and
        upper: (p, d), the box.
        which: (p,) ellipsoid of each program; sorted is faster.
        ellipsoids: the ellipsoids.
        norm: "l1" for `sum weight |delta|`, "l2" for `|delta|^2 / 2`.
    """

    origin: Tensor
    weight: Tensor
    normals: Tensor
    offsets: Tensor
    lower: Tensor
    upper: Tensor
    which: Tensor
    ellipsoids: Ellipsoids
    norm: Literal["l1", "l2"] = "l1"

    def __len__(self) -> int:
        return len(self.origin)

    @cached_property
    def steepness(self) -> Tensor:
        """(p, h) squared lengths of the normals."""
        return self.normals.square().sum(-1).clamp(min=1e-300)

    def select(self, rows: Tensor) -> Programs:
        """Return some of the programs."""
        names = ("origin", "normals", "offsets", "lower", "upper", "which")
        return replace(self, **{n: getattr(self, n)[rows] for n in names})

    def within(self, lower: Tensor, upper: Tensor) -> Programs:
        """Return the programs with a smaller box."""
        return replace(
            self,
            lower=torch.maximum(self.lower, lower),
            upper=torch.minimum(self.upper, upper),
        )

    def tightened(self, share: float) -> Programs:
        """Return programs whose solutions keep clear of half-spaces and ellipsoids."""
        room = share * self.normals.norm(dim=-1)
        ball = replace(self.ellipsoids, radius=self.ellipsoids.radius * (1 - share))
        return replace(self, offsets=self.offsets - room, ellipsoids=ball)

    def value(self, x: Tensor) -> Tensor:
        """Return theta (p,) at points (p, d)."""
        delta = x - self.origin
        if self.norm == "l1":
            return (self.weight * delta.abs()).sum(-1)
        return delta.square().sum(-1) / 2

    def violation(self, x: Tensor) -> Tensor:
        """Return the largest violation (p,) of half-spaces and ellipsoids, in relative units."""
        planes = (torch.einsum("phd,pd->ph", self.normals, x) - self.offsets).clamp(min=0)
        planes = planes / self.normals.norm(dim=-1).clamp(min=1e-12)
        out = self.ellipsoids.own_mahalanobis(x, self.which)
        ball = (out / self.ellipsoids.radius[self.which].clamp(min=1e-12) - 1).clamp(min=0)
        return torch.maximum(ball, planes.amax(-1)) if planes.shape[1] else ball

    def proved_empty(self, push: Tensor, pull: Tensor) -> Tensor:
        """Tell whether multipliers prove that a program has no feasible point.

        For any `push >= 0` (p, h) and `pull` (p, d): when the support functions of the half-spaces
        at push * normal, of the ellipsoid at pull, and of the box at minus their sum add up to
        less than zero, no point can be in all of them.
        """
        total = torch.einsum("ph,phd->pd", push, self.normals) + pull
        corner = torch.where(total > 0, self.lower, self.upper)
        box = torch.where(total == 0, torch.zeros_like(total), -total * corner).sum(-1)
        planes = (push * self.offsets).sum(-1)
        value = planes + self.ellipsoids.support(pull, self.which) + box
        size = (push * self.normals.norm(dim=-1)).sum(-1) + pull.norm(dim=-1)
        proved: Tensor = (value < -1e-9 * size) & (size > 0)
        return proved


@dataclass(frozen=True, eq=False)
class Solution:
    """Points (p, d) and what is known about them: 0 undecided, 1 solved, 2 proved infeasible.

    `splitting` is where the iteration stood, for similar programs to go on from.
    """

    x: Tensor
    status: Tensor
    iterations: int = 0
    splitting: Splitting | None = None


@dataclass
class Splitting:
    """Copies of the variables and their scaled multipliers; first axis: programs."""

    z: Tensor
    u_cost: Tensor
    u_plane: Tensor
    u_ball: Tensor
    rho: Tensor
    t: Tensor
    before: Tensor
    primal: Tensor

    def select(self, rows: Tensor) -> Splitting:
        """Return the state of some programs."""
        return Splitting(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def put(self, rows: Tensor, other: Splitting) -> None:
        """Take over, in place, the state of these programs."""
        for f in fields(self):
            getattr(self, f.name)[rows] = getattr(other, f.name)

    def at(self, x: Tensor) -> Splitting:
        """Return the same multipliers with other points (p, d)."""
        return replace(self, z=x.clone(), before=x, primal=torch.full_like(self.t, torch.inf))


def solve_programs(
    programs: Programs,
    *,
    start: Tensor | None = None,
    tolerance: float = 1e-6,
    max_iter: int = 3000,
    rho: float | None = None,
    close: float = CLOSE,
    warm: Splitting | None = None,
    budget: Budget | None = None,
) -> Solution:
    """Solve all programs by consensus ADMM (Boyd et al., 2011), one copy per set.

    The box belongs to the copy with the objective: both are separable, so their joint proximal map
    is a clamp. Every program has its own step size, balanced by its residuals. Solved programs,
    and those whose multipliers prove that they are infeasible, leave the batch.

    Args:
        programs: what to solve.
        start: (p, d) first points; the origins by default.
        tolerance: of primal and dual residuals.
        max_iter: iterations after which programs stay undecided.
        rho: first penalty; by default 100 for L1 and 10 for L2, in units where features are of
            order one.
        close: relative error of the radius to which points are projected onto ellipsoids.
        warm: the end of similar programs, whose multipliers and step sizes are a better start.
        budget: ends the search early.
    """
    if rho is None:
        rho = 100.0 if programs.norm == "l1" else 10.0
    x = (programs.origin if start is None else start).clone()
    status = torch.zeros(len(programs), dtype=torch.int8, device=x.device)
    rows = torch.arange(len(programs), device=x.device)
    state = _first_state(programs, x, rho) if warm is None else warm.at(x)
    live, ends = programs, state.select(rows)
    iteration = 0
    while len(rows) and iteration < max_iter and not (budget is not None and budget.expired):
        for left in range(_CHECK, 0, -1):
            _iterate(live, state, close=close, told=left == 1)
        iteration += _CHECK
        gap = state.primal
        drift = (
            state.rho * (state.z - state.before).norm(dim=-1) * (live.normals.shape[1] + 2) ** 0.5
        )
        solved = (gap < tolerance) & (drift < tolerance * state.rho.clamp(min=1.0))
        empty = ~solved & _no_point(live, state)
        x[rows] = torch.minimum(torch.maximum(state.z, live.lower), live.upper)
        status[rows[solved]], status[rows[empty]] = SOLVED, INFEASIBLE
        if iteration < _ADAPT_UNTIL:
            _balance(state, gap, drift)
        keep = (~(solved | empty)).nonzero()[:, 0]
        ends.put(rows, state)
        if len(keep) < len(rows):
            rows, live, state = rows[keep], live.select(keep), state.select(keep)
    return Solution(x, status, iteration, ends)


def _first_state(programs: Programs, x: Tensor, rho: float) -> Splitting:
    zero = torch.zeros_like(x)
    return Splitting(
        z=x.clone(),
        u_cost=zero,
        u_plane=torch.zeros_like(programs.normals),
        u_ball=zero.clone(),
        rho=torch.full_like(x[:, 0], rho),
        t=torch.zeros_like(x[:, 0]),
        before=x,
        primal=torch.full_like(x[:, 0], torch.inf),
    )


def _iterate(programs: Programs, s: Splitting, *, close: float, told: bool) -> None:
    """Move all copies, then their mean, then the multipliers; `told` asks for the residuals."""
    v = s.z - s.u_cost
    if programs.norm == "l1":
        step = programs.weight / s.rho[:, None]
        cost = programs.origin + soft_threshold(v - programs.origin, step)
    else:
        cost = (programs.origin + s.rho[:, None] * v) / (1 + s.rho[:, None])
    cost = torch.minimum(torch.maximum(cost, programs.lower), programs.upper)
    v_plane = s.z[:, None, :] - s.u_plane
    size = programs.steepness
    over = ((programs.normals * v_plane).sum(-1) - programs.offsets).clamp(min=0) / size
    plane = v_plane - over[..., None] * programs.normals
    ball, s.t = programs.ellipsoids.project(s.z - s.u_ball, programs.which, s.t, close)
    if told:
        gaps = torch.stack([(cost - s.z).norm(dim=-1), (ball - s.z).norm(dim=-1)], -1)
        s.primal = gaps.amax(-1)
        if plane.shape[1]:
            s.primal = torch.maximum(s.primal, (plane - s.z[:, None, :]).norm(dim=-1).amax(-1))
    cost, ball = (_RELAX * y + (1 - _RELAX) * s.z for y in (cost, ball))
    plane = _RELAX * plane + (1 - _RELAX) * s.z[:, None, :]
    total = cost + s.u_cost + ball + s.u_ball + (plane + s.u_plane).sum(1)
    s.before, s.z = s.z, total / (2 + plane.shape[1])
    s.u_cost = s.u_cost + cost - s.z
    s.u_plane = s.u_plane + plane - s.z[:, None, :]
    s.u_ball = s.u_ball + ball - s.z


def _no_point(programs: Programs, s: Splitting) -> Tensor:
    """Read a proof of infeasibility off the multipliers, if there is one."""
    size = programs.steepness
    push = (-(s.u_plane * programs.normals).sum(-1) / size).clamp(min=0)
    return programs.proved_empty(push, -s.u_ball)


def _balance(s: Splitting, primal: Tensor, dual: Tensor) -> None:
    """Double or halve the step size where one residual is far ahead of the other."""
    factor = torch.where(primal > 5 * dual, 2.0, torch.where(dual > 5 * primal, 0.5, 1.0))
    s.rho = s.rho * factor
    for name in ("u_cost", "u_ball"):
        setattr(s, name, getattr(s, name) / factor[:, None])
    s.u_plane = s.u_plane / factor[:, None, None]
