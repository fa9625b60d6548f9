"""Lower bounds of parts of programs of choices, relaxed solutions, and where to branch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from cel.solvers.choice_programs import (
    CLOSE,
    EQUAL,
    GRID,
    SAFE,
    WIDTH,
    ChoicePrograms,
    ChoiceStates,
    broken_rule,
    meets,
    pick_option,
)
from cel.solvers.halfspaces import nearest_all

__all__ = ["evaluate"]


def evaluate(p: ChoicePrograms, s: ChoiceStates) -> ChoiceStates:
    """Return the states with floors, relaxed solutions and where to branch."""
    if not len(s):
        return s
    empty = np.asarray(s.allowed.any(2)).all(1)
    void = (s.lower > s.upper + EQUAL).any(1) | ~empty
    program = _program(p, s)
    price = program.price
    w = np.einsum("sm,smq->sq", price, p.w[s.row])
    gain = np.einsum("sm,smgk->sgk", price, p.gain[s.row])
    need = (price * p.gap[s.row]).sum(1)
    relaxed = _relax(p, s, w, gain, need)
    floor = np.where(void, np.inf, relaxed.floor)
    solution = relaxed if program.solution is None else program.solution
    s = replace(s, floor=floor, offset=solution.offset, option=solution.option)
    cost = p.cost(s.row, s.offset, s.option)
    whole = ~solution.fractional & meets(p, s.row, s.offset, s.option) & np.isfinite(floor)
    whole &= cost <= floor * (1 + CLOSE) + 2 * SAFE
    split, at = _branch(p, s, solution)
    return replace(s, whole=whole, split=split, at=at)


@dataclass(frozen=True, eq=False)
class _Relaxed:
    """Cheapest shares of choices, and the first choice that is not taken as a whole."""

    floor: np.ndarray
    offset: np.ndarray
    option: np.ndarray
    fractional: np.ndarray
    split: np.ndarray  # the fractional choice
    at: np.ndarray


def _relax(
    p: ChoicePrograms, s: ChoiceStates, w: np.ndarray, gain: np.ndarray, need: np.ndarray
) -> _Relaxed:
    """Fill one demand with the segments that gain most per cost."""
    n, q = s.lower.shape
    slope, charge = p.slope[s.row], p.charge[s.row]
    base = np.clip(0.0, s.lower, s.upper)
    due = s.moving | (np.abs(base) > EQUAL)
    end = np.where(w > 0, s.upper, s.lower)
    end = np.where(w == 0, base, end)
    room = np.abs(end - base)
    cost = [slope * room + np.where(due | (room <= EQUAL), 0.0, charge)]
    value, first = [np.abs(w) * room], (slope * np.abs(base) + charge * due).sum(1)
    need = need - (w * base).sum(1)
    chain, stay = _hulls(np.where(s.allowed, p.price[s.row], np.inf), gain)
    first = first + pick_option(np.where(s.allowed, p.price[s.row], 0.0), stay).sum(1)
    need = need - pick_option(gain, stay).sum(1)
    for _, extra_cost, extra_gain in chain:
        cost.append(extra_cost)
        value.append(extra_gain)
    costs = np.concatenate(cost, 1)
    shares, short = _filled(costs, np.concatenate(value, 1), need)
    total = first + (shares * costs).sum(1)
    floor = np.where(short, np.inf, total * (1 - SAFE) - SAFE)
    offset = base + np.sign(end - base) * room * shares[:, :q]
    option = stay.copy()
    for i, (target, _, _) in enumerate(chain):
        part = shares[:, q + i * stay.shape[1] : q + (i + 1) * stay.shape[1]]
        option = np.where(part > 0, target, option)
    linear = (p.step == 0) & (due | (charge <= EQUAL))
    partial = (shares > SAFE) & (shares < 1 - SAFE)
    partial[:, :q] &= ~linear
    which = np.pad(partial, ((0, 0), (0, 1))).argmax(1)  # there may be no segment at all
    fractional = np.asarray(partial.any(1))
    label = np.where(which >= q, q + (which - q) % max(stay.shape[1], 1), which)
    rows = np.arange(n)
    at = np.where(which < q, offset[rows, np.minimum(which, q - 1)] if q else 0.0, 0.0)
    if stay.shape[1]:
        place = np.clip(label - q, 0, stay.shape[1] - 1)
        at = np.where(which >= q, option[rows, place], at)
    return _Relaxed(np.maximum(floor, 0.0), offset, option, fractional, label, at)


def _filled(
    costs: np.ndarray, values: np.ndarray, need: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares (n, m) of segments that fill needs (n,), and which all fall short of.

    The segment that gains most per cost comes first; the last one is taken in part.
    """
    rate = np.where(values > EQUAL, costs / np.maximum(values, 1e-300), np.inf)
    order = np.argsort(rate, axis=1, kind="stable")
    sorted_gain = np.where(np.isinf(rate), 0.0, values)
    sorted_gain = np.take_along_axis(sorted_gain, order, 1)
    before = np.cumsum(sorted_gain, 1) - sorted_gain
    slack = SAFE * (1 + np.abs(need))
    share = np.clip((need[:, None] - before) / np.maximum(sorted_gain, 1e-300), 0.0, 1.0)
    share = np.where(sorted_gain > 0, share, 0.0)
    shares = np.zeros_like(share)
    np.put_along_axis(shares, order, share, 1)
    return shares, need - sorted_gain.sum(1) > slack


