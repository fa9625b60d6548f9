"""Which moves between cells keep implications and linear relations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cel.models.trees.axes import Axes
from cel.space.constraints import Implication, LinearRelation
from cel.space.region import Region

__all__ = ["Legal"]


@dataclass(frozen=True, eq=False)
class Legal:
    """The constraints between features, spelled in cells; what a row breaks itself is excused.

    Attributes:
        owner: (C,) axis of each cell.
        implications: (axis, cells (C,) that trigger, other axis, cells (C,) that satisfy).
        excused: (n, i) implications that the rows break themselves.
        weights: (r, A) coefficients of the relations.
        bounds: (n, r) their bounds, widened where the rows break them, rounding included.
        loose: (r,) bool, relations with a continuous feature: a cell has more than one value.
    """

    owner: np.ndarray
    implications: tuple[tuple[int, np.ndarray, int, np.ndarray], ...]
    excused: np.ndarray
    weights: np.ndarray
    bounds: np.ndarray
    loose: np.ndarray

    @classmethod
    def of(cls, axes: Axes, region: Region) -> Legal:
        """Read the constraints of the space."""
        space = axes.space
        rules = [c for c in space.constraints if isinstance(c, Implication)]
        implications = tuple(
            (
                space.names.index(r.feature), _cells(axes, r.feature, r.values),
                space.names.index(r.then_feature), _cells(axes, r.then_feature, r.then_values),
            )
            for r in rules
        )  # fmt: skip
        home = axes.cells(region.origin.cpu().numpy())
        excused = np.zeros((len(home), len(rules)), dtype=bool)
        for i, (a, when, b, then) in enumerate(implications):
            excused[:, i] = when[home[:, a]] & ~then[home[:, b]]
        relations = [c for c in space.constraints if isinstance(c, LinearRelation)]
        weights = np.zeros((len(relations), len(space)))
        for i, relation in enumerate(relations):
            for name, coefficient in relation.terms:
                weights[i, space.names.index(name)] += coefficient
        first = [f.columns[0] for f in space]
        left = region.origin.cpu().double().numpy()[:, first] @ weights.T
        tolerance = region.layout.tolerance.cpu().double().numpy()[first]
        bounds = np.maximum(np.array([r.bound for r in relations]), left)
        slack = 0.5 * np.abs(weights) @ tolerance  # half of what verification allows
        single = np.array([len(axes.edges[a]) > 0 and axes.levels[a] for a in range(len(space))])
        loose = np.asarray((np.abs(weights[:, ~single]) > 0).any(1))
        return cls(axes.owner, implications, excused, weights, bounds + slack, loose)

    def __bool__(self) -> bool:
        return bool(self.implications) or bool(len(self.weights))

    def select(self, rows: np.ndarray) -> Legal:
        """Return the rules of some rows."""
        return Legal(
            self.owner, self.implications, self.excused[rows], self.weights, self.bounds[rows],
            self.loose,
        )  # fmt: skip

    def moves(self, cells: np.ndarray, number: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Tell which single moves (R, C) of points (R, A) end at a legal point."""
        out = np.ones((len(cells), len(self.owner)), dtype=bool)
        for i, (a, when, b, then) in enumerate(self.implications):
            on, met = when[cells[:, a]], then[cells[:, b]]
            broken = np.repeat((on & ~met)[:, None], len(self.owner), 1)
            here = self.owner == a
            broken[:, here] = when[here] & ~met[:, None]
            here = self.owner == b
            broken[:, here] = on[:, None] & ~then[here]
            out &= ~broken | self.excused[rows, i][:, None]
        if len(self.weights):
            now = np.take_along_axis(number, cells, 1).astype(np.float64)  # (R, A)
            change = number - now[:, self.owner]
            for i, w in enumerate(self.weights):
                left = (now @ w)[:, None] + change * w[self.owner]
                out &= left <= self.bounds[rows, i][:, None]
        return out

    def strike(self, boxes: np.ndarray, number: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return boxes (R, C) without cells that an implication or a tight relation excludes."""
        out = boxes
        for i, (a, when, b, then) in enumerate(self.implications):
            bound = ~self.excused[rows, i]
            own, other = self.owner == a, self.owner == b
            must = bound & ~(out & own & ~when).any(1)
            out = out & ~(must[:, None] & other & ~then)
            cannot = bound & ~(out & other & then).any(1)
            out = out & ~(cannot[:, None] & own & when)
        begin = np.flatnonzero(np.diff(self.owner, prepend=-1))
        for r in np.flatnonzero(~self.loose):
            part = number * self.weights[r][self.owner]  # (R, C) what each cell adds
            least = np.minimum.reduceat(np.where(out, part, np.inf), begin, axis=1)
            least = np.where(np.isfinite(least), least, 0.0)  # a box without cells is dead anyway
            rest = least.sum(1)[:, None] - least
            left = self.bounds[rows, r][:, None] - rest
            out = out & ((self.weights[r] == 0)[self.owner] | (part <= left[:, self.owner]))
        return out

    def blame(self, cells: np.ndarray, number: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return (R, A) bool: the axes of constraints that points (R, A) break."""
        out = np.zeros(cells.shape, dtype=bool)
        for i, (a, when, b, then) in enumerate(self.implications):
            broken = when[cells[:, a]] & ~then[cells[:, b]] & ~self.excused[rows, i]
            out[:, [a, b]] |= broken[:, None]
        if len(self.weights):
            now = np.take_along_axis(number, cells, 1).astype(np.float64)
            broken = now @ self.weights.T > self.bounds[rows]
            out |= broken @ (self.weights != 0)
        return out

    def might(self, cells: np.ndarray, number: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Tell which points (R, A) other values of their cells might make legal."""
        if not self.loose.any():
            return self.holds(cells, number, rows)
        strict = replace(
            self, weights=self.weights[~self.loose], bounds=self.bounds[:, ~self.loose],
            loose=self.loose[~self.loose],
        )  # fmt: skip
        return strict.holds(cells, number, rows)

    def holds(self, cells: np.ndarray, number: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Tell which points (R, A) are legal; `number` (R, C) are the values of their cells."""
        out = np.ones(len(cells), dtype=bool)
        for i, (a, when, b, then) in enumerate(self.implications):
            broken = when[cells[:, a]] & ~then[cells[:, b]]
            out &= ~broken | self.excused[rows, i]
        if len(self.weights):
            now = np.take_along_axis(number, cells, 1).astype(np.float64)
            out &= (now @ self.weights.T <= self.bounds[rows]).all(1)
        return out


def _cells(axes: Axes, name: str, values: tuple[Any, ...]) -> np.ndarray:
    """Return (C,) bool, the cells that stand for some categories of a feature."""
    a = axes.space.names.index(name)
    ranks = [axes.space[name].categories.index(v) for v in values]
    out = np.zeros(axes.count, dtype=bool)
    out[axes.offset[a] + np.array(ranks, dtype=np.int64)] = True
    return out
