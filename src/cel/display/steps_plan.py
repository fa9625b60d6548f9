"""The changes of an answer in an order in which every step is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from cel.display.comparison_facts import Facts, asked
from cel.errors import MissingInputError
from cel.preprocessing import companions
from cel.preprocessing.table_cells import put_cells
from cel.protocols import Task
from cel.space.region import Region

if TYPE_CHECKING:
    from cel.result import ExplanationResult

__all__ = ["step_plan"]

MOST_EXACT = 7  # changes of a row for which all orders are looked at
POINTS = 50_000  # that a model is asked about at once


def step_plan(result: ExplanationResult) -> pd.DataFrame:
    """Return one line per change; see `ExplanationResult.plan`."""
    if result.context is None or result.context.model is None:
        raise MissingInputError(
            "a plan needs the model, which files of results do not hold; make it from the result "
            "that cel.explain returned"
        )
    facts = Facts.of(result, np.flatnonzero(result.found))
    walks = _Walks(facts)
    counts = facts.moved.sum(1)
    orders: list[list[list[int]]] = [[] for _ in range(len(facts))]
    for k in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == k)
        found = walks.best(rows) if k <= MOST_EXACT else walks.greedy(rows)
        for row, order in zip(rows, found, strict=True):
            orders[row] = order
    return _table(facts, walks, orders)


@dataclass(frozen=True, eq=False)
class _Walks:
    """Ways from rows to their answers, one column or a few at a time."""

    facts: Facts

    def judge(self, rows: np.ndarray, done: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (allowed (m,), what the model says (m,)) of rows half way.

        Args:
            rows: (m,) positions among the facts; numbers may repeat.
            done: (m, p) bool, columns that have changed already.
        """
        parts = [
            self._judge(rows[i : i + POINTS], done[i : i + POINTS])
            for i in range(0, len(rows), POINTS)
        ]
        allowed, said = zip(*parts, strict=True)
        return np.concatenate(allowed), np.concatenate(said)

    def _judge(self, rows: np.ndarray, done: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        facts, result = self.facts, self.facts.result
        own = facts.rows[rows]
        moved = done[:, self._owner] & (self._owner >= 0)
        x = np.where(moved, result.x_cfs[own], result.x_origs[own]).astype(np.float32)
        region = Region.around(result.space, torch.as_tensor(result.x_origs[own]))
        allowed = region.contains(torch.as_tensor(x)).numpy()
        before, after = facts.before.iloc[rows], facts.after.iloc[rows]
        columns = {str(n): before[n] for n in before.columns}
        for j in np.flatnonzero(done.any(0)):
            name = facts.names[j]
            columns[name] = put_cells(before[name], done[:, j], after[name].array)
        table = pd.concat([c.set_axis(before.index) for c in columns.values()], axis=1)
        table.columns = before.columns
        if result.given is not None:
            allowed &= result.given.keeps(table, own)
        return allowed, asked(result, table, x, own)

    @property
    def _owner(self) -> np.ndarray:
        """(d,) the column that each code belongs to, -1 for none."""
        space = self.facts.result.space
        out = np.full(space.width, -1)
        for j, name in enumerate(self.facts.names):
            for part in companions(space, name):
                out[list(space[part].columns)] = j
        return out

    def goodness(self, rows: np.ndarray, said: np.ndarray) -> np.ndarray:
        """Return what is better the higher it is: probability, or nearness to the wanted value."""
        result = self.facts.result
        if result.task is Task.CLASSIFICATION:
            return said
        wanted = result.y_cf_targets[self.facts.rows[rows]]
        if result.target is not None and result.target.lower:
            wanted = result.target.decode(wanted)
        away = np.abs(said - wanted[:, 0])
        return np.asarray(-away / (away.max() or 1.0))

    # -- few changes: all orders -------------------------------------------------------------

    def best(self, rows: np.ndarray) -> list[list[list[int]]]:
        """Return the best order of each row; all rows have the same number k of changes.

        Sets of changes are the 2^k numbers whose bits say what is done. The best way to a set is
        the best way to one of its subsets and a last step; steps of several changes at once are
        taken only where no single one is allowed. Ways are compared by how good their steps are
        on average.
        """
        own = np.stack([np.flatnonzero(self.facts.moved[r]) for r in rows])  # (m, k)
        m, k = own.shape
        sets = np.arange(1, 2**k)
        bits = (sets[:, None] >> np.arange(k)) & 1 > 0  # (2^k - 1, k)
        done = np.zeros((m, len(sets), self.facts.moved.shape[1]), dtype=bool)
        np.put_along_axis(
            done, np.broadcast_to(own[:, None], (m, len(sets), k)).copy(), bits[None], axis=2
        )
        flat = np.repeat(rows, len(sets))
        allowed, said = self.judge(flat, done.reshape(len(flat), -1))
        good = self.goodness(flat, said).reshape(m, -1)
        allowed = allowed.reshape(m, -1)
        allowed[:, -1] = True  # the answer itself was verified
        value = np.full((m, 2**k), -np.inf)
        value[:, 0] = 0.0
        came = np.zeros((m, 2**k), dtype=np.int64)
        for s in sets:
            part = (s - 1) & s
            while True:  # over all proper subsets of s
                size = int(s ^ part).bit_count()
                new = value[:, part] - 1000.0 * (size - 1) + size * good[:, s - 1]
                new = np.where(allowed[:, s - 1], new, -np.inf)
                better = new > value[:, s]
                value[better, s], came[better, s] = new[better], part
                if part == 0:
                    break
                part = (part - 1) & s
        return [_back(came[i], own[i]) for i in range(m)]

    # -- many changes: the best next step ----------------------------------------------------

    def greedy(self, rows: np.ndarray) -> list[list[list[int]]]:
        """Return orders that take the best allowed change next, all rest at once if none is."""
        left = self.facts.moved[rows].copy()
        done = np.zeros_like(left)
        orders: list[list[list[int]]] = [[] for _ in rows]
        while left.any():
            row, column = np.nonzero(left)
            tried = done[row]
            tried[np.arange(len(row)), column] = True
            allowed, said = self.judge(rows[row], tried)
            score = np.full(left.shape, -np.inf)
            good = self.goodness(rows[row], said)
            score[row, column] = np.where(allowed, good, -np.inf)
            for i in np.flatnonzero(left.any(1)):
                stuck = not np.isfinite(score[i]).any()
                take = np.flatnonzero(left[i]) if stuck else np.array([int(score[i].argmax())])
                orders[i].append([int(j) for j in take])
                done[i, take], left[i, take] = True, False
        return orders


def _back(came: np.ndarray, own: np.ndarray) -> list[list[int]]:
    """Return the steps to the full set, each as columns."""
    steps: list[list[int]] = []
    now = len(came) - 1
    while now:
        before = int(came[now])
        steps.append([int(own[b]) for b in range(len(own)) if (now ^ before) >> b & 1])
        now = before
    return steps[::-1]


def _table(facts: Facts, walks: _Walks, orders: list[list[list[int]]]) -> pd.DataFrame:
    """Return the orders as lines: row, step, feature, from, to, and what the model says then."""
    width = facts.moved.shape[1]
    lines, states = [], []
    for row, order in enumerate(orders):
        done = np.zeros(width, dtype=bool)
        for step, chosen in enumerate(order, 1):
            done = done.copy()
            done[chosen] = True
            lines += [(row, step, j) for j in chosen]
            states += [done] * len(chosen)
    rows, steps, columns = np.array(lines, dtype=np.int64).reshape(-1, 3).T
    said = walks.judge(rows, np.stack(states))[1] if lines else np.zeros(0)
    before, after = np.empty(len(rows), dtype=object), np.empty(len(rows), dtype=object)
    for j, (had, has) in facts.changed.items():
        here = columns == j
        before[here], after[here] = had[rows[here]], has[rows[here]]
    classification = facts.result.task is Task.CLASSIFICATION
    return pd.DataFrame(
        {
            "row": facts.labels[rows],
            "step": steps,
            "feature": np.array(facts.names, dtype=object)[columns],
            "from": before,
            "to": after,
            "probability" if classification else "prediction": said,
        }
    )