def _hulls(
    price: np.ndarray, gain: np.ndarray
) -> tuple[list[tuple[np.ndarray, np.ndarray, np.ndarray]], np.ndarray]:
    """Return the segments of the efficient hulls of options (s, g, k), and where they start.

    A segment is (option at its end (s, g), extra cost (s, g), extra gain (s, g)); segments of one
    label come with falling gain per cost.
    """
    chain: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    if not price.shape[1]:
        return chain, np.zeros(price.shape[:2], dtype=np.int64)
    least = price.min(2, keepdims=True)
    known = np.isfinite(price)
    cheap = known & (price <= least + EQUAL)
    now = np.where(cheap, gain, -np.inf).argmax(2)
    stay = now
    while True:
        c, v = pick_option(price, now)[..., None], pick_option(gain, now)[..., None]
        ahead = known & (gain > v + EQUAL) & (price > c + EQUAL)
        if not ahead.any():
            return chain, stay
        more = np.subtract(price, c, out=np.ones_like(price), where=ahead)
        ratio = np.where(ahead, (gain - v) / more, -np.inf)
        best = ratio.max(2, keepdims=True)
        tie = ahead & (ratio >= best * (1 - EQUAL))
        after = np.where(tie, gain, -np.inf).argmax(2)
        moves = ahead.any(2)
        after = np.where(moves, after, now)
        extra = np.where(moves, pick_option(more, after), 0.0)
        chain.append((after, extra, np.where(moves, pick_option(gain, after) - v[..., 0], 0.0)))
        now = after


@dataclass(frozen=True, eq=False)
class _Program:
    """Weights of the forms (s, m), and the solution of the linear program that gave them."""

    price: np.ndarray
    solution: _Relaxed | None = None


