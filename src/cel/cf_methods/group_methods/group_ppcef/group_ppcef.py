"""Group-wise PPCEF: counterfactuals of all, of groups and of single rows from one objective."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import GroupMixin, Options
from cel.cf_methods.explanations.base import ExplanationMethod, FitSplit
from cel.cf_methods.explanations.cohort import Applied, Cohort, Learned
from cel.cf_methods.explanations.edits import BinCost
from cel.cf_methods.explanations.units import GlobalExplanation, Unit
from cel.cf_methods.explanations.wording import Term
from cel.cf_methods.global_methods.globe_ce.path import NEVER, Directions
from cel.cf_methods.group_methods.group_ppcef.shared_shifts import (
    SharedShifts,
    fit_shifts,
    start_shifts,
)
from cel.cf_methods.group_methods.group_ppcef.shift_objective import (
    Distance,
    ShiftObjective,
    ShiftWeights,
)
from cel.cf_methods.group_methods.group_ppcef.shift_scalars import ShiftAnswers, answers_along
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.tangent.plausible import DensityDemand, class_thresholds, levels_of
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.models.generative.levels import DensityLevels
from cel.parameters import at_least, check_positive, check_shares
from cel.protocols import DensityModel, Need, Predictor
from cel.search import Adam, Found, gradient_search
from cel.space import FeatureSpace

__all__ = ["GroupPPCEF"]

HELD_OUT = 0.2  # share of the affected rows that the shifts are not fitted on
FEW = 10  # rows below which nothing is held out
FEWEST = 10  # steps without a gain that are waited for, however long they are
ONE_SHIFT = 0.99  # share of a row's largest shift that counts as one shift


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shifted:
    """Directions of the shifts, the scalars (K,) of the shifts themselves, and the cost."""

    directions: Directions
    size: Tensor
    price: BinCost
    fitted: SharedShifts


class GroupPPCEF(GroupMixin, ExplanationMethod):
    """Shared shifts towards plausible counterfactuals: `x'_i = x_i + exp(m_i) (S D)_i`.

    D (K, d) are shifts, the rows of S lie on the simplex (sparsemax), m are log-magnitudes. One
    shift for all rows (`level="global"`), a few (`"group"`) and one for each row (`"local"`) have
    the same objective

        a_d |x' - x| + a_c L_v + a_p L_p + a_s H(S_i) + a_k H(mean S) + a_D max(0, -log det DD')

    with the validity and plausibility terms of PPCEF. D, S and m are fitted by Adam on training
    rows. Then D stays: a row is moved along each shift just as far as it needs to reach the class
    and, if the way leads there, the level of log-density; it gets the cheapest plausible answer,
    or the cheapest one if no shift leads to a plausible place. With `level="local"` every row has
    its own shift, and the rows that are explained are descended themselves.

    Args:
        model: any classifier with gradients.
        gen_model: density with `log_prob(x, context)`, trained on encoded rows and classes.
        level: "group", "global" (one shift) or "local" (as many shifts as rows).
        groups: shifts of level "group".
        quantile: of the log-densities of the class that counts as plausible.
        weights: (a_d, a_c, a_p, a_s, a_k, a_D) of the means over rows. The determinant is that of
            the shifts' directions, so that it asks for different ones and not for long ones.
        distance: norm of the change, in encoded units.
        magnitudes: whether rows have magnitudes of their own; without, a shift is one action.
        epsilon: by how much p_t shall exceed the best other probability.
        steps: most descent steps.
        lr: step size of Adam.
        patience: steps without a gain after which the descent ends.
        stride: steps that are made as one: `lr` is multiplied, `steps` divided by it.
        grid: scalars of the search along a shift.
        levels: log-densities of training rows from which the threshold follows, when known.
        fit_split: see `ExplanationMethod`.
        max_rows: see `ExplanationMethod`.
        options: settings that every method has.

    Features that cannot change have no part in D; directions hold by projecting D after every
    step, everything else by settling each row's point in its region.
    """

    name: ClassVar[str] = "group_ppcef"
    version: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.GRADIENTS, Need.DENSITY, Need.TRAIN_ROWS})
    reference: ClassVar[str] = (
        "Unifying Perspectives: Plausible Counterfactual Explanations on Global, Group-wise, and "
        "Local Levels. 2024, arXiv:2405.17642"
    )
    _test_params: ClassVar[dict[str, Any]] = {"groups": 2, "steps": 30, "grid": 32}

    def __init__(
        self,
        model: Predictor,
        *,
        gen_model: DensityModel,
        level: Literal["group", "global", "local"] = "group",
        groups: int = 4,
        quantile: float = 0.25,
        weights: tuple[float, float, float, float, float, float] = (1, 100, 10, 10, 1, 0.1),
        distance: Distance = "l1",
        magnitudes: bool = True,
        epsilon: float = 0.02,
        steps: int = 500,
        lr: float = 0.01,
        patience: int = 50,
        stride: int = 1,
        grid: int = 64,
        levels: DensityLevels | None = None,
        fit_split: FitSplit = "train",
        max_rows: int | None = 400,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, fit_split=fit_split, max_rows=max_rows, **options)
        self.gen_model, self.level, self.groups = gen_model, level, groups
        self.quantile, self.weights, self.distance = quantile, weights, distance
        self.magnitudes, self.epsilon = magnitudes, epsilon
        self.steps, self.lr, self.patience, self.grid = steps, lr, patience, grid
        self.stride, self.levels = stride, levels

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        super()._check(model, space)
        at_least(self, 1, "groups", "steps", "patience", "stride", "grid")
        check_positive(self, "lr")
        check_positive(self, "epsilon", zero=True)
        check_shares(self, ("quantile",), closed=True)
        if self.level == "local" and self.fit_split == "test":
            raise ConfigError("GroupPPCEF: level 'local' fits the rows it explains in any case")
        if len(self.weights) != 6 or min(self.weights) < 0:
            raise ConfigError(f"GroupPPCEF: weights must be six numbers >= 0, got {self.weights}")

    def _fit(self, train: TrainRows) -> None:
        super()._fit(train)
        view = ModelView(self.model)
        known = self.levels or levels_of(self.gen_model, train, view)
        level = class_thresholds(known, self.quantile, view.n_outputs)
        self.threshold_, self.spread_ = torch.as_tensor(level).to(train.x), known.spread

    def explanation(self, target: Any = None) -> GlobalExplanation:
        """Return the shifts for a target, fitting them if they do not exist yet.

        Args:
            target: as in `explain`; by default the desirable class, or the only one explained.
        """
        if self.level == "local":
            raise ConfigError("level 'local' has one shift per row; call explain, or use 'group'")
        return super().explanation(target)

    def _objective(self, query: Query) -> ShiftObjective:
        names = ("distance", "validity", "plausibility", "choice", "groups", "difference")
        level = self.threshold_.to(query.x)[query.target]
        return ShiftObjective(
            query=query,
            demand=DensityDemand(
                query=query, density=self.gen_model, level=level, spread=self.spread_
            ),
            weights=ShiftWeights(**dict(zip(names, map(float, self.weights), strict=True))),
            epsilon=self.epsilon,
            distance=self.distance,
        )

    def _pace(self) -> dict[str, Any]:
        """Steps, their size, and how many may bring nothing, all by the stride."""
        return {
            "steps": math.ceil(self.steps / self.stride),
            "lr": self.lr * self.stride,
            "patience": max(FEWEST, math.ceil(self.patience / self.stride)),
        }

    # -- shared shifts -----------------------------------------------------------------------

    def _learn(self, problem: Cohort) -> Learned:
        if not bool(problem.hit.any()):
            return Learned(reason="no training row has the target, so there is nowhere to go")
        part, held = _parts(problem)
        objective = self._objective(part.query)
        count = 1 if self.level == "global" else self.groups
        start = start_shifts(part, objective, count, self.random_state)
        made = fit_shifts(
            part, objective, start, **self._pace(), magnitudes=self.magnitudes,
        ).pruned(problem.price.scale)  # fmt: skip
        moving = (made.shift != 0).any(1)
        if not bool(moving.any()):
            return Learned(reason="no shift is permitted: the ways to the class are all forbidden")
        shift = made.shift[moving]
        state = _Shifted(
            directions=Directions.of(shift, problem.space, problem.price),
            size=shift.abs() @ problem.price.scale,
            price=problem.price,
            fitted=made,
        )
        answers = self._answers(state, problem.query)
        works = answers.cost.isfinite()
        logs = {
            "loss": made.loss,
            "steps": made.steps,
            "one_shift": float((made.share.amax(1) >= ONE_SHIFT).double().mean()),
            "plausible": float((answers.plausible & works).any(0).double().mean()),
            "fitted_validity": float(works[:, : len(part.query)].any(0).double().mean()),
            "held_out_validity": float(works[:, held].any(0).double().mean()),
        }
        units = tuple(self._unit(problem, state, answers, n) for n in range(len(state.directions)))
        return Learned(units=units, state=state, logs=logs, applied=_applied(answers))

    def _answers(self, state: _Shifted, query: Query) -> ShiftAnswers:
        return answers_along(
            state.directions, self._objective(query), state.price, grid=self.grid,
            fixed=None if self.magnitudes else state.size,
        )  # fmt: skip

    def _apply(self, state: _Shifted, query: Query) -> Applied:
        return _applied(self._answers(state, query))

    def _unit(self, problem: Cohort, state: _Shifted, answers: ShiftAnswers, number: int) -> Unit:
        chosen = (answers.best() == number) & answers.cost.isfinite().any(0)
        works = answers.cost[number].isfinite()
        good = answers.plausible[number, works]
        cost = answers.cost[number, works]
        return Unit(
            id=problem.unit_id(number),
            kind="direction",
            effects=_effects(problem, state, number),
            cost=float(cost.mean()) if len(cost) else float("nan"),
            coverage=float(chosen.double().mean()),
            correctness=float(works[chosen].double().mean()) if bool(chosen.any()) else 0.0,
            details={
                "size": float(state.size[number]),
                "works": float(works.double().mean()),
                "plausible": float(good.double().mean()) if len(good) else 0.0,
            },
        )

    # -- a shift for each row ----------------------------------------------------------------

    def _explain(self, query: Query) -> Answer:
        if self.level != "local":
            return super()._explain(query)
        found = self._descend(query, plausible=True)
        rest = (~found.ok).nonzero()[:, 0]
        if len(rest) and not query.budget.expired:
            found.put_better(rest, self._descend(query.select(rest), plausible=False))
        return Answer(x=found.x, infeasible=query.region.fixed.all(1))

    def _descend(self, query: Query, *, plausible: bool) -> Found:
        """Descend the objective from each row, to an answer that is plausible or merely valid."""
        objective, pace = self._objective(query), self._pace()
        return gradient_search(
            objective.loss,
            query.x,
            stepper=Adam(pace["lr"]),
            project=query.project,
            accept=objective.demand.accept() if plausible else query.accept,
            cost=objective.length,
            steps=pace["steps"],
            check_every=4 if self.stride == 1 else 2,
            patience=pace["patience"],
            give_up=2 * pace["patience"],
            budget=query.budget,
        )


def _parts(problem: Cohort) -> tuple[Cohort, slice]:
    """Return what the shifts are fitted on, and the rows that are kept to tell how they carry."""
    n = len(problem.query)
    kept = n if n < FEW else n - round(HELD_OUT * n)
    part = problem.query.select(problem.query.rows()[:kept])
    held = slice(kept, n) if kept < n else slice(0, n)
    return replace(problem, query=part), held


def _applied(answers: ShiftAnswers) -> Applied:
    best = answers.best()
    works = answers.cost.isfinite()
    rows = torch.arange(len(best), device=best.device)
    return Applied(
        x=answers.x[best, rows],
        unit=torch.where(works.any(0), best, -1),
        matches=works.sum(0),
    )


def _effects(problem: Cohort, state: _Shifted, number: int) -> tuple[Term, ...]:
    """Numbers move by this much at magnitude 1; categories move to their goal."""
    one, size = state.directions.select([number]), float(state.size[number])
    terms = []
    for f in problem.space:
        columns = list(f.columns)
        if f.one_hot:
            if bool((one.leave[0, columns] < NEVER).any()):
                goal = int(one.goal[0, columns].argmax())
                terms.append(Term(f.name, "=", f.categories[goal]))
        elif float(one.shift[0, columns[0]]):
            amount = size * float(one.shift[0, columns[0]])
            terms.append(Term(f.name, "+", problem.wording.shift(f, amount)))
    return tuple(terms)
