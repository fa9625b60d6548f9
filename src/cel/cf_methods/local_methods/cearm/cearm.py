"""CEARM: counterfactuals of black-box regressors by Bayesian optimisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.cearm.bayes_search import SearchSettings, optimise
from cel.cf_methods.local_methods.cearm.gaussian_process import Process, spread_out
from cel.cf_methods.local_methods.cearm.goal import BestPoints, OutputGoal, outputs_of
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.protocols import Need, Predictor, Support, Task
from cel.search import Budget, bisect_to_boundary

__all__ = ["CEARM"]

CAREFUL = {"candidates": 96, "ascent": 12, "neighbours": 64, "patience": 3}
QUICK = {"candidates": 64, "ascent": 3, "neighbours": 56, "patience": 2}
_REMEMBERED = 4  # rounds whose evaluations fit into the data at the least


class CEARM(LocalMixin, BaseCounterfactualMethod):
    """Ask a Gaussian process of the model where to look next, for all rows at once.

    With z the progress from the present output (0) to the wanted one (1), the utility of a point
    is `psi(z) exp(-rho |x' - x|)` with the potential `psi(z) = z^2 exp(-z^2)`, whose peak is at
    z = 1. The process models the *outputs*, not the utility: it is shared by all rows and targets,
    starts from training rows, and learns from every evaluation. A row begins at the known points
    of highest utility and at the nearest known answer. Each round then takes the points of highest
    expected improvement of the utility (by quadrature), and as many that exploit what is known.
    Once a point within `eps` of the target is known, the search is for nearer ones.
    Each row conditions on the `neighbours` nearest data: the whole process if there are no more.

    Several outputs share the kernel; the progress is then that of the output that is farthest
    behind. For classifiers the outputs are scores and the progress that of the margin. Answers of
    a row depend on the rows explained with it.

    Args:
        model: any predictor; only its outputs are used.
        rho: weight of the distance, held below what would keep rows from their goal; 0 gives the
            published comparison, which ignores distance.
        rounds: largest number of rounds.
        batch: points evaluated per row and round.
        eps: |f(x') - y*| that counts as reached, in units of the range. Points within the larger
            `tolerance` are answers too, when nothing better is found.
        margin: margin between scores that classifiers aim at.
        candidates: points compared per row and round; by default 96, and 64 for classes where all
            features are numbers.
        ascent: gradient steps on the expected improvement; by default 12 and 3.
        neighbours: data on which a row's prediction is conditioned; by default 64 and 56.
        design: training rows from which the process starts.
        fit_rows: rows from which the kernel is learned.
        max_data: data kept besides the training rows, the newest; rows are taken in groups whose
            last four rounds fit.
        patience: rounds without a nearer answer after which a row ends; by default 3 and 2.
        memory: keep what was learned for later calls, which then depend on earlier ones.
        **options: see `Options`.

    Reference: Spooner, Dervovic, Long, Shepard, Chen and Magazzeni, Counterfactual explanations
    for arbitrary regression models, 2021.
    """

    name: ClassVar[str] = "cearm"
    tasks: ClassVar[frozenset[Task]] = frozenset({Task.REGRESSION, Task.CLASSIFICATION})
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS})
    supports: ClassVar[frozenset[Support]] = frozenset(Support)
    version: ClassVar[int] = 4
    reference: ClassVar[str] = "Spooner et al., 2021, arXiv:2106.15212"
    rows_independent: ClassVar[bool] = False
    _copies: ClassVar[int] = 300
    _test_params: ClassVar[Mapping[str, Any]] = {
        "rounds": 6,
        "batch": 4,
        "candidates": 32,
        "ascent": 6,
        "neighbours": 32,
        "fit_rows": 40,
    }

    def __init__(
        self,
        model: Predictor,
        *,
        rho: float = 0.1,
        rounds: int = 20,
        batch: int = 8,
        eps: float = 0.01,
        margin: float = 0.5,
        candidates: int | None = None,
        ascent: int | None = None,
        neighbours: int | None = None,
        design: int = 1000,
        fit_rows: int = 200,
        max_data: int = 5000,
        patience: int | None = None,
        memory: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.rho, self.rounds, self.batch, self.eps, self.margin = rho, rounds, batch, eps, margin
        self.candidates, self.ascent, self.neighbours = candidates, ascent, neighbours
        self.design, self.fit_rows, self.max_data = design, fit_rows, max_data
        self.patience, self.memory = patience, memory

    def _fit(self, train: TrainRows) -> None:
        x = train.x.to(self._device())
        rows = x[spread_out(x, self.design)]
        outputs = outputs_of(self._view(Budget()), rows)
        self.process_ = Process.fit(rows, outputs, self.space_, fit_rows=self.fit_rows)

    def _explain(self, query: Query) -> Answer:
        goal = OutputGoal.of(query, self.eps, self.margin)
        settings = self._settings(query)
        # Few enough rows at a time that what they learn is remembered for some rounds.
        size = max(1, self.max_data // (_REMEMBERED * self.batch))
        parts, rounds, process = [], 0, self.process_
        for rows in torch.split(query.rows(), size):
            best, process, last = optimise(
                query.select(rows), goal.select(rows), process, settings
            )
            parts.append(best)
            rounds = max(rounds, last)
        best = BestPoints.join(parts, query.x)
        if self.memory:
            self.process_ = process
        x = self._nearer(query, goal, best.answer) if self.rho else best.answer
        fallback, ok = query.accept(torch.nan_to_num(best.closest, nan=0.0), query.rows())
        usable = x[:, 0].isnan() & ok & best.error.isfinite()
        x = torch.where(usable[:, None], fallback, x)
        return Answer(x=x, infeasible=query.region.fixed.all(1), logs={"rounds": rounds})

    def _settings(self, query: Query) -> SearchSettings:
        """Return the limits of the search, with what suits the task where nothing is said.

        Values are to be met, and labels cannot be climbed along; a class of numbers alone is
        reached with less.
        """
        names = ("candidates", "ascent", "neighbours", "patience")
        labels = bool(query.region.layout.blocks.numel())
        usual = CAREFUL if query.model.task is Task.REGRESSION or labels else QUICK
        told = {n: getattr(self, n) for n in names}
        told = {n: usual[n] if v is None else v for n, v in told.items()}
        told["candidates"] = max(told["candidates"], 4 * self.batch)
        return SearchSettings(
            rho=self.rho, rounds=self.rounds, batch=self.batch, max_data=self.max_data, **told
        )

    @torch.no_grad()
    def _nearer(self, query: Query, goal: OutputGoal, x: Tensor) -> Tensor:
        """Slide answers towards their rows while they stay within eps."""

        def accept(y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            seen, ok = query.accept(y, rows)
            error = goal.select(rows).error(goal.outputs(seen)[:, None, :])[:, 0]
            return seen, ok & (error <= self.eps)

        numeric = query.region.layout.numeric
        return bisect_to_boundary(query.x, x, ~x[:, 0].isnan(), accept, slide=numeric, steps=10)