def _program(p: ChoicePrograms, s: ChoiceStates) -> _Program:
    """Solve the linear program in which options are taken in shares."""
    m, q, g = p.gap.shape[1], p.w.shape[2], p.price.shape[1]
    if m == 1:
        return _Program(np.ones((len(s), 1)))
    base = np.clip(0.0, s.lower, s.upper)
    price = np.where(s.allowed, p.price[s.row], np.inf)
    stay = price.argmin(2) if g else np.zeros((len(s), 0), dtype=np.int64)
    floor = np.take_along_axis(p.gain[s.row], stay[:, None, :, None], 3)
    gain = (p.gain[s.row] - floor).reshape(len(s), m, -1)
    least = np.where(np.isfinite(pick_option(price, stay)), pick_option(price, stay), 0.0)
    extra = (price - least[..., None]).reshape(len(s), -1)
    due = s.moving | (np.abs(base) > EQUAL)
    room = np.maximum(s.upper - base, base - s.lower)
    slope = p.slope[s.row] + np.where(due, 0.0, p.charge[s.row]) / np.maximum(room, 1e-12)
    k = gain.shape[2]
    w = np.concatenate([p.w[s.row], gain], 2)
    gap = p.gap[s.row] - (p.w[s.row] * base[:, None]).sum(2) - floor[..., 0].sum(2)
    if g:  # one option per label: -sum of its columns >= -1
        one = np.zeros((g, q + k))
        one[np.repeat(np.arange(g), k // g), q + np.arange(k)] = -1.0
        w = np.concatenate([w, np.broadcast_to(one, (len(s), *one.shape))], 1)
        gap = np.concatenate([gap, np.full((len(s), g), -1.0)], 1)
    lower = np.concatenate([s.lower - base, np.zeros((len(s), k))], 1)
    others = np.ones_like(price, dtype=bool)
    np.put_along_axis(others, stay[..., None], values=False, axis=2)
    usable = np.isfinite(extra) & others.reshape(extra.shape)
    upper = np.concatenate([s.upper - base, usable.astype(float)], 1)
    weight = np.concatenate([slope, np.where(usable, np.maximum(extra, 1e-6), 1.0)], 1)
    given = [torch.as_tensor(v) for v in (w, gap, np.minimum(lower, upper), upper)]
    solved = nearest_all(*given, l1=torch.as_tensor(weight), square=0.0)
    mixture = np.nan_to_num(solved.dual.numpy()[:, :m], nan=0.0, posinf=0.0).clip(min=0.0)
    flat = mixture.sum(1) <= 0
    mixture[flat] = (gap[flat][:, :m] > 0) + 1e-12
    delta = solved.delta.numpy()
    shares = delta[:, q:].reshape(len(s), g, p.price.shape[2])
    solution = _solution(p, s, base + delta[:, :q], shares, stay, due)
    return _Program(mixture / mixture.sum(1, keepdims=True), solution)


def _solution(
    p: ChoicePrograms,
    s: ChoiceStates,
    offset: np.ndarray,
    shares: np.ndarray,
    stay: np.ndarray,
    due: np.ndarray,
) -> _Relaxed:
    """Turn a solution of the linear program into choices as far as it is one."""
    rows, q, g = np.arange(len(s)), offset.shape[1], stay.shape[1]
    offset = np.clip(offset, s.lower, s.upper)
    unit, phase = np.where(p.step > 0, p.step, 1.0), p.phase[s.row]
    grid = phase + unit * np.round((offset - phase) / unit)
    near = np.abs(grid - offset) <= GRID * unit
    offset = np.where((p.step > 0) & near, grid, offset)
    offset = np.where(np.abs(offset) <= EQUAL + SAFE * unit, 0.0, offset)
    home, end = offset == 0.0, (offset <= s.lower + SAFE) | (offset >= s.upper - SAFE)
    odd = (p.step > 0) & ~near & ~home
    odd |= ~due & (p.charge[s.row] > EQUAL) & ~home & ~end
    most = shares.max(2, initial=0.0)
    best = shares.argmax(2) if shares.shape[2] else stay
    option = np.where(most > 0.5, best, stay)
    odd = np.concatenate([odd, (most > GRID) & (most < 1 - GRID)], 1)
    size = np.concatenate([np.abs(offset) * p.slope[s.row], np.minimum(most, 1 - most)], 1)
    which = np.where(odd, size, -1.0).argmax(1)
    at = offset[rows, np.minimum(which, max(q - 1, 0))] if q else np.zeros(len(s))
    if g:
        place = np.clip(which - q, 0, g - 1)
        at = np.where(which >= q, best[rows, place], at)
    return _Relaxed(np.zeros(len(s)), offset, option, np.asarray(odd.any(1)), which, at)


def _branch(
    p: ChoicePrograms, s: ChoiceStates, relaxed: _Relaxed
) -> tuple[np.ndarray, np.ndarray]:
    """Return the choice on which each state is split, and where."""
    q = p.w.shape[2]
    split, at = relaxed.split.copy(), relaxed.at.copy()
    missing = p.gap[s.row] - p.brought(s.row, s.offset, s.option)
    worst = missing.argmax(1)
    rows = np.arange(len(s))
    pull = np.abs(p.w[s.row][rows, worst]) * (s.upper - s.lower)
    wide = s.upper - s.lower > np.where(p.step > 0, EQUAL, WIDTH)
    reach = np.where(wide, pull, -1.0)
    many = s.allowed.sum(2) > 1
    gains = p.gain[s.row][rows, worst]
    spread = np.where(s.allowed, gains, -np.inf).max(2, initial=-np.inf) - np.where(
        s.allowed, gains, np.inf
    ).min(2, initial=np.inf)
    reach = np.concatenate([reach, np.where(many, spread, -1.0)], 1)
    rule = broken_rule(p, s.row, s.option)
    for r, (a, _, b, _) in enumerate(p.rules):
        here = (rule == r) & ~relaxed.fractional
        label = np.where(many[:, a], a, b)
        decided = ~many[:, a] & ~many[:, b]  # and broken: nothing is left
        split[here] = np.where(decided, -1, q + label)[here]
        at[here] = s.option[rows, label][here]
    other = ~relaxed.fractional & (rule < 0)
    if other.any():
        choice = reach.argmax(1)
        split[other] = choice[other]
        number = np.minimum(choice, max(q - 1, 0))
        middle = (s.lower + s.upper) / 2
        spot = middle[rows, number] if q else np.zeros(len(s))
        if s.option.shape[1]:
            place = np.clip(choice - q, 0, s.option.shape[1] - 1)
            spot = np.where(choice >= q, s.option[rows, place], spot)
        at[other] = spot[other]
        stuck = other & (reach.max(1) < 0)
        split[stuck] = -1
    return split, at
