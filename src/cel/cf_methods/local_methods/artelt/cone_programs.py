"""A second opinion on convex programs: Clarabel, one program at a time."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cel.errors import MissingDependencyError
from cel.search.budget import Budget
from cel.solvers.admm import INFEASIBLE, SOLVED, UNDECIDED, Programs, Solution

__all__ = ["exact_available", "solve_exactly"]

_FAR = 1e6  # bounds beyond this are none
_KNOWN = {"Solved": SOLVED, "PrimalInfeasible": INFEASIBLE}


def exact_available() -> bool:
    """Whether Clarabel is installed."""
    return importlib.util.find_spec("clarabel") is not None


def solve_exactly(programs: Programs, budget: Budget | None = None) -> Solution:
    """Solve programs by Clarabel; its workspace is made once.

    Only solutions to full accuracy count as solved, and proofs to full accuracy as proved.
    """
    if not exact_available():
        raise MissingDependencyError("Clarabel", "convex")
    x = programs.origin.clone()
    status = torch.zeros(len(programs), dtype=torch.int8)
    if not len(programs):
        return Solution(x, status.to(x.device))
    cones = _ConeForm.of(programs)
    at = slice(cones.helpers, cones.helpers + x.shape[1])
    solver = None
    for i in range(len(programs)):
        if budget is not None and budget.expired:
            break
        solver = cones.loaded(i, solver)
        found = solver.solve()
        status[i] = _KNOWN.get(str(found.status), UNDECIDED)
        if status[i] == SOLVED:
            x[i] = torch.as_tensor(np.array(found.x)[at])
    return Solution(x, status.to(x.device))


@dataclass(frozen=True, eq=False)
class _ConeForm:
    """p programs `min z'Pz / 2 + q.z` subject to `b - A z` in a product of cones.

    The variables z are one helper per column, the point x, and the length s of what must fit into
    the ellipsoid. Helpers of L1 bound `|x - origin|` from above, helpers of L2 equal
    `x - origin`. Rows of A: helpers, box, s against the radius, half-spaces, and the cone
    `|root x - centre| <= s`.

    Attributes:
        quadratic: P, the same for all programs.
        linear: (v,) q, the same for all programs.
        indices: rows of the entries of A, column by column, and
        pointers: (v + 1,) where columns begin.
        entries: (p, e) the entries.
        bounds: (p, m) b.
        cones: of Clarabel.
        helpers: how many variables come before x.
    """

    quadratic: Any
    linear: np.ndarray
    indices: np.ndarray
    pointers: np.ndarray
    entries: np.ndarray
    bounds: np.ndarray
    cones: list[Any]
    helpers: int

    @classmethod
    def of(cls, programs: Programs) -> _ConeForm:
        """Write programs as cone programs."""
        import clarabel
        from scipy.sparse import csc_array, diags_array

        (p, d), h = programs.origin.shape, programs.normals.shape[1]
        ball, which = programs.ellipsoids, programs.which
        roots = [(v * e.sqrt()).T for v, e in zip(ball.vectors, ball.precision, strict=True)]
        centre = torch.stack([r @ m for r, m in zip(roots, ball.mean, strict=True)])[which]
        root, radius = torch.stack(roots)[which], ball.radius[which].clamp(min=0).sqrt()
        lower, upper = programs.lower.clamp(min=-_FAR), programs.upper.clamp(max=_FAR)
        absolute = programs.norm == "l1"
        own = [1.0, -1.0] if absolute else [1.0]
        one = programs.origin.new_ones(p, d, 1)
        signs = torch.cat([v * one for v in (*own, -1.0, 1.0)], 2)
        columns = torch.cat([signs, programs.normals.mT, -root.mT], 2)  # (p, d, entries)
        helpers = -one.expand(p, d, len(own))
        last = torch.cat([one[:, 0], -one[:, 0]], 1)
        entries = torch.cat([helpers.flatten(1), columns.flatten(1), last], 1)
        home = [programs.origin, -programs.origin] if absolute else [programs.origin]
        sides = [*home, -lower, upper, radius[:, None], programs.offsets]
        bounds = torch.cat([*sides, torch.zeros_like(radius)[:, None], -centre], 1)
        rest = clarabel.NonnegativeConeT((4 if absolute else 2) * d + 1 + h)
        cones = [rest] if absolute else [clarabel.ZeroConeT(d), rest]
        linear = np.zeros(2 * d + 1)
        quadratic = csc_array((2 * d + 1, 2 * d + 1))
        if absolute:
            linear[:d] = programs.weight.cpu().numpy()
        else:
            quadratic = diags_array(np.repeat([1.0, 0.0], [d, d + 1]), format="csc")
            quadratic.eliminate_zeros()
        indices, pointers = _pattern(d, h, len(own))
        values, ends = (t.detach().cpu().numpy() for t in (entries, bounds))
        cones.append(clarabel.SecondOrderConeT(d + 1))
        return cls(quadratic, linear, indices, pointers, values, ends, cones, d)

    def loaded(self, i: int, solver: Any) -> Any:
        """Return Clarabel's solver with a program: a solver that is there is filled anew."""
        import clarabel
        from scipy.sparse import csc_array

        shape = (self.bounds.shape[1], len(self.linear))
        matrix = csc_array((self.entries[i], self.indices, self.pointers), shape=shape)
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        given = self.quadratic, self.linear, matrix, self.bounds[i]
        if solver is None or not solver.is_data_update_allowed():
            return clarabel.DefaultSolver(*given, self.cones, settings)
        solver.update(**dict(zip("PqAb", given, strict=True)), settings=settings)
        return solver


def _pattern(d: int, h: int, own: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (indices, pointers) of A, for d columns, h half-spaces, `own` rows per helper."""
    begin = np.arange(own + 2) * d  # of the rows of helpers and box
    radius = (own + 2) * d
    planes, cone = radius + 1 + np.arange(h), radius + 1 + h + np.arange(d + 1)
    each = np.arange(d)[:, None]
    shared = np.tile(np.concatenate([planes, cone[1:]]), (d, 1))
    helpers, columns = begin[:own] + each, np.concatenate([begin + each, shared], 1)
    parts = [helpers, columns, np.array([[radius, cone[0]]])]
    sizes = [len(row) for part in parts for row in part]
    indices = np.concatenate([part.ravel() for part in parts])
    return indices, np.concatenate([[0], np.cumsum(sizes)])
