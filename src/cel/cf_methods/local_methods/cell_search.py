"""Coordinate search over the cells of a tree ensemble."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.ensembles.answers import verified
from cel.cf_methods.ensembles.cell_table import CellTable
from cel.cf_methods.ensembles.demands import DemandGroup, groups, readable_rows
from cel.cf_methods.ensembles.donors import donor_points
from cel.cf_methods.ensembles.last_boxes import impossible, settle
from cel.cf_methods.ensembles.proofs import box_problem, proof_scope
from cel.cf_methods.query import Answer, Query, TrainRows, proof_of
from cel.cf_methods.view import ModelView
from cel.models.trees import TreeView
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support, Task
from cel.search.branch import SearchProof
from cel.search.coordinate import Incumbents, coordinate_search
from cel.space import FeatureSpace
from cel.space.distances import mad_scale

__all__ = ["CellSearch"]


class CellSearch(LocalMixin, BaseCounterfactualMethod):
    """Walk from cell to cell of a tree ensemble until the wanted outcome is reached, then save.

    Between two thresholds a tree model is constant, so an answer is a choice of one cell per
    feature. The cost is `sum(weight |x' - x| / MAD)` over numbers, `weight` per changed category
    and `beta` per changed feature; a cell costs what its nearest feasible value costs. Scores of
    all cells of all features come from one pass over the trees. Greedy walks from the best first
    moves give answers; these are lowered (every changed feature to its cheapest cell that still
    suffices) and exchanged (one change undone, another one made) until nothing improves. A row
    for which even the best leaves that its feasible set meets do not suffice is not walked.

    Rows that no walk answers get a branch and bound over boxes of cells, and between its first
    boxes and the others longer walks and walks from training rows of the wanted outcome. It ends
    with the cheapest answer, which is then proved to be that, or with the proof that there is
    none; only a row whose boxes or time run out stays open.

    Args:
        model: a wrapped tree ensemble, see `cel.models.trees`.
        beta: price of changing a feature at all.
        starts: first moves that are followed.
        steps: longest walk.
        total_CFs: answers per row; each changes another set of features.
        donors: training rows that an unanswered row may start from.
        nodes: most boxes of a row that no walk answers.
        options: see `Options`.

    References:
        None: a method of this library.
    """

    name = "cells"
    version: ClassVar[int] = 3  # rows that no walk answers are settled by boxes
    tasks = frozenset({Task.CLASSIFICATION, Task.REGRESSION})
    needs = frozenset({Need.TREES, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "this library"
    proves: ClassVar[bool] = True  # of rows that no walk answers: their optimum, or that none is
    gap: float = 0.0  # what walks have found carries no proof
    _test_params: ClassVar[dict[str, Any]] = {}
    _copies: ClassVar[int] = 400

    def __init__(
        self,
        model: Predictor,
        *,
        beta: float = 0.05,
        starts: int = 6,
        steps: int = 12,
        total_CFs: int = 1,
        donors: int = 8,
        nodes: int = 2000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.beta, self.starts, self.steps = beta, starts, steps
        self.total_CFs, self.donors, self.nodes = total_CFs, donors, nodes

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "starts", "steps", "total_CFs", "donors", "nodes")

    def _fit(self, train: TrainRows) -> None:
        self.scale_ = mad_scale(train.x.cpu().numpy(), self.space_)

    def _explain(self, query: Query) -> Answer | Tensor:
        view = query.model.trees()
        assert view is not None
        n = len(query)
        x = torch.full_like(query.x, torch.nan)
        infeasible = np.zeros(n, dtype=bool)
        cost, bound = np.full(n, np.nan), np.full(n, np.nan)
        readable, nodes, sets = readable_rows(query, view), 0, []
        table = CellTable.of(view, query.region, self.scale_, self.beta)
        for whole in groups(query, view):
            group = whole.only(readable[whole.rows])
            own, rows = table.select(group.rows), torch.as_tensor(group.rows)
            proved = self._prove(query, view, group, own)
            x[rows] = verified(query, own, proved.best, group.rows)
            infeasible[group.rows] = np.isinf(proved.best.cost) & proved.done
            cost[group.rows] = proved.best.cost
            bound[group.rows] = np.where(np.isinf(proved.bound), np.nan, proved.bound)
            nodes += int(proved.nodes.sum())
            if self.total_CFs > 1:
                sets.append((rows, self._menu(query, view, group, own, proved.best)))
        scope = proof_scope(view, query.region.space)
        logs: dict[str, Any] = {"proof_scope": scope, "nodes": nodes}
        if not readable.all():
            logs["unread_rows"] = int((~readable).sum())
        lower = torch.as_tensor(bound)
        return Answer(
            x=x, infeasible=torch.as_tensor(infeasible, device=x.device),
            sets=self._joined(query, sets), bound=lower,
            proof=proof_of(torch.as_tensor(cost), lower, self.gap), logs=logs,
        )  # fmt: skip

    def _prove(
        self, query: Query, view: TreeView, group: DemandGroup, table: CellTable
    ) -> SearchProof:
        """Return an answer or a proof for every row, as far as boxes and time reach."""
        n, demand = len(table), group.demand(view.bits)
        problem = box_problem(view, group, table)
        best = coordinate_search(
            view.bits, demand, table, starts=self.starts, steps=self.steps, second_try=False,
            axes=table.open_axes, hopeless=lambda at: impossible(problem, table.home, at),
        )  # fmt: skip
        bound, done = np.full(n, np.nan), np.zeros(n, dtype=bool)
        nodes = np.zeros(n, dtype=np.int64)
        rows = np.flatnonzero(np.isinf(best.cost))
        if len(rows) and not query.budget.expired:

            def walk(at: np.ndarray) -> Incumbents:
                return self._search(view, group.only(rows[at]), table.select(rows[at]))

            told = settle(
                problem.select(rows), table.home[rows], walk,
                nodes=self.nodes, expired=lambda: query.budget.expired,
            )  # fmt: skip
            best.offer(rows, told.best.cells, told.best.cost)
            bound[rows], done[rows], nodes[rows] = told.bound, told.done, told.nodes
        return SearchProof(best, bound, done, nodes)

    def _search(self, view: TreeView, group: DemandGroup, table: CellTable) -> Incumbents:
        """Return what walks find, longer ones and walks from training rows among them."""
        bits, demand = view.bits, group.demand(view.bits)
        found = coordinate_search(bits, demand, table, starts=self.starts, steps=self.steps)
        lost = np.flatnonzero(np.isinf(found.cost))
        if len(lost):
            part, need = table.select(lost), demand.select(lost)
            extra = donor_points(bits, need, part, self._pool(view), self.donors)
            again = coordinate_search(bits, need, part, starts=1, steps=1, extra=extra)
            found.offer(lost, again.cells, again.cost)
        return found

    def _pool(self, view: TreeView) -> np.ndarray:
        """Return the cells (m, A) of some training rows, spread evenly."""
        x = self.train_.x
        step = max(1, len(x) // 2000)
        return view.axes.cells(x[::step].cpu().numpy())

    def _menu(
        self, query: Query, view: TreeView, group: DemandGroup, table: CellTable, best: Incumbents
    ) -> Tensor:
        """Return (m, total_CFs, d) answers with different sets of changed features."""
        m, k = len(table), self.total_CFs
        tries = min(2 * k, len(view.axes.space))
        rows = np.repeat(np.arange(m), tries)
        many, demand = table.select(rows), group.demand(view.bits).select(rows)
        rank = np.tile(np.arange(tries), m)
        found = coordinate_search(view.bits, demand, many, steps=self.steps, rank=rank)
        cells = np.concatenate([best.cells[:, None], found.cells.reshape(m, tries, -1)], 1)
        cost = np.concatenate([best.cost[:, None], found.cost.reshape(m, tries)], 1)
        changed = cells != table.home[:, None]
        order = np.argsort(cost, axis=1, kind="stable")
        keep = np.full((m, k), -1)
        taken = np.zeros(m, dtype=np.int64)
        for j in range(tries + 1):
            at = order[:, j]
            mine = changed[np.arange(m), at]
            new = np.isfinite(cost[np.arange(m), at]) & (taken < k)
            for i in range(k):
                other = changed[np.arange(m), np.maximum(keep[:, i], 0)]
                new &= (keep[:, i] < 0) | (mine != other).any(1)
            keep[np.flatnonzero(new), taken[new]] = at[new]
            taken += new
        out = torch.full((m, k, query.x.shape[1]), torch.nan, dtype=query.x.dtype)
        row, place = np.nonzero(keep >= 0)
        points = table.points(cells[row, keep[row, place]], row)
        seen, ok = query.accept(points, torch.as_tensor(group.rows[row]))
        good = ok.cpu().numpy()
        out[torch.as_tensor(row[good]), torch.as_tensor(place[good])] = seen[ok].cpu()
        return out

    def _joined(self, query: Query, sets: list[tuple[Tensor, Tensor]]) -> Tensor | None:
        if not sets:
            return None
        shape = (len(query), self.total_CFs, query.x.shape[1])
        out = torch.full(shape, torch.nan, dtype=query.x.dtype)
        for rows, part in sets:
            out[rows] = part
        return out
