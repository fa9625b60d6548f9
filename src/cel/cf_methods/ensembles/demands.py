"""What the trees must say about each row, as linear forms of their sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cel.cf_methods.query import MARGIN, Query
from cel.errors import UnsupportedError
from cel.models.trees import TreeView, agrees, probe_rows
from cel.protocols import Task
from cel.search.leaf_bits import LeafBits
from cel.search.profiles import Demand

__all__ = ["DemandGroup", "groups", "readable_rows"]


@dataclass(frozen=True, eq=False)
class DemandGroup:
    """Rows of a query that want the same thing.

    Attributes:
        rows: (m,) their numbers in the query.
        values: (H, L) leaf values of the channels.
        channel: (Q,) channel of each form.
        sign: (Q,) +1 or -1.
        const: (m, Q) constants: with them a form is >= 0 where the demand is met for certain.
        slack: (Q,) how far below zero a form must be before the demand is certainly not met.
    """

    rows: np.ndarray
    values: np.ndarray
    channel: np.ndarray
    sign: np.ndarray
    const: np.ndarray
    slack: np.ndarray

    def only(self, keep: np.ndarray) -> DemandGroup:
        """Return the rows that a mask (m,) keeps, or those with some numbers."""
        return replace(self, rows=self.rows[keep], const=self.const[keep])

    def demand(self, bits: LeafBits) -> Demand:
        """Return the demand with the leaf values in the order of `bits`."""
        tables = np.stack([bits.table(v) for v in self.values])
        return Demand(tables, self.channel, self.sign, self.const)


def groups(query: Query, view: TreeView) -> Iterator[DemandGroup]:
    """Yield the rows of a query by what they want."""
    if query.model.task is Task.REGRESSION:
        yield _values(query, view)
        return
    target = query.target.cpu().numpy()
    for t in np.unique(target):
        weights, const = view.forms(int(t), MARGIN)
        rows = np.flatnonzero(target == t)
        values = weights @ view.value.T
        base = weights @ view.base + const
        # Sums are at most this large; `rounding` is what the library's 32-bit sums may do.
        size = 1 + np.abs(base) + _largest(view, values)
        slack = 1e-9 * size + view.rounding
        if view.absent[t]:
            base = base - np.inf
        yield DemandGroup(
            rows, values, np.arange(len(values)), np.ones(len(values)),
            np.repeat((base - slack)[None], len(rows), 0), 2 * slack,
        )  # fmt: skip


def _values(query: Query, view: TreeView) -> DemandGroup:
    if view.value.shape[1] != 1:
        raise UnsupportedError(f"trees with {view.value.shape[1]} outputs: one is supported")
    target = query.target.cpu().double().numpy().reshape(len(query), -1)[:, 0]
    tolerance, base = query.model.tolerance, view.base[0]
    size = 1 + np.abs(base) + _largest(view, view.value.T)
    slack = np.repeat(1e-9 * size + view.rounding, 2)
    const = np.stack([base - target + tolerance - MARGIN, target + tolerance - MARGIN - base], 1)
    return DemandGroup(
        np.arange(len(target)), view.value.T, np.array([0, 0]), np.array([1.0, -1.0]),
        const - slack, 2 * slack,
    )  # fmt: skip


def _largest(view: TreeView, values: np.ndarray) -> np.ndarray:
    """Return (H,) sums over trees of the largest |leaf value|."""
    first = np.searchsorted(view.boxes.tree, np.arange(view.trees))
    return np.asarray(np.maximum.reduceat(np.abs(values), first, axis=1).sum(1))


def readable_rows(query: Query, view: TreeView) -> np.ndarray:
    """Tell which rows the trees score as the model does; a model that was changed is refused.

    Single rows may differ where a table holds what codes cannot: missing numbers, or values that
    lie on a threshold to the last digit. They are not searched.
    """
    model = query.model.model
    good = agrees(view, model, query.x.detach().cpu().numpy())
    query.budget.spend(len(query))
    if not good.all():
        as_read = model.bound(model._decoded) if hasattr(model, "bound") else model
        if not agrees(view, as_read, probe_rows(view)).all():
            raise UnsupportedError(
                f"the model scores {int((~good).sum())} of {len(good)} rows differently from the "
                "trees that were read from it: it was changed after wrapping; wrap it again"
            )
    return good
