"""What can be proved about rows from the leaves that their feasible sets meet."""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np

from cel.cf_methods.ensembles.cell_table import CellTable
from cel.cf_methods.ensembles.demands import DemandGroup
from cel.models.trees import TreeView
from cel.search.branch import BoxProblem
from cel.space import FeatureSpace
from cel.space.serialize import space_to_dict

__all__ = ["box_problem", "proof_scope"]


def box_problem(view: TreeView, group: DemandGroup, table: CellTable) -> BoxProblem:
    """Return the rows of a group as boxes of cells; `table` has the rows of the group."""
    bits, tables = [], []
    for h, sign in zip(group.channel, group.sign, strict=True):
        value = sign * group.values[h]
        one = view.ranked_bits(value)
        bits.append(one)
        tables.append(one.table(value))
    legal = table.legal

    def check(cells: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        number = table.number[rows]
        return legal.holds(cells, number, rows), legal.might(cells, number, rows)

    def strike(boxes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return legal.strike(boxes, table.number[rows], rows)

    def blame(cells: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return legal.blame(cells, table.number[rows], rows)

    return BoxProblem(
        view.axes.offset, table.price, tuple(bits), tuple(tables), group.const, group.slack,
        legal=check if legal else None, strike=strike if legal else None,
        blame=blame if legal else None,
    )  # fmt: skip


def proof_scope(view: TreeView, space: FeatureSpace | None = None) -> dict[str, str]:
    """Return fingerprints of what a proof speaks of: the space and the trees.

    Args:
        view: the trees.
        space: the features with the limits that were searched; by default those of the model.
    """
    told = json.dumps(space_to_dict(space or view.axes.space), sort_keys=True, default=str)
    trees = sha256()
    for part in (view.boxes.tree, view.boxes.low, view.boxes.high, view.boxes.mask, view.value,
                 view.base, *view.axes.edges):  # fmt: skip
        trees.update(np.ascontiguousarray(part).tobytes())
    return {
        "space": sha256(told.encode()).hexdigest()[:16],
        "trees": trees.hexdigest()[:16],
    }
