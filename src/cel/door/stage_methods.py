"""Stages that the portfolio has in a form of its own: what they share is not searched twice."""

from __future__ import annotations

import numpy as np

from cel.cf_methods.base import BaseCounterfactualMethod
from cel.cf_methods.ensembles.cell_table import CellTable
from cel.cf_methods.ensembles.demands import DemandGroup
from cel.cf_methods.ensembles.proofs import box_problem
from cel.cf_methods.local_methods.exact_tree import ExactTree
from cel.cf_methods.local_methods.wachter import Wachter
from cel.cf_methods.query import Answer, Query
from cel.cf_methods.tangent.ladder import climb, tangents
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.models.trees import TreeView
from cel.search.branch import BoxSearch, SearchProof
from cel.search.coordinate import Incumbents, coordinate_search

__all__ = ["OWN", "CellsOrProof", "FirstTangents"]

FIRST_NODES = 500  # boxes of a row that the walks left open, before other walks are tried
WIDTH = 16  # boxes of a row that are looked at together
STEPS = 12  # tangents; more of them move hardly an answer


class CellsOrProof(ExactTree):
    """`cells`, and an answer or a proof for every row that its walks leave open.

    Most rows are answered by walks from cell to cell, as `cells` does it. For the others a
    small branch and bound comes first: it often ends at once, and an impossible row needs neither
    more walks nor training rows. Only what is still open gets these, and then all boxes.
    """

    def _prove(
        self, query: Query, view: TreeView, group: DemandGroup, table: CellTable
    ) -> SearchProof:
        n, demand = len(table), group.demand(view.bits)
        best = coordinate_search(
            view.bits, demand, table, starts=self.starts, steps=self.steps, second_try=False
        )
        bound, done = np.full(n, np.nan), np.zeros(n, dtype=bool)
        nodes = np.zeros(n, dtype=np.int64)
        open_ = np.isinf(best.cost)
        if open_.any() and not query.budget.expired:
            rows = np.flatnonzero(open_)
            told = self._settle(query, view, group.only(open_), table.select(rows))
            best.offer(rows, told.best.cells, told.best.cost)
            bound[rows], done[rows], nodes[rows] = told.bound, told.done, told.nodes
        return SearchProof(best, bound, done, nodes)

    def _settle(
        self, query: Query, view: TreeView, group: DemandGroup, table: CellTable
    ) -> SearchProof:
        """Return answers or proofs of rows that no walk has answered."""

        def expired() -> bool:
            return query.budget.expired

        best = Incumbents.nothing(table.home)
        boxes = BoxSearch(box_problem(view, group, table), best, FIRST_NODES, WIDTH)
        boxes.run(expired)
        open_ = np.isinf(best.cost) & ~boxes.proof().done
        if open_.any() and not expired():
            rows = np.flatnonzero(open_)
            again = self._search(view, group.only(open_), table.select(rows))
            best.offer(rows, again.cells, again.cost)
            boxes.limit = np.where(np.isinf(best.cost), self.nodes, 0)
            boxes.run(expired)
        return boxes.proof()


class FirstTangents(Wachter):
    """Tangents with changes of categories, and nothing more: what they leave is for others."""

    def _solve(self, problem: NearestPoint, *, thorough: bool = True) -> Answer:
        return climb(problem, [tangents(STEPS)])


OWN: dict[str, type[BaseCounterfactualMethod]] = {"cells": CellsOrProof, "wachter": FirstTangents}
"""By the names of the methods whose stages they are."""
