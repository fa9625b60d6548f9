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
from cel.search.branch import SearchProof, branch_and_bound
from cel.search.coordinate import Incumbents, coordinate_search

__all__ = ["OWN", "CellsOrProof", "FirstTangents"]

FIRST_NODES = 200  # boxes of a row that the walks left open, before other walks are tried
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
        demand, n = group.demand(view.bits), len(table)
        best = coordinate_search(
            view.bits, demand, table, starts=self.starts, steps=self.steps, second_try=False
        )
        proof = SearchProof(
            best, np.full(n, np.nan), np.zeros(n, dtype=bool), np.zeros(n, dtype=np.int64)
        )
        self._settle(query, view, group, table, proof, FIRST_NODES)
        self._settle(query, view, group, table, proof, self.nodes)
        return proof

    def _settle(
        self,
        query: Query,
        view: TreeView,
        group: DemandGroup,
        table: CellTable,
        proof: SearchProof,
        nodes: int,
    ) -> None:
        """Look for the rows without an answer or a proof, in place."""
        open_ = np.isinf(proof.best.cost) & ~proof.done
        rows = np.flatnonzero(open_)
        if not len(rows) or query.budget.expired:
            return
        few, part = group.only(open_), table.select(rows)
        first = nodes < self.nodes
        best = Incumbents.nothing(part.home) if first else self._search(view, few, part)
        told = branch_and_bound(
            box_problem(view, few, part), best, nodes=nodes, expired=lambda: query.budget.expired
        )
        proof.best.offer(rows, told.best.cells, told.best.cost)
        proof.bound[rows], proof.done[rows] = told.bound, told.done
        proof.nodes[rows] += told.nodes


class FirstTangents(Wachter):
    """Tangents with changes of categories, and nothing more: what they leave is for others."""

    def _solve(self, problem: NearestPoint, *, thorough: bool = True) -> Answer:
        return climb(problem, [tangents(STEPS)])


OWN: dict[str, type[BaseCounterfactualMethod]] = {"cells": CellsOrProof, "wachter": FirstTangents}
"""By the names of the methods whose stages they are."""
