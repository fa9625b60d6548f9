"""The cheapest actions over sets of features: programs where all is linear, tangents elsewhere."""

from __future__ import annotations

from itertools import combinations, pairwise

import torch
from torch import Tensor

from cel.cf_methods.local_methods.causal.action_problem import TIE, ActionProblem, Actions
from cel.cf_methods.local_methods.causal.doubt import as_score
from cel.cf_methods.query import MARGIN
from cel.cf_methods.tangent.margins import AIM, class_margins
from cel.solvers import (
    Demands,
    Nearest,
    linearised_search,
    nearest_all,
    nearest_l1,
    proved_empty,
)
from cel.solvers.least_change import row_jacobian

__all__ = ["linear_actions", "sets_of_actions", "tangent_actions"]

_FEW = 3  # features cut at a time where all combinations are too many
_PART = 2**14  # rows times sets whose tangents are followed together
_VALUES = 2**23  # numbers of effects that exist at a time
_WAVES = (2, 8, 32)  # programs of a row, lowest floors first, that are solved together
_LONGER = (1.0, 1.0005, 1.005, 1.02, 1.1, 1.5)  # of an action that rounding made too short
_MET = 1e-9  # of the largest coefficient: demands missed by rounding alone
_SLACK = 1e-7  # of a bound: what rounding may have cost


def sets_of_actions(problem: ActionProblem, max_cut: int) -> tuple[Tensor, bool]:
    """Return sets of features (s, p) to act on, and whether no other set can be better.

    Acting on a root cuts nothing, so that all roots are in every set; what differs is which of the
    features that follow from others are acted on.
    """
    space = problem.region.space
    able = problem.can_act.any(0)
    inner = [i for i, n in enumerate(space.names) if n in problem.scm.mechanisms and able[i]]
    whole = len(inner) <= max_cut
    sizes = range(len(inner) + 1) if whole else [*range(_FEW + 1), len(inner)]
    sets = []
    for size in sizes:
        for chosen in combinations(inner, size):
            acted = able.clone()
            acted[[i for i in inner if i not in chosen]] = False
            sets.append(acted)
    return torch.stack(sets), whole


