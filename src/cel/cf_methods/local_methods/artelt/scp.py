"""An extension to models that are not linear: a sequence of convex programs in a trust region."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.local_methods.artelt.programs import (
    Setting,
    best_per_row,
    finish,
    make_programs,
    rivals,
)
from cel.search import bisect_to_boundary
from cel.solvers.admm import INFEASIBLE, Splitting, solve_programs

__all__ = ["sequential"]

_NEAR = 8  # dense training rows tried as starts, besides the centres of the components
_ROUNDS = 7
_TRUST, _SMALLEST = 0.1, 1e-3
_GAIN = 1e-5
_SLACK = 1e-5  # relative, of ellipsoids: less than answers may use, so that rounding does not hurt
_CLOSE, _ITERATIONS = 1e-4, 25  # of a program whose end is only a step
_EXACT, _LAST, _NEARBY = 1e-5, 50, 0.02  # of the last program of a row, and its trust region
_INSIDE = 1e-9  # of a radius, to which points are projected onto ellipsoids


def sequential(setting: Setting, rows: Tensor, core: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
    """Return (answers (n, d), NaN where there is none; proved infeasible (n,)).

    From a point that is valid and dense, linearise the scores, solve the convex program within the
    trust region, and accept the solution if it is valid, or the last valid point on the way to
    it. Each round starts from a feasible point, so no answer is ever lost.

    Args:
        setting: what the programs share.
        rows: (a,) row numbers.
        core: dense training rows (c, d) that the model puts into each class.
    """
    start, found, which = _best_starts(setting, *_candidates(setting, rows, core))
    left = rows[~torch.isin(rows, found)]
    more, empty = _dense_points(setting, left)
    extra = _best_starts(setting, *more)
    start, rows, which = (torch.cat(t) for t in zip((start, found, which), extra, strict=True))
    order = which.argsort(stable=True)  # programs of one component side by side are faster
    start, rows, which = start[order], rows[order], which[order]
    state: Splitting | None = None
    x = start.clone()
    trust = torch.full((len(rows), 1), _TRUST, dtype=torch.float64, device=x.device)
    for _ in range(_ROUNDS):
        live = (trust[:, 0] > _SMALLEST).nonzero()[:, 0]
        if not len(live) or setting.query.budget.expired:
            break
        given = x[live], rows[live], which[live], trust[live]
        moved, whole, state = _round(setting, *given, live, state)
        gain = setting.theta(x[live], rows[live]) - setting.theta(moved, rows[live])
        better = gain > _GAIN
        x[live[better]] = moved[better]
        grow = torch.where(whole & better, 2.0, 0.4)[:, None]
        trust[live] = torch.where(better[:, None] | ~whole[:, None], trust[live] * grow, 0.0)
    if len(rows) and not setting.query.budget.expired:
        given = x, rows, which, trust.clamp(min=_NEARBY)
        every = torch.arange(len(rows), device=rows.device)
        moved, _, _ = _round(setting, *given, every, state, exact=True)
        better = setting.theta(moved, rows) < setting.theta(x, rows)
        x = torch.where(better[:, None], moved, x)
    answer, cost = finish(setting, setting.numbers(x), rows, which)
    fallback, price = finish(setting, setting.numbers(start), rows, which)
    answer = torch.where(cost.isfinite()[:, None], answer, fallback)
    return best_per_row(answer, cost.minimum(price), rows, len(setting.home)), empty


def _dense_points(setting: Setting, rows: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Find the nearest dense points of rows, whatever their class, or prove that there is none.

    Returns:
        numbers (c, q) with their rows and components, between the nearest dense point and the
        centre of the component as far as the box allows; and which rows (n,) have no dense point.
    """
    source, which = setting.pairs(rows)
    none = torch.zeros(
        len(source), 0, len(setting.columns), dtype=torch.float64, device=rows.device
    )
    programs = make_programs(setting, source, which, none, none[..., 0])
    budget = setting.query.budget
    solution = solve_programs(programs, tolerance=1e-5, max_iter=500, close=_INSIDE, budget=budget)
    use = (solution.status != INFEASIBLE).nonzero()[:, 0]
    possible = torch.zeros(len(setting.home), dtype=torch.bool, device=rows.device)
    possible[source[use]] = True
    known = torch.isin(setting.query.target, setting.label)
    asked = torch.zeros_like(possible).index_fill(0, rows, True)
    near, centre = solution.x[use], setting.bank.mean[which[use]]
    inner = torch.minimum(torch.maximum(centre, programs.lower[use]), programs.upper[use])
    shares = torch.linspace(0, 1, _NEAR, dtype=torch.float64, device=rows.device)[:, None, None]
    points = (near + shares * (inner - near)).flatten(0, 1)
    where = source[use].repeat(_NEAR), which[use].repeat(_NEAR)
    return (points, *where), asked & known & ~possible


