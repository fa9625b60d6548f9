"""Optimal counterfactuals of ReLU networks, or the proof that there are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.actionable.linear_recourse import Recourse
from cel.cf_methods.local_methods.exact_relu.activation_search import (
    ActivationProof,
    ActivationSearch,
)
from cel.cf_methods.local_methods.exact_relu.priced_parts import PricedSets
from cel.cf_methods.local_methods.wachter import Wachter
from cel.cf_methods.query import MARGIN, Answer, Query, TrainRows, proof_of
from cel.cf_methods.tangent.margins import AIM, output_demands
from cel.cf_methods.view import ModelView
from cel.models.relu_view import ReluView
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support, Task
from cel.space import FeatureSpace
from cel.space.distances import mad_scale

__all__ = ["ExactReLU"]

NEAR = 1.05 * MARGIN  # aimed at first; rounding spoils few answers
INFEASIBLE = 1e-5  # a row is infeasible only if margins miss 0 by more than this
ROUNDING = 16  # times what 32 bits change in the scores of the rows themselves
STORED = 2.0**-22  # of a value: what storing it as float32 may change


@dataclass(frozen=True, eq=False)
class _Attempt:
    """Answers (n, d), their costs, bounds, and (n,) which answers rounding has spoiled."""

    x: Tensor
    cost: np.ndarray
    bound: np.ndarray
    nodes: np.ndarray
    undecided: np.ndarray
    spoiled: np.ndarray

    def put(self, rows: np.ndarray, other: _Attempt) -> None:
        """Take over the answers of another attempt at some rows; lower bounds still hold."""
        better = ~other.spoiled & ~np.isnan(other.cost)
        self.x[torch.as_tensor(rows[better], device=self.x.device)] = other.x[
            torch.as_tensor(better, device=self.x.device)
        ]
        self.cost[rows[better]], self.bound[rows[better]] = (
            other.cost[better], other.bound[better],
        )  # fmt: skip
        self.nodes[rows] += other.nodes


class ExactReLU(LocalMixin, BaseCounterfactualMethod):
    """The nearest point with the wanted outcome of a ReLU network, proved; or that there is none.

    `min sum(weight |x' - x| / MAD) + weight per changed category` subject to a margin of 1.05e-4
    over every other class (for regression, to all outputs within the tolerance by as much), with
    x' in the region of the row: grids, directions, categories, relations and implications
    included.

    Tangents give a first answer (`Wachter`). Only points that are cheaper can be better; over
    these, bounds decide on which side of zero most neurons are. What is left is a branch and bound
    over the sides of the others: outputs are bounded from above by linear functions of the input,
    programs of choices bound the cost from below, and where no neuron is open they are exact. When
    no node is left below the best answer, it is optimal; when none is left at all, not even for a
    margin of 0, the row is infeasible. When `nodes` or the time is spent, the lowest floor is the
    bound. All bounds are in float64 and rounded outwards; no solver from outside is asked.

    Args:
        model: an `MLPClassifier`, an `MLPRegressor`, a linear model, or a wrapped
            `torch.nn.Sequential` of Linear and ReLU layers.
        nodes: most nodes per row.
        undecided: most neurons that may be open at the start; rows with more get a bound only.
        gap: share by which a cost may exceed its bound and still count as `within_gap`.
        steps: tangents per row for the first answer.
        options: see `Options`.

    References:
        Mohammadi, Karimi, Barthe and Valera: Scaling guarantees for nearest counterfactual
        explanations. AIES 2021 (the problem; the search is ours). Zhang et al.: Efficient neural
        network robustness certification with general activation functions. NeurIPS 2018 (the
        linear bounds).
    """

    name = "exact_relu"
    version: ClassVar[int] = 2
    tasks = frozenset({Task.CLASSIFICATION, Task.REGRESSION})
    needs = frozenset({Need.RELU, Need.TRAIN_ROWS})
    supports = frozenset(Support)
    proves: ClassVar[bool] = True
    reference = "Mohammadi et al., AIES 2021, arXiv:2010.04965 (the problem)"
    _copies: ClassVar[int] = 400
    _test_params: ClassVar[Mapping[str, Any]] = {"nodes": 300, "steps": 20}

    def __init__(
        self,
        model: Predictor,
        *,
        nodes: int = 1000,
        undecided: int = 150,
        gap: float = 0.05,
        steps: int = 50,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.nodes, self.undecided, self.gap, self.steps = nodes, undecided, gap, steps

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "nodes", "steps")
        check_positive(self, "gap", "undecided", zero=True)

    def _fit(self, train: TrainRows) -> None:
        self.scale_ = mad_scale(train.x.cpu().numpy(), self.space_)
        self.start_ = Wachter(
            self.model, space=self.space, random_state=self.random_state,
            tolerance=self.tolerance, steps=2 * self.steps, rounds=3, eps=self.tolerance,
        )  # fmt: skip
        self.start_.adopt_rows(self)

    def _explain(self, query: Query) -> Answer:
        view = query.model.relu()
        assert view is not None
        known = self.start_.answer(query)
        with torch.no_grad():
            return self._proved(query, view, known.x)

    def _proved(self, query: Query, view: ReluView, known: Tensor) -> Answer:
        """Solve for the least margin; rows whose answer rounding spoils, for a little more."""
        whole = self._attempt(query, view, known, NEAR)
        again = torch.as_tensor(whole.spoiled, device=query.x.device).nonzero()[:, 0]
        if len(again):
            whole.put(again.cpu().numpy(), self._attempt(
                query.select(again), view, known[again], AIM))  # fmt: skip
        held = ~np.isnan(whole.x.cpu().numpy()).any(1)
        lost = np.isinf(whole.bound) & ~held
        bound = torch.as_tensor(np.where(np.isfinite(whole.bound), whole.bound, np.nan))
        return Answer(
            x=whole.x,
            infeasible=torch.as_tensor(self._infeasible(query, view, lost)).to(query.x.device),
            bound=bound,
            proof=proof_of(torch.as_tensor(whole.cost), bound, self.gap),
            logs={"proof_scope": view.scope(query.region.space), "nodes": int(whole.nodes.sum())},
            row_logs={"undecided": whole.undecided.tolist()},
        )

    def _attempt(self, query: Query, view: ReluView, known: Tensor, aim: float) -> _Attempt:
        recourse = self._recourse(query)
        proof = self._search(query, view, recourse, aim, known)
        points = recourse.points(proof.offset, proof.option)
        have = torch.as_tensor(np.isfinite(proof.cost)).to(query.x.device)
        seen, ok = query.accept(torch.where(have[:, None], points, query.x), query.rows())
        drift = ((seen - points).abs() <= STORED * (1 + query.x.abs())).all(1)
        ok &= have
        start = ~known.isnan().any(1)
        x = torch.where((ok | ~start)[:, None], seen, known)  # a first answer takes its place
        return _Attempt(
            x=torch.where((ok | start)[:, None], x, torch.nan),
            cost=np.where((ok & drift).cpu().numpy(), proof.cost, np.nan),
            bound=proof.bound.copy(),
            nodes=proof.nodes,
            undecided=proof.undecided,
            spoiled=(have & ~ok).cpu().numpy(),
        )

    def _recourse(self, query: Query) -> Recourse:
        return Recourse.of(query, aim=0.0, scale=self.scale_, beta=0.0, linear=False)

    def _search(
        self, query: Query, view: ReluView, recourse: Recourse, aim: float, known: Tensor | None
    ) -> ActivationProof:
        mix, shift = output_demands(query)
        search = ActivationSearch(
            view.layers, PricedSets.of(recourse), mix, shift - aim, nodes=self.nodes,
            undecided=self.undecided, expired=lambda: query.budget.expired,
        )  # fmt: skip
        if known is not None:
            search.begin_at(known.detach().double().cpu(), *recourse.choices(known))
        return search.run()

    def _infeasible(self, query: Query, view: ReluView, lost: np.ndarray) -> np.ndarray:
        """Tell (n,) for which of the lost rows not even a margin of 0 can be reached."""
        out = np.zeros(len(query), dtype=bool)
        rows = np.flatnonzero(lost)
        if len(rows):
            part = query.select(torch.as_tensor(rows, device=query.x.device))
            exact = view.scores(part.x)
            error = (part.model.scores(part.x).double().cpu() - exact).abs().amax()
            aim = -(INFEASIBLE + ROUNDING * float(error))
            proof = self._search(part, view, self._recourse(part), aim, None)
            out[rows] = np.isinf(proof.bound)
        return out