@torch.no_grad()
def linear_actions(problem: ActionProblem, sets: Tensor, todo: Tensor) -> Actions:
    """Solve the program of each row and set exactly, and take the cheapest that stands.

    Grids are not part of the programs: actions are rounded, and lengthened where that fails.

    Args:
        problem: rows, and what follows from actions.
        sets: (s, p) bool, features to act on.
        todo: row numbers; the others are left without an action.
    """
    out = Actions.nothing(problem.query.x)
    pairs = _VALUES // problem.query.x.shape[1] ** 2
    for rows in torch.split(todo, max(1, pairs // len(sets))):
        if not len(rows) or problem.query.budget.expired:
            break
        _linear_part(problem, sets, rows, out)
    return out


def _linear_part(problem: ActionProblem, sets: Tensor, rows: Tensor, out: Actions) -> None:
    n, s = len(rows), len(sets)
    source, which = rows.repeat_interleave(s), torch.arange(s, device=rows.device).repeat(n)
    w, gap = _demands(problem, sets, source, which)
    low, high = (t.double() for t in problem.box(source, sets[which]))
    price = (1 / problem.scale).double()
    best, sure = _programs(w, gap, low, high, price, (n, s))
    floor = (best.delta.abs() * price).sum(1).masked_fill(~best.feasible | ~sure, torch.inf)
    switch = 0.0 if problem.price is None else problem.price[source].double()
    lax = gap.clone()
    lax[:, : _classes(problem)] -= AIM  # the boundary itself
    corner = torch.maximum(w * low[:, None, :], w * high[:, None, :]).sum(2)
    empty = (corner < lax - 1e-9 * (1 + lax.abs())).any(1)
    empty |= proved_empty(w, lax, low, high, best.dual)
    extra = best.dual[:, : _classes(problem)].sum(1) * (AIM - MARGIN)
    cheap = ((best.delta.abs() * price).sum(1) - extra + switch).masked_fill(empty, torch.inf)
    cheap = torch.where(best.feasible | empty, cheap, torch.nan)  # nothing is known
    least = cheap.reshape(n, s).amin(1)
    out.empty[rows] = empty.reshape(n, s).all(1)
    bound = (least * (1 - _SLACK)).to(out.bound)
    out.bound[rows] = torch.where(least.isfinite(), bound, torch.full_like(bound, torch.nan))
    floor = (floor + switch).reshape(n, s)
    _take_cheapest(problem, sets, rows, best.delta.reshape(n, s, -1), floor, out)


def _programs(
    w: Tensor, gap: Tensor, low: Tensor, high: Tensor, price: Tensor, shape: tuple[int, int]
) -> tuple[Nearest, Tensor]:
    """Solve the programs of n rows times s sets, and tell which answers meet all demands.

    With one demand on the outcome its closed form comes first. What it costs is a floor of the
    whole program, which is solved only where it may still be the cheapest of its row: those with
    the lowest floors first, then ever more.
    """
    one = nearest_l1(w[:, 0], gap[:, 0], low, high, 1 / price)
    met = ((w @ one.delta[..., None])[..., 0] - gap >= -_MET * w.abs().amax(2)).all(1)
    floor = (one.delta.abs() * price).sum(1)
    known = floor.masked_fill(~one.feasible | ~met, torch.inf).reshape(shape).amin(1)
    left = one.feasible & ~met
    order = floor.masked_fill(~left, torch.inf).reshape(shape).argsort(dim=1, stable=True)
    place = order.argsort(dim=1)
    dual = torch.zeros_like(gap)
    dual[:, 0] = one.dual
    delta, feasible, sure = one.delta.clone(), one.feasible.clone(), met | ~one.feasible
    for first, last in pairwise((0, *_WAVES, shape[1])):
        wave = left & ((place >= first) & (place < last)).flatten()
        rival = floor < (known * (1 - _SLACK)).repeat_interleave(shape[1])
        todo = (wave & rival).nonzero()[:, 0]
        if not len(todo):
            continue
        many = nearest_all(w[todo], gap[todo], low[todo], high[todo], l1=price, square=0.0)
        delta[todo], feasible[todo], dual[todo] = many.delta, many.feasible, many.dual
        sure[todo] = True
        cost = torch.full_like(floor, torch.inf)
        cost[todo] = (many.delta.abs() * price).sum(1).masked_fill(~many.feasible, torch.inf)
        known = torch.minimum(known, cost.reshape(shape).amin(1))
    return Nearest(delta=delta, feasible=feasible, dual=dual), sure


def _take_cheapest(
    problem: ActionProblem,
    sets: Tensor,
    rows: Tensor,
    actions: Tensor,
    floor: Tensor,
    out: Actions,
) -> None:
    """Settle the actions (n, s, d) of each row in the order of their floors (n, s)."""
    order = floor.argsort(dim=1, stable=True)
    here = torch.arange(len(rows), device=rows.device)
    for place in range(floor.shape[1]):
        number = order[here, place]
        lowest = floor[here, number].to(out.cost)
        here = here[lowest.isfinite() & (lowest < out.cost[rows[here]] * (1 - TIE))]
        if not len(here) or problem.query.budget.expired:
            return
        number = order[here, place]
        _offer(problem, actions[here, number].to(out.x), sets[number], rows[here], out)


def _offer(
    problem: ActionProblem, action: Tensor, acted: Tensor, rows: Tensor, out: Actions
) -> None:
    """Keep actions (a, d) that stand and are cheaper; what rounding shortened is lengthened."""
    left = torch.arange(len(rows), device=rows.device)
    low, high = problem.box(rows, acted)
    for factor in _LONGER:
        longer = torch.minimum(torch.maximum(factor * action[left], low[left]), high[left])
        done, seen, ok = problem.settle(longer, acted[left], rows[left])
        cost = problem.cost(done, rows[left])
        good = ok & (cost < out.cost[rows[left]])
        at = rows[left[good]]
        whole, _ = problem.acts(done[good], acted[left[good]], at)
        out.x[at], out.action[at], out.cost[at] = seen[good], whole, cost[good]
        out.ok[at] = True
        left = left[~ok]
        if not len(left):
            return


def _classes(problem: ActionProblem) -> int:
    return problem.query.model.n_outputs - 1


def _demands(
    problem: ActionProblem, sets: Tensor, rows: Tensor, which: Tensor
) -> tuple[Tensor, Tensor]:
    """Return normals (a, c, d) and gaps (a, c): margins, bounds of what follows, relations.

    Columns that follow from nothing, or cannot leave their bounds, ask for nothing.
    """
    query = problem.query
    linear = query.model.linear()
    assert linear is not None
    weights, bias = (t.double().to(query.x.device) for t in linear)
    effects = problem.scm.effects(sets)[which]  # (a, d, d)
    base = problem.base(rows, sets[which])
    target, x = query.target[rows], base.double()
    others = torch.arange(len(weights) - 1, device=x.device)
    other = others + (others >= target[:, None])
    normal = weights[target][:, None, :] - weights[other]
    margin = (normal * x[:, None, :]).sum(2) + bias[target][:, None] - bias[other]
    w, gap = [normal @ effects], [AIM - margin]
    columns = problem.follows.nonzero()[:, 0]
    if len(columns):
        below = effects[:, columns]
        below = below.masked_fill(sets[which][:, problem.region.layout.owner[columns], None], 0.0)
        region = query.region
        w += [below, -below]
        gap += [
            (region.lower[rows] - base)[:, columns].double(),
            (base - region.upper[rows])[:, columns].double(),
        ]
    rules, most = problem.rules(rows)
    if len(rules):
        w.append(-(rules.double() @ effects))
        gap.append((base @ rules.to(base).T - most).double())
    gaps = torch.cat(gap, 1).clamp(min=-1e6)
    return torch.cat(w, 1), gaps


def tangent_actions(
    problem: ActionProblem, sets: Tensor, steps: int, out: Actions, todo: Tensor
) -> Actions:
    """Follow tangents of model and equations for each row and set; take the cheapest.

    Of the rows `todo` only those are searched that have no action in `out` and may have one.
    """
    todo = todo[(~out.ok & ~out.empty)[todo]]
    for rows in torch.split(todo, max(1, _PART // (4 * len(sets)))):
        if not len(rows) or problem.query.budget.expired:
            break
        _tangent_part(problem, sets, rows, steps, out)
    return out


def _tangent_part(
    problem: ActionProblem, sets: Tensor, rows: Tensor, steps: int, out: Actions
) -> None:
    query, s = problem.query, len(sets)
    source = rows.repeat_interleave(s)
    acted = sets.repeat(len(rows), 1)
    low, high = problem.box(source, acted)
    columns = problem.follows.nonzero()[:, 0]
    margins = class_margins(query)
    region = query.region

    def surplus(action: Tensor, at: Tensor) -> Tensor:
        where = source[at]
        whole, cut = problem.acts(action, acted[at], where)
        x = problem.scm.follow(query.x[where], whole, cut)
        parts = [margins(x, where) - AIM]
        if problem.doubt is not None:
            parts.append(as_score(problem.lead(action, acted[at], where))[:, None] - AIM)
        if len(columns):
            low_, high_ = (
                t[where][:, columns].clamp(-1e6, 1e6) for t in (region.lower, region.upper)
            )
            parts += [x[:, columns] - low_, high_ - x[:, columns]]
        rules, most = problem.rules(where)
        if len(rules):
            parts.append(most - x @ rules.T)
        return torch.cat(parts, 1)

    def linearise(action: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        return row_jacobian(surplus, action, at)

    def accept(action: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        done, _, ok = problem.settle(action, acted[at], source[at])
        return done, ok

    demands = Demands(
        linearise=linearise,
        solve=lambda w, gap, lo, hi, at: nearest_all(
            w, gap, lo, hi, l1=1 / problem.scale, square=0.0
        ),
        accept=accept,
        cost=lambda action, at: problem.cost(action, source[at]),
        center=torch.zeros_like(low),
        lower=low,
        upper=high,
        width=problem.scale,
        grid=problem.region.layout.step,
        aside=2 * len(columns) + len(region.layout.relations),
    )
    found = linearised_search(
        demands, torch.zeros_like(low), steps=steps, radius=0.5, budget=query.budget
    )
    price = found.cost.masked_fill(~found.ok, torch.inf).reshape(len(rows), s)
    _take_cheapest(problem, sets, rows, found.x.reshape(len(rows), s, -1), price, out)
