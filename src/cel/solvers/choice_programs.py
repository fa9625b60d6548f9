"""Programs of choices, the parts into which a search cuts them, and what choices bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

__all__ = [
    "ChoicePrograms",
    "ChoiceStates",
    "broken_rule",
    "meets",
    "on_grid",
    "pick_option",
    "tidy",
]

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
        return np.asarray(total + pick_option(self.price[rows], option).sum(1))

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


def tidy(p: ChoicePrograms, s: ChoiceStates) -> ChoiceStates:
    """Move the ends of intervals to grid points (0 counts as one)."""
    step, phase = p.step, p.phase[s.row]
    grid = step > 0
    unit = np.where(grid, step, 1.0)
    up = phase + unit * np.ceil((s.lower - phase) / unit - GRID)
    down = phase + unit * np.floor((s.upper - phase) / unit + GRID)
    lower = np.where(grid, np.where((s.lower <= 0) & (up > 0), 0.0, up), s.lower)
    upper = np.where(grid, np.where((s.upper >= 0) & (down < 0), 0.0, down), s.upper)
    return replace(s, lower=lower, upper=upper)


def broken_rule(p: ChoicePrograms, row: np.ndarray, option: np.ndarray) -> np.ndarray:
    """Return (s,) the first rule that options break, -1 for none."""
    out = np.full(len(row), -1)
    for r, (a, in_a, b, in_b) in enumerate(p.rules):
        broken = ~in_a[row, option[:, a]] & ~in_b[row, option[:, b]]
        out = np.where(broken & (out < 0), r, out)
    return out


def meets(
    p: ChoicePrograms, row: np.ndarray, offset: np.ndarray, option: np.ndarray
) -> np.ndarray:
    """Tell (s,) whether choices meet all demands and break no rule."""
    gap = p.gap[row]
    short = (gap - p.brought(row, offset, option) > MET * (1 + np.abs(gap))).any(1)
    return np.asarray(~short & (broken_rule(p, row, option) < 0))


def on_grid(
    p: ChoicePrograms, row: np.ndarray, offset: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Round offsets (s, q) away from 0 to their grids, inside their intervals."""
    unit, phase = np.where(p.step > 0, p.step, 1.0), p.phase[row]
    up = phase + unit * np.ceil((offset - phase) / unit - GRID)
    down = phase + unit * np.floor((offset - phase) / unit + GRID)
    away = np.where(offset > 0, np.minimum(up, upper), np.maximum(down, lower))
    return np.where((p.step > 0) & (np.abs(offset) > EQUAL), away, offset)


def pick_option(table: np.ndarray, option: np.ndarray) -> np.ndarray:
    """Return entries (s, g) of a table (s, g, k)."""
    return np.asarray(np.take_along_axis(table, option[..., None], 2)[..., 0])