def _best_starts(
    setting: Setting, points: Tensor, source: Tensor, which: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (valid and dense points (a, d), their rows, their components), the best per row."""
    x = setting.query.project(setting.rows_with(points, source), source)
    ok = _feasible(setting, x, source, which)
    x, source, which = x[ok], source[ok], which[ok]

    def accept(y: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        return y, _feasible(setting, y, source[members], which[members])

    every = torch.ones(len(x), dtype=torch.bool, device=x.device)
    x = bisect_to_boundary(setting.home[source], x, every, accept, steps=12)
    tagged = torch.cat([x, which[:, None].to(x.dtype)], 1)
    best = best_per_row(tagged, setting.theta(x, source), source, len(setting.home))
    has = (~best[:, 0].isnan()).nonzero()[:, 0]
    order = best[has, -1].argsort(stable=True)
    has = has[order]
    return best[has, :-1], has, best[has, -1].long()


def _candidates(
    setting: Setting, rows: Tensor, core: dict[int, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers (c, q) of centres and near dense rows, with their rows and components."""
    source, which = setting.pairs(rows)
    points, sources, comps = [setting.bank.mean[which]], [source], [which]
    target = setting.query.target[rows]
    for label in sorted(set(target.tolist())):
        here, pool = rows[target == label], core.get(label)
        own = (setting.label == label).nonzero()[:, 0]
        if pool is None or not len(pool) or not len(own):
            continue
        pool = setting.numbers(pool)
        distance = torch.cdist(setting.numbers(setting.home[here]), pool, p=1)
        near = pool[distance.topk(min(_NEAR, len(pool)), dim=1, largest=False).indices]
        flat = near.flatten(0, 1)
        ratio = setting.bank.mahalanobis(flat)[:, own] / setting.bank.radius[own]
        points.append(flat)
        sources.append(here.repeat_interleave(near.shape[1]))
        comps.append(own[ratio.argmin(1)])
    return torch.cat(points), torch.cat(sources), torch.cat(comps)


@torch.no_grad()
def _feasible(setting: Setting, x: Tensor, rows: Tensor, which: Tensor) -> Tensor:
    margin = setting.query.model.margin(x, setting.query.target[rows])
    return (margin >= setting.margin) & setting.inside(x, which, _SLACK)


def _round(
    setting: Setting,
    x: Tensor,
    rows: Tensor,
    which: Tensor,
    trust: Tensor,
    at: Tensor,
    state: Splitting | None,
    *,
    exact: bool = False,
) -> tuple[Tensor, Tensor, Splitting | None]:
    """Return better feasible points (a, d), whether they solve their programs, and the state.

    `state` holds the multipliers of the last round, and `at` (a,) the places of these rows in it.
    """
    normals, offsets = _linearised(setting, x, rows)
    programs = make_programs(setting, rows, which, normals, offsets)
    numbers = setting.numbers(x)
    programs = programs.within(numbers - trust, numbers + trust)
    solution = solve_programs(
        programs,
        start=numbers,
        tolerance=_EXACT if exact else _CLOSE,
        max_iter=_LAST if exact else _ITERATIONS,
        close=_INSIDE,
        warm=None if state is None else state.select(at),
        budget=setting.query.budget,
    )
    if state is None:
        state = solution.splitting
    elif solution.splitting is not None:
        state.put(at, solution.splitting)
    wanted = setting.rows_with(solution.x, rows)
    whole = _feasible(setting, wanted, rows, which)

    def accept(y: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        return y, _feasible(setting, y, rows[members], which[members])

    reached = bisect_to_boundary(wanted, x, ~whole, accept, steps=6)
    return torch.where(whole[:, None], wanted, reached), whole, state


def _linearised(setting: Setting, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return half-spaces (a, K - 1, q), (a, K - 1) of the scores' tangents at x (a, d)."""
    target = setting.query.target[rows]
    with torch.enable_grad():
        point = x.detach().requires_grad_(True)
        scores = setting.query.model.logits(point)
        classes = range(scores.shape[1])
        slopes = [
            torch.autograd.grad(scores[:, k].sum(), point, retain_graph=True)[0] for k in classes
        ]
    slope = torch.stack(slopes, 1)[..., setting.columns].to(torch.float64)  # (a, K, q)
    value = scores.detach().to(torch.float64)
    here = torch.arange(len(x), device=x.device)
    other = rivals(target, value.shape[1])
    normals = slope[here[:, None], other] - slope[here, target][:, None, :]
    gap = value.gather(1, other) - value.gather(1, target[:, None])
    present = torch.einsum("ahq,aq->ah", normals, setting.numbers(x))
    return normals, present - gap - setting.margin
