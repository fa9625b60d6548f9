"""Plausible counterfactuals by convex programming (Artelt and Hammer, 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.artelt.cone_programs import exact_available, solve_exactly
from cel.cf_methods.local_methods.artelt.dense_components import (
    ClassDensity,
    RadiusRule,
    fit_density,
)
from cel.cf_methods.local_methods.artelt.first_layer import answers_of_first_layer
from cel.cf_methods.local_methods.artelt.programs import (
    Setting,
    best_per_row,
    case_rows,
    finish,
    linear_programs,
    modal_rows,
)
from cel.cf_methods.local_methods.artelt.scp import sequential
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.errors import UnsupportedError
from cel.protocols import Need, Predictor
from cel.solvers.admm import INFEASIBLE, UNDECIDED, Programs, Solution, solve_programs
from cel.solvers.ellipsoid import Ellipsoids
from cel.space import FeatureSpace
from cel.space.distances import mad_scale

__all__ = ["Artelt"]

_CLEAR = 1e-5  # programs are tightened by this share, solutions are exact to less
_SECOND_OPINIONS = 200  # undecided programs handed to the exact solver per batch


class Artelt(LocalMixin, BaseCounterfactualMethod):
    """Find the nearest point of the target class where that class is dense, for linear models.

    Solves `min |W (x' - x)|_1` (or L2) subject to `score_t(x') >= score_i(x') + margin` for all
    other classes i, the feature bounds, and `max_j pi_j N(x' | mu_j, Sigma_j) >= delta`, where the
    mixture is fitted to the training rows that the model puts into class t and delta is the median
    of its largest component over them. Each component is an ellipsoid, so each program is convex;
    all programs (rows x components) are solved together by ADMM, and the cheapest answer wins.
    Rows whose programs are all *proved* infeasible get that status: no point of the class that is
    dense enough is allowed.

    Numbers move, categories do not: on mixed rows the programs run over the numeric columns with
    the categories of the row; then, for rows without an answer, with the most frequent ones of the
    target class; then with those of a near dense training row (`categories`). Whole numbers are
    rounded and verified afterwards.

    A model that is not linear has no convex program. `extension="scp"` goes beyond the paper for
    such models: sequential convex programming from dense rows of the target class.

    Args:
        model: a classifier with `linear_()`, or any with `logits` under `extension="scp"`.
        norm: "l1" or "l2".
        weights: weights of the L1 norm, "unit" or "mad" (1 / median absolute deviation).
        radius: "paper" or "reference", how ellipsoids are cut off; see `fit_density`.
        margin: distance of scores between the target and any other class.
        n_components: mixture sizes to choose from (2 to 9 in the paper).
        criterion: "bic" or "cv" (5-fold log-likelihood, as in the paper), how to choose.
        regularisation: added to the variances.
        quantile: which quantile of the training densities delta is.
        threshold: log delta itself, instead of a quantile.
        categories: "search" as above; "fixed" never changes them, "modal" always does.
        extension: None or "scp"; "first_layer" imitates the printed tables, which took the first
            layer of a ReLU network for a linear model, and is for comparing with them.
        solver: "admm", or "clarabel" for one program at a time (extra "convex"), which also gives
            a second opinion on programs that ADMM leaves undecided.
        max_iter: iterations of ADMM.
        **options: see `Options`.

    Reference: Artelt and Hammer, Convex density constraints for computing plausible counterfactual
    explanations, ICANN 2020.
    """

    name: ClassVar[str] = "artelt"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS})
    version: ClassVar[int] = 4
    infeasible_means: ClassVar[str] = "no allowed row of the class lies where the class is dense"
    reference: ClassVar[str] = "Artelt and Hammer, ICANN 2020, arXiv:2002.04862"
    _copies: ClassVar[int] = 600
    _test_params: ClassVar[Mapping[str, Any]] = {"n_components": (2,), "extension": "scp"}

    def __init__(
        self,
        model: Predictor,
        *,
        norm: Literal["l1", "l2"] = "l1",
        weights: Literal["unit", "mad"] = "unit",
        radius: RadiusRule = "paper",
        margin: float = 1e-3,
        n_components: int | tuple[int, ...] = (2, 3, 5, 9),
        criterion: Literal["bic", "cv"] = "bic",
        regularisation: float = 1e-4,
        quantile: float = 0.5,
        threshold: float | None = None,
        categories: Literal["search", "fixed", "modal"] = "search",
        extension: Literal["scp", "first_layer"] | None = None,
        solver: Literal["admm", "clarabel"] = "admm",
        max_iter: int = 1000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.norm, self.weights, self.radius, self.margin = norm, weights, radius, margin
        self.n_components, self.criterion = n_components, criterion
        self.regularisation, self.quantile, self.threshold = regularisation, quantile, threshold
        self.categories, self.extension = categories, extension
        self.solver, self.max_iter = solver, max_iter

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        who = type(self.model).__name__
        if model.linear() is None and self.extension is None:
            raise UnsupportedError(
                f"Artelt needs a linear model; {who} is not. Pass extension='scp' for sequential "
                "convex programming, which goes beyond the paper"
            )
        if self.extension == "first_layer":
            if not hasattr(self.model, "relu_"):
                raise UnsupportedError(
                    f"Artelt(extension='first_layer') reads ReLU networks; {who} is none"
                )
        elif model.linear() is None and not model.differentiable:
            raise UnsupportedError(f"Artelt(extension='scp') needs gradients; {who} has none")
        if not len(space.numeric_columns):
            raise UnsupportedError("Artelt moves numeric features only, and there are none")

    def _fit(self, train: TrainRows) -> None:
        self.classes_ = frozenset(train.y.tolist())
        self.densities_: dict[int, ClassDensity] = {}
        self.core_: dict[int, Tensor] = {}
        self.modal_: dict[int, Tensor] = {}
        if self.weights == "mad":
            x = train.x.cpu().numpy().astype(np.float64)
            self.mad_ = torch.as_tensor(mad_scale(x, self.space_))

    def _learn(self, label: int) -> None:
        """Fit the mixture of a class that answers are wanted in, unless that is done."""
        if label in self.densities_ or label not in self.classes_:
            return
        columns, sizes, train = self.space_.numeric_columns, self.n_components, self.train_
        rows = train.of_class(label).cpu().numpy().astype(np.float64)
        density = fit_density(
            rows[:, columns],
            sizes=(sizes,) if isinstance(sizes, int) else tuple(sizes),
            criterion=self.criterion,
            regularisation=self.regularisation,
            quantile=self.quantile,
            threshold=self.threshold,
            rule=self.radius,
            seed=self.random_state,
        )
        dense = density.log_density(torch.as_tensor(rows[:, columns])) >= density.threshold
        self.core_[label] = torch.as_tensor(rows, dtype=train.x.dtype)[dense]
        self.modal_[label] = torch.as_tensor(rows.mean(0), dtype=train.x.dtype)
        self.densities_[label] = density

    def _explain(self, query: Query) -> Answer:
        for label in sorted(set(query.target.tolist())):
            self._learn(label)
        free = bool((~query.region.layout.numeric & ~query.region.fixed).any())
        x = torch.full_like(query.x, torch.nan)
        infeasible = torch.zeros(len(query), dtype=torch.bool, device=query.x.device)
        if self.categories != "modal" or not free:
            x, infeasible = self._answer(query, query.x, query.rows())
        if self.categories != "fixed" and free:
            infeasible = torch.zeros_like(infeasible)  # not all categories are tried
            for other in (self._modal, self._case):
                left = x[:, 0].isnan().nonzero()[:, 0]
                if len(left):
                    again, _ = self._answer(query, other(query, left), left)
                    x = torch.where(x.isnan(), again, x)
        infeasible = (infeasible & x[:, 0].isnan()) | query.region.fixed.all(1)
        logs = {"extension": self.extension} if query.model.linear() is None else None
        return Answer(x=x, infeasible=infeasible, logs=logs)

    def _modal(self, query: Query, rows: Tensor) -> Tensor:
        return modal_rows(query, self.modal_)

    def _case(self, query: Query, rows: Tensor) -> Tensor:
        return case_rows(self._setting(query, query.x), rows, self._core(query))

    def _core(self, query: Query) -> dict[int, Tensor]:
        return {label: rows.to(query.x) for label, rows in self.core_.items()}

    def _answer(self, query: Query, home: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return (answers (n, d), proved infeasible (n,)) for the given rows and categories."""
        setting = self._setting(query, home)
        linear = query.model.linear()
        if linear is None and self.extension == "first_layer":
            network = query.model.relu()
            assert network is not None
            layer = network.layers[0]
            x = answers_of_first_layer(setting, rows, layer, lambda p: self._solve(p, query))
            return x, torch.zeros(len(query), dtype=torch.bool, device=x.device)
        if linear is None:
            return sequential(setting, rows, self._core(query))
        source, which = setting.pairs(rows)
        programs = linear_programs(setting, source, which, *linear)
        solution = self._solve(programs, query)
        use = (solution.status != INFEASIBLE).nonzero()[:, 0]
        answer, cost = finish(setting, solution.x[use], source[use], which[use])
        x = best_per_row(answer, cost, source[use], len(query))
        possible = torch.zeros(len(query), device=query.x.device)
        possible = possible.index_add(0, source[use], torch.ones_like(cost, dtype=possible.dtype))
        fitted = torch.tensor(
            [int(t) in self.classes_ for t in query.target.tolist()], device=query.x.device
        )
        asked = torch.zeros_like(fitted).index_fill(0, rows, True)
        return x, asked & fitted & (possible == 0)

    def _setting(self, query: Query, home: Tensor) -> Setting:
        device = query.x.device
        columns = torch.as_tensor(self.space_.numeric_columns, device=device)
        wanted = sorted(set(query.target.tolist()) & self.classes_)
        balls = [self.densities_[label].ellipsoids for label in wanted]
        dense = [ball.select(ball.radius > 0) for ball in balls]
        bank = Ellipsoids.join(dense, len(columns)).to(device)
        counts = torch.tensor([len(ball) for ball in dense], dtype=torch.long, device=device)
        label = torch.tensor(wanted, dtype=torch.long, device=device).repeat_interleave(counts)
        weight = torch.ones(len(columns), dtype=torch.float64, device=device)
        if self.weights == "mad":
            weight = 1 / self.mad_.to(device)[columns]
        return Setting(query, home, columns, bank, label, weight, self.norm, self.margin)

    def _solve(self, programs: Programs, query: Query) -> Solution:
        if self.solver == "clarabel":
            return solve_exactly(programs.tightened(_CLEAR), query.budget)
        solution = solve_programs(
            programs.tightened(_CLEAR), max_iter=self.max_iter, budget=query.budget
        )
        open_ = (solution.status == UNDECIDED).nonzero()[:, 0][:_SECOND_OPINIONS]
        if len(open_) and exact_available():
            second = solve_exactly(programs.tightened(_CLEAR).select(open_), query.budget)
            decided = open_[second.status != UNDECIDED]
            solution.x[decided] = second.x[second.status != UNDECIDED]
            solution.status[open_] = second.status
        return solution
