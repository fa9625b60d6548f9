"""What a row can change at all: every column to some usual values, or to each category."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cel.preprocessing.imputer import FLAG
from cel.search.beam import SingleMoves
from cel.space import FeatureSpace

__all__ = ["single_moves"]

VALUES = 8  # of a number that single moves go to


def single_moves(
    space: FeatureSpace, train: Tensor, dummies: tuple[tuple[str, ...], ...] = ()
) -> SingleMoves:
    """Return what a row can change: every column to some usual values, or to each category.

    A number behind a gap is set together with the flag of the gap; dummies of a group together.
    """
    units = space.change_units
    values, columns, unit = [], [], []

    def add(at: list[int], what: list[float], number: int) -> None:
        row, mask = torch.zeros(space.width), torch.zeros(space.width, dtype=torch.bool)
        row[at], mask[at] = torch.tensor(what, dtype=row.dtype), True
        values.append(row)
        columns.append(mask)
        unit.append(number)

    together = {name for group in dummies for name in group}
    for i, f in enumerate(space):
        own = f.name.removesuffix(FLAG)
        if not f.mutable or f.name in together or (own != f.name and own in space.names):
            continue
        if f.one_hot:
            for k, open_ in enumerate(f.allowed_mask):
                if open_:
                    one = [float(j == k) for j in range(len(f.columns))]
                    add(list(f.columns), one, int(units[i]))
            continue
        flag = space[f.name + FLAG] if f.name + FLAG in space.names else None
        also, filled = ([], []) if flag is None else (list(flag.columns), [1.0, 0.0])
        for value in _usual(train[:, f.columns[0]], f.lower, f.upper):
            add([f.columns[0], *also], [value, *filled], int(units[i]))
    for group in dummies:
        at = [space[name].columns[0] for name in group]
        low, high = [space[g].lower for g in group], [space[g].upper for g in group]
        for k in range(len(group)):
            one = [high[j] if j == k else low[j] for j in range(len(group))]
            add(at, one, int(units[space.names.index(group[0])]))
    if not values:
        empty = torch.zeros(0, space.width)
        return SingleMoves(empty, empty.bool(), torch.zeros(0, dtype=torch.long))
    move = SingleMoves(torch.stack(values), torch.stack(columns), torch.tensor(unit))
    return SingleMoves(
        move.value.to(train), move.columns.to(train.device), move.unit.to(train.device)
    )


def _usual(column: Tensor, lower: float, upper: float) -> list[float]:
    """Return some values of a column that lie inside its bounds, and the bounds."""
    known = torch.unique(column[column.isfinite()])
    known = known[(known >= lower) & (known <= upper)]
    if len(known) > VALUES:
        known = known[torch.linspace(0, len(known) - 1, VALUES).round().long()]
    ends = [v for v in (lower, upper) if np.isfinite(v)]
    return sorted({*known.tolist(), *ends})
