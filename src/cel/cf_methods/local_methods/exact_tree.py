"""Optimal counterfactuals of tree ensembles, or the proof that there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Unpack

from cel.cf_methods.base import Options
from cel.cf_methods.ensembles.cell_table import CellTable
from cel.cf_methods.ensembles.demands import DemandGroup
from cel.cf_methods.ensembles.proofs import box_problem
from cel.cf_methods.local_methods.cell_search import CellSearch
from cel.cf_methods.query import Query
from cel.cf_methods.view import ModelView
from cel.models.trees import TreeView
from cel.parameters import check_positive
from cel.protocols import Predictor
from cel.search.branch import SearchProof, branch_and_bound
from cel.search.leaf_branch import leaf_branch_and_bound
from cel.search.two_bounds import two_bounds
from cel.space import FeatureSpace

__all__ = ["ExactTree"]

SEARCHES: dict[str, Callable[..., SearchProof]] = {
    "both": two_bounds,
    "boxes": branch_and_bound,
    "leaves": leaf_branch_and_bound,
}


class ExactTree(CellSearch):
    """The cheapest point with the wanted outcome, proved; or the proof that there is none.

    The problem is that of `CellSearch`: one cell per feature, a price for each. Its answers are
    the start of a best-first branch and bound over boxes of cells: the price of a box is at least
    that of its cheapest cells, and the trees can say at most the sum of the best leaves that it
    meets. Cells that cannot be part of a cheaper answer are struck out before a box is split.
    When no box is left below the best answer, that answer is optimal; when none is left at all,
    the row is infeasible. When `nodes` or the time is spent, the lowest price of the open boxes is
    the bound, and the answer is `within_gap` if it is near enough.

    Bounds allow for rounding, also for that of libraries which add leaves in 32 bits. Implications
    are exact; linear relations are exact between whole numbers, and only bounded where a
    continuous feature takes part: a cell then has values that are not tried.

    Args:
        model: a wrapped tree ensemble, see `cel.models.trees`.
        nodes: most boxes per row.
        bounds: "boxes": the best leaves that a box meets, and the price of its cheapest cells;
            "leaves": also what leaves cost to enter, and a Lagrangian bound in which every tree
            has a share in the price of a move; "both": boxes first, and leaves for rows whose
            open boxes then still hold many points. Among equally cheap answers they may give
            different ones.
        gap: share by which a cost may exceed its bound and still count as `within_gap`.
        beta: price of changing a feature at all.
        starts: first moves that the search before the proof follows.
        steps: longest walk of that search.
        donors: training rows that an unanswered row may start from.
        options: see `Options`.

    References:
        Parmentier and Vidal: Optimal counterfactual explanations in tree ensembles. ICML 2021 (the
        problem; the search is ours).
    """

    name = "exact_tree"
    version: ClassVar[int] = 2  # both kinds of bounds; rows with missing numbers are read
    proves: ClassVar[bool] = True
    reference = "Parmentier and Vidal, ICML 2021 (the problem)"
    _test_params: ClassVar[dict[str, Any]] = {"nodes": 300}

    def __init__(
        self,
        model: Predictor,
        *,
        nodes: int = 2000,
        bounds: Literal["both", "boxes", "leaves"] = "both",
        gap: float = 0.05,
        beta: float = 0.05,
        starts: int = 6,
        steps: int = 12,
        donors: int = 8,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            model, beta=beta, starts=starts, steps=steps, donors=donors, nodes=nodes, **options
        )
        self.bounds, self.gap = bounds, gap

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "nodes", "starts", "steps", "donors")
        check_positive(self, "gap", zero=True)

    def _prove(
        self, query: Query, view: TreeView, group: DemandGroup, table: CellTable
    ) -> SearchProof:
        found = self._search(view, group, table)
        problem = box_problem(view, group, table)
        return SEARCHES[self.bounds](
            problem, found, nodes=self.nodes, expired=lambda: query.budget.expired
        )
