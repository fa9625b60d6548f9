"""An imitation for comparing with print: the first layer of a network taken for all of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cel.cf_methods.local_methods.artelt.programs import Setting, best_per_row, linear_programs
from cel.solvers.admm import SOLVED, Programs, Solution

__all__ = ["answers_of_first_layer"]

ROWS = 32  # solved together: every unit of the layer is a half-space of every program


def answers_of_first_layer(
    setting: Setting,
    rows: Tensor,
    layer: tuple[Tensor, Tensor],
    solve: Callable[[Programs], Solution],
) -> Tensor:
    """Return (n, d) the cheapest solutions of the given rows, NaN where there is none.

    The printed tables handed the weights (units, d) of the first layer to the programs, as if its
    units were the classes of a linear model. The unit with the number of the target class must
    win against all others; nobody asks the network.

    Args:
        setting: what the programs share.
        rows: (a,) numbers of the rows.
        layer: weights (units, d) and biases (units,) of the first layer.
        solve: solves programs.
    """
    found = torch.full_like(setting.query.x, torch.nan)
    for part in torch.split(rows, ROWS):
        source, which = setting.pairs(part)
        if not len(source) or setting.query.budget.expired:
            break
        solution = solve(linear_programs(setting, source, which, *layer))
        done = (solution.status == SOLVED).nonzero()[:, 0]
        points = setting.rows_with(solution.x[done], source[done])
        cost = setting.theta(points, source[done])
        best = best_per_row(points, cost, source[done], len(found))
        found = torch.where(best.isnan(), found, best)
    return found
