"""Cheapest choices under linear demands: intervals, grids and options, one program per row.

Each row chooses an offset for every number (in an interval, perhaps on a grid, perhaps at a fixed
charge for moving at all) and one option for every label, so that linear forms of the choices reach
given gaps. With one form this is the multiple-choice knapsack problem (Sinha and Zoltners, 1979).

Any non-negative mixture of the forms is a demand that every solution meets. Under one demand the
cheapest *shares* of choices come from a sort: take what gains most per cost first. That is a lower
bound for every mixture; with several forms the mixture is that of the prices of a linear program.
At most one choice is then fractional, and the search branches on it. Rows advance together; all
sums are in float64, and floors are lowered by a relative 1e-9 before they count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from cel.solvers.halfspaces import nearest_all

__all__ = ["ChoicePrograms", "ChoiceStates", "Chosen", "cheapest_choices"]

SAFE = 1e-9  # floors are lowered by this share
MET = 1e-7  # of a gap that may be missed
CLOSE = 1e-7  # of a floor: a choice that costs no more than this above it is the best of its part
GRID = 1e-6  # of a step: this near to a grid point is on it
EQUAL = 1e-12
WIDTH = 1e-7  # of a continuous interval that is not split any more


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoicePrograms:
    """n programs with m forms, q numbers and g labels of at most k options.

    Minimise `sum_j slope_j |d_j| + charge_j [d_j != 0] + sum_l price_l[option_l]` subject to
    `sum_j w_cj d_j + sum_l gain_cl[option_l] >= gap_c` for all c.

    Attributes:
        w: (n, m, q) what a unit of a number brings.
        gap: (n, m) demands.
        lower: (n, q) smallest offsets, at most 0.
        upper: (n, q) largest offsets, at least 0.
        slope: (n, q) positive.
        charge: (n, q) for moving at all.
        step: (q,) grids, 0 for none.
        phase: (n, q) an offset on the grid; 0 is always a choice.
        gain: (n, m, g, k) what options bring.
        price: (n, g, k) what they cost, infinite where there is none; 0 for staying.
        rules: (label a, (n, k) bool, label b, (n, k) bool): one of the two options must be in its
            set; a row whose set a is full is excused.
    """

    w: np.ndarray
    gap: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    slope: np.ndarray
    charge: np.ndarray
    step: np.ndarray
    phase: np.ndarray
    gain: np.ndarray
    price: np.ndarray
    rules: Sequence[tuple[int, np.ndarray, int, np.ndarray]] = ()

    def __len__(self) -> int:
        return len(self.gap)

    def cost(self, rows: np.ndarray, offset: np.ndarray, option: np.ndarray) -> np.ndarray:
        """Return the costs (s,) of offsets (s, q) and options (s, g)."""
        moved = np.abs(offset) > EQUAL
        total = (self.slope[rows] * np.abs(offset) + self.charge[rows] * moved).sum(1)
        return np.asarray(total + _pick(self.price[rows], option).sum(1))

    def brought(self, rows: np.ndarray, offset: np.ndarray, option: np.ndarray) -> np.ndarray:
        """Return (s, m) what choices bring."""
        chosen = np.take_along_axis(self.gain[rows], option[:, None, :, None], 3)[..., 0]
        return np.asarray(np.einsum("smq,sq->sm", self.w[rows], offset) + chosen.sum(2))


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceStates:
    """Parts of the programs that are not decided, and their relaxed solutions.

    Attributes:
        row: (s,) whose program.
        lower, upper: (s, q) offsets that are left.
        moving: (s, q) bool, the charge is due for certain.
        allowed: (s, g, k) bool, options that are left.
        floor: (s,) no choice of the part is cheaper.
        offset: (s, q) of the relaxed solution.
        option: (s, g).
        whole: (s,) bool, that solution is a choice and costs no more than the floor.
        split: (s,) number or (q +) label on which to branch.
        at: (s,) offset, or option, at which to branch.
    """

    row: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    moving: np.ndarray
    allowed: np.ndarray
    floor: np.ndarray
    offset: np.ndarray
    option: np.ndarray
    whole: np.ndarray
    split: np.ndarray
    at: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    def pick(self, which: np.ndarray) -> ChoiceStates:
        """Return some of the states."""
        return ChoiceStates(**{f.name: getattr(self, f.name)[which] for f in fields(self)})

    @staticmethod
    def join(parts: Sequence[ChoiceStates]) -> ChoiceStates:
        """Return all states of several lists."""
        return ChoiceStates(
            **{
                f.name: np.concatenate([getattr(p, f.name) for p in parts])
                for f in fields(ChoiceStates)
            }
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """Answers to n programs, the cheapest `count` whose sets of changes do not contain another.

    Attributes:
        offset: (n, count, q), NaN where there is none.
        option: (n, count, g), -1 where there is none.
        cost: (n, count), infinite where there is none.
        bound: (n,) proved lower bound of the first cost; infinite where there is no choice at all.
        nodes: (n,) parts that were looked at.
    """

    offset: np.ndarray
    option: np.ndarray
    cost: np.ndarray
    bound: np.ndarray
    nodes: np.ndarray

    @property
    def infeasible(self) -> np.ndarray:
        """(n,) bool, rows that are proved to have no choice."""
        return np.isposinf(self.bound)


def cheapest_choices(
    programs: ChoicePrograms,
    *,
    count: int = 1,
    nodes: int = 20_000,
    expired: Callable[[], bool] = lambda: False,
) -> Chosen:
    """Solve all programs exactly, best parts first.

    Args:
        programs: the programs.
        count: answers per row, in order of their cost; none changes all that an earlier one does.
        nodes: parts that a row may look at.
        expired: whether to stop.
    """
    p, n = programs, len(programs)
    out = Chosen(
        offset=np.full((n, count, p.w.shape[2]), np.nan),
        option=np.full((n, count, p.price.shape[1]), -1),
        cost=np.full((n, count), np.inf),
        bound=np.full(n, np.nan),
        nodes=np.zeros(n, dtype=np.int64),
    )
    found, spare = np.zeros(n, dtype=np.int64), _Spare(p)
    unsure = np.full(n, np.nan)  # floors of parts too narrow to be split, yet not decided
    queue = _evaluate(p, _roots(p))
    spare.offer(queue)
    while len(queue):
        going = np.isfinite(queue.floor) & (found[queue.row] < count)
        if count == 1:  # what cannot be cheaper than a known choice need not be looked at
            going &= queue.floor < spare.limit()[queue.row]
        queue = queue.pick(going)
        best = _lowest_of_rows(queue)
        out.nodes[queue.row[best]] += 1
        tired = (out.nodes[queue.row[best]] > nodes) | expired()
        ends, lowest = queue.row[best][tired], queue.floor[best][tired]
        out.bound[ends] = np.where(found[ends] > 0, out.bound[ends], lowest)
        found[ends] = count
        top = queue.pick(best[~tired])
        rest = np.ones(len(queue), dtype=bool)
        rest[best] = False
        again = _supersets(p, out, top)
        done = top.whole & (again < 0)
        _record(p, out, found, top.pick(done))
        children = _children(p, top.pick(top.whole & (again >= 0)), out, again)
        rest_ = top.pick(~top.whole)
        lost = _broken_rule(p, rest_.row, rest_.option) >= 0
        narrow = rest_.pick((rest_.split < 0) & ~lost & (rest_.upper > rest_.lower).any(1))
        np.fmin.at(unsure, narrow.row, narrow.floor)
        open_ = _evaluate(
            p, ChoiceStates.join([top.pick(top.row < 0), *children, *_split(p, rest_)])
        )
        spare.offer(open_)
        queue = ChoiceStates.join([queue.pick(rest), open_])
    cut = np.isnan(out.bound)
    out.bound[cut] = spare.limit()[cut] if count == 1 else np.inf
    out.bound[:] = np.fmin(out.bound, unsure)
    late = np.isposinf(out.cost[:, 0]) & np.isfinite(spare.cost)
    out.offset[late, 0], out.option[late, 0] = spare.offset[late], spare.option[late]
    out.cost[late, 0] = spare.cost[late]
    return out


class _Spare:
    """The cheapest choice of each row that was met on the way, for rows that run out of nodes."""

    def __init__(self, p: ChoicePrograms) -> None:
        self.p = p
        self.cost = np.full(len(p), np.inf)
        self.offset = np.zeros((len(p), p.w.shape[2]))
        self.option = np.zeros((len(p), p.price.shape[1]), dtype=np.int64)

    def limit(self) -> np.ndarray:
        """Return the floors (n,) at which parts cannot hold anything cheaper."""
        return np.asarray(self.cost * (1 - SAFE) - SAFE)

    def offer(self, states: ChoiceStates) -> None:
        """Round the relaxed solutions up and keep what is a choice."""
        if not len(states):
            return
        p, row = self.p, states.row
        offset = _on_grid(p, row, states.offset, states.lower, states.upper)
        valid = _meets(p, row, offset, states.option) & np.isfinite(states.floor)
        cost = np.where(valid, p.cost(row, offset, states.option), np.inf)
        order = np.lexsort((cost, row))
        first = np.ones(len(row), dtype=bool)
        first[1:] = row[order][1:] != row[order][:-1]
        best = order[first]
        best = best[cost[best] < self.cost[row[best]]]
        self.cost[row[best]] = cost[best]
        self.offset[row[best]], self.option[row[best]] = offset[best], states.option[best]


def _roots(p: ChoicePrograms) -> ChoiceStates:
    n, q, g = len(p), p.w.shape[2], p.price.shape[1]
    lower, upper = p.lower.copy(), p.upper.copy()
    if p.gap.shape[1] == 1:  # under one demand, moving the wrong way is never worth it
        lower[p.w[:, 0] >= 0] = 0.0
        upper[p.w[:, 0] <= 0] = 0.0
    rows = np.arange(n)
    states = ChoiceStates(
        row=rows, lower=lower, upper=upper, moving=np.zeros((n, q), dtype=bool),
        allowed=np.isfinite(p.price), floor=np.zeros(n), offset=np.zeros((n, q)),
        option=np.zeros((n, g), dtype=np.int64), whole=np.zeros(n, dtype=bool),
        split=np.zeros(n, dtype=np.int64), at=np.zeros(n),
    )  # fmt: skip
    return _tidy(p, states)


def _tidy(p: ChoicePrograms, s: ChoiceStates) -> ChoiceStates:
    """Move the ends of intervals to grid points (0 counts as one)."""
    step, phase = p.step, p.phase[s.row]
    grid = step > 0
    unit = np.where(grid, step, 1.0)
    up = phase + unit * np.ceil((s.lower - phase) / unit - GRID)
    down = phase + unit * np.floor((s.upper - phase) / unit + GRID)
    lower = np.where(grid, np.where((s.lower <= 0) & (up > 0), 0.0, up), s.lower)
    upper = np.where(grid, np.where((s.upper >= 0) & (down < 0), 0.0, down), s.upper)
    return replace(s, lower=lower, upper=upper)


def _evaluate(p: ChoicePrograms, s: ChoiceStates) -> ChoiceStates:
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
    whole = ~solution.fractional & _meets(p, s.row, s.offset, s.option) & np.isfinite(floor)
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
    first = first + _pick(np.where(s.allowed, p.price[s.row], 0.0), stay).sum(1)
    need = need - _pick(gain, stay).sum(1)
    for _, extra_cost, extra_gain in chain:
        cost.append(extra_cost)
        value.append(extra_gain)
    costs, values = np.concatenate(cost, 1), np.concatenate(value, 1)
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
    short = need - sorted_gain.sum(1) > slack
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
        c, v = _pick(price, now)[..., None], _pick(gain, now)[..., None]
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
        extra = np.where(moves, _pick(more, after), 0.0)
        chain.append((after, extra, np.where(moves, _pick(gain, after) - v[..., 0], 0.0)))
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
    least = np.where(np.isfinite(_pick(price, stay)), _pick(price, stay), 0.0)
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
    mixture = np.nan_to_num(solved.price.numpy()[:, :m], nan=0.0, posinf=0.0).clip(min=0.0)
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
    rule = _broken_rule(p, s.row, s.option)
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


def _split(p: ChoicePrograms, s: ChoiceStates) -> list[ChoiceStates]:
    """Return the parts of states that are not whole; together they miss no choice."""
    s = s.pick(s.split >= 0)
    q = p.w.shape[2]
    number = s.pick(s.split < q)
    return [*_split_numbers(p, number), *_split_labels(p, s.pick(s.split >= q))]


def _split_numbers(p: ChoicePrograms, s: ChoiceStates) -> list[ChoiceStates]:
    if not len(s):
        return []
    rows, j = np.arange(len(s)), s.split
    step, phase = p.step[j], p.phase[s.row, j]
    unit = np.where(step > 0, step, 1.0)
    below = np.where(step > 0, phase + unit * np.floor((s.at - phase) / unit + GRID), s.at)
    above = np.where(step > 0, phase + unit * np.ceil((s.at - phase) / unit - GRID), s.at)
    above = np.where((step > 0) & (above <= below), below + unit, above)
    between = (step > 0) & (below < 0) & (above > 0)  # home lies between two grid points
    below, above = np.where(between, 0.0, below), np.where(between & (s.at < 0), 0.0, above)
    below = np.where(between & (s.at < 0), phase + unit * np.floor((s.at - phase) / unit), below)
    idle = (step == 0) & ~s.moving[rows, j] & (p.charge[s.row, j] > EQUAL)
    idle &= (s.lower[rows, j] <= 0) & (s.upper[rows, j] >= 0)
    return [
        _tidy(p, _with(s, upper=(rows, j, np.where(idle, 0.0, below)), still=idle)),
        _tidy(p, _with(s, lower=(rows, j, np.where(idle, 0.0, above)), go=idle)),
        _tidy(p, _with(s, upper=(rows, j, np.zeros(len(s))), go=idle)).pick(
            idle & (s.lower[rows, j] < 0)
        ),
    ]


def _with(
    s: ChoiceStates,
    *,
    lower: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    upper: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    still: np.ndarray | None = None,
    go: np.ndarray | None = None,
) -> ChoiceStates:
    """Return the states with another end of the interval on which they are split."""
    low, high, moving = s.lower.copy(), s.upper.copy(), s.moving.copy()
    rows, j = np.arange(len(s)), s.split
    if lower is not None:
        low[rows, j] = np.maximum(low[rows, j], lower[2])
    if upper is not None:
        high[rows, j] = np.minimum(high[rows, j], upper[2])
    if still is not None:
        low[rows[still], j[still]] = 0.0
    if go is not None:
        moving[rows[go], j[go]] = True
    return replace(s, lower=low, upper=high, moving=moving)


def _split_labels(p: ChoicePrograms, s: ChoiceStates) -> list[ChoiceStates]:
    if not len(s):
        return []
    rows, label = np.arange(len(s)), s.split - p.w.shape[2]
    price, allowed = p.price[s.row, label], s.allowed[rows, label]
    chosen = price[rows, s.at.astype(np.int64)][:, None]
    cheaper = allowed & (price < chosen - EQUAL)
    dearer = allowed & ~cheaper
    lone = ~cheaper.any(1)  # all at the price of the chosen one or above: take it, or another
    only = np.zeros_like(allowed)
    only[rows, s.at.astype(np.int64)] = True
    first = np.where(lone[:, None], only & allowed, cheaper)
    second = np.where(lone[:, None], allowed & ~only, dearer)
    parts = []
    for mask in (first, second):
        whole = s.allowed.copy()
        whole[rows, label] = mask
        parts.append(replace(s, allowed=whole))
    return parts


def _children(
    p: ChoicePrograms, s: ChoiceStates, out: Chosen, again: np.ndarray
) -> list[ChoiceStates]:
    """Split states whose solution changes all that an earlier answer does: hold one of these."""
    parts = []
    known = again[again >= 0] if len(s) else again[:0]
    for i in range(len(s)):
        row, number = s.row[i], known[i]
        moved = np.abs(out.offset[row, number]) > EQUAL
        stays = p.price[row] == 0.0
        switched = ~np.take_along_axis(stays, out.option[row, number][:, None], 1)[:, 0]
        one = s.pick(np.array([i]))
        for j in np.flatnonzero(moved):
            low, high = one.lower.copy(), one.upper.copy()
            low[0, j], high[0, j] = max(low[0, j], 0.0), min(high[0, j], 0.0)
            if not one.moving[0, j]:
                parts.append(replace(one, lower=low, upper=high))
        for label in np.flatnonzero(switched):
            allowed = one.allowed.copy()
            allowed[0, label] &= stays[label]
            parts.append(replace(one, allowed=allowed))
    return parts


def _supersets(p: ChoicePrograms, out: Chosen, s: ChoiceStates) -> np.ndarray:
    """Return (s,) the answer whose changes a solution contains, -1 for none."""
    again = np.full(len(s), -1)
    moved = np.abs(s.offset) > EQUAL
    switched = _pick(p.price[s.row], s.option) > 0
    for number in range(out.cost.shape[1]):
        known = np.isfinite(out.cost[s.row, number]) & s.whole
        before = np.abs(np.nan_to_num(out.offset[s.row, number])) > EQUAL
        option = np.maximum(out.option[s.row, number], 0)
        labels = _pick(p.price[s.row], option) > 0
        inside = (moved | ~before).all(1) & (switched | ~labels).all(1)
        again = np.where(known & inside & (again < 0), number, again)
    return again


def _record(p: ChoicePrograms, out: Chosen, found: np.ndarray, s: ChoiceStates) -> None:
    """Keep whole states as the next answers of their rows; there is at most one per row."""
    row, number = s.row, found[s.row]
    out.offset[row, number], out.option[row, number] = s.offset, s.option
    out.cost[row, number] = p.cost(row, s.offset, s.option)
    first = number == 0
    out.bound[row[first]] = np.fmin(out.bound[row[first]], s.floor[first])
    found[row] += 1


def _lowest_of_rows(s: ChoiceStates) -> np.ndarray:
    """Return the position of the state with the lowest floor of each row."""
    order = np.lexsort((~s.whole, s.floor, s.row))
    first = np.ones(len(s), dtype=bool)
    first[1:] = s.row[order][1:] != s.row[order][:-1]
    return order[first]


def _broken_rule(p: ChoicePrograms, row: np.ndarray, option: np.ndarray) -> np.ndarray:
    """Return (s,) the first rule that options break, -1 for none."""
    out = np.full(len(row), -1)
    for r, (a, in_a, b, in_b) in enumerate(p.rules):
        broken = ~in_a[row, option[:, a]] & ~in_b[row, option[:, b]]
        out = np.where(broken & (out < 0), r, out)
    return out


def _meets(
    p: ChoicePrograms, row: np.ndarray, offset: np.ndarray, option: np.ndarray
) -> np.ndarray:
    gap = p.gap[row]
    short = (gap - p.brought(row, offset, option) > MET * (1 + np.abs(gap))).any(1)
    return np.asarray(~short & (_broken_rule(p, row, option) < 0))


def _on_grid(
    p: ChoicePrograms, row: np.ndarray, offset: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Round offsets (s, q) away from 0 to their grids, inside their intervals."""
    unit, phase = np.where(p.step > 0, p.step, 1.0), p.phase[row]
    up = phase + unit * np.ceil((offset - phase) / unit - GRID)
    down = phase + unit * np.floor((offset - phase) / unit + GRID)
    away = np.where(offset > 0, np.minimum(up, upper), np.maximum(down, lower))
    return np.where((p.step > 0) & (np.abs(offset) > EQUAL), away, offset)


def _pick(table: np.ndarray, option: np.ndarray) -> np.ndarray:
    """Return entries (s, g) of a table (s, g, k)."""
    return np.asarray(np.take_along_axis(table, option[..., None], 2)[..., 0])
