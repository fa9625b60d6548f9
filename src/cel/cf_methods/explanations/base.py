"""What global and group-wise methods share: fitted on training rows, applied to any row."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, Options
from cel.cf_methods.explanations.cohort import (
    Applied,
    Cohort,
    Learned,
    infeasible_reason,
    some_rows,
)
from cel.cf_methods.explanations.edits import BinCost
from cel.cf_methods.explanations.units import GlobalExplanation
from cel.cf_methods.explanations.wording import Wording
from cel.cf_methods.prepare import Prepared, prepare
from cel.cf_methods.query import MARGIN, Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.parameters import at_least
from cel.protocols import Need, Predictor, Task
from cel.result import ExplanationResult
from cel.search import Budget, RowStreams
from cel.space import FeatureSpace
from cel.space.region import Region

__all__ = ["ExplanationMethod", "FitSplit"]

FitSplit = Literal["train", "test"]


class ExplanationMethod(BaseCounterfactualMethod):
    """Base of methods that make one explanation per target and apply it to rows.

    The explanation of a target is made when it is first needed, from the *training* rows that the
    model does not give that target, and kept in `explanations_`.

    Args:
        model: any predictor; no gradients are needed.
        fit_split: "train", or "test" to fit on the rows to explain, as published code does.
        max_rows: affected rows used for fitting, a random subset if there are more; None for all.
        options: settings that every method has.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS})

    def __init__(
        self,
        model: Predictor,
        *,
        fit_split: FitSplit = "train",
        max_rows: int | None = 2000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.fit_split = fit_split
        self.max_rows = max_rows

    # -- the author's part -------------------------------------------------------------------

    @abstractmethod
    def _learn(self, problem: Cohort) -> Learned:
        """Make the units for one target."""

    @abstractmethod
    def _apply(self, state: Any, query: Query) -> Applied:
        """Apply what was learned to rows; every row is answered alone."""

    def _key_of(self, target: Tensor, y: Tensor) -> Tensor:
        """Return which explanation each row needs, (n,) integers, from targets and predictions."""
        return target

    def _affected(self, key: int, train: TrainRows) -> tuple[Tensor, Tensor]:
        """Return (rows (m,) bool, targets of all m rows) for fitting an explanation."""
        return train.y != key, torch.full_like(train.y, key)

    def _hits(self, key: int, train: TrainRows) -> Tensor:
        """Return which training rows have the outcome that the explanation is about."""
        return train.y == key

    def _target_name(self, key: int) -> Any:
        target = getattr(self, "target_", None)
        return target.classes[key] if target is not None else key

    def _assign_target(self, key: int, X: Any) -> Any:
        """Return the target that `assign` passes to `explain`."""
        return key if getattr(self, "target_", None) is None else self._target_name(key)

    # -- the user's part ---------------------------------------------------------------------

    def explanation(self, target: Any = None) -> GlobalExplanation:
        """Return the explanation for a target, fitting it if it does not exist yet.

        Args:
            target: as in `explain`; by default the desirable class, or the only one explained.
        """
        self._require_fit()
        if target is None and len(self.explanations_) == 1:
            return next(iter(self.explanations_.values()))
        outcome = getattr(self, "target_", None)
        task = Task(self.model.task)
        vague = target is None and getattr(outcome, "desired", None) is None
        if task is Task.CLASSIFICATION and (vague or isinstance(target, str)):
            known = () if outcome is None else outcome.classes
            if target not in known:
                raise ConfigError(f"say which class: explanation(target=...), got {target!r}")
        view = self._view(Budget(self.time_limit))
        one = prepare(self, self.train_.x[:1], target, view)
        key = self._key_of(torch.as_tensor(one.target_values), torch.as_tensor(one.y))
        return self._explanation(int(key[0]), view.budget)

    def assign(self, explanation: GlobalExplanation, X: Any, target: Any) -> ExplanationResult:
        """Give every row its unit of an explanation; see `GlobalExplanation.assign`."""
        user = copy.copy(self)
        user.fit_split = "train"
        user.explanations_ = {explanation.key: explanation}
        wanted = self._assign_target(explanation.key, X) if target is None else target
        return user.explain(X, wanted)

    # -- machinery ---------------------------------------------------------------------------

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        at_least(self, 1, "max_rows")

    def _fit(self, train: TrainRows) -> None:
        self.explanations_: dict[int, GlobalExplanation] = {}

    def _answer_in_batches(self, prepared: Prepared, view: ModelView) -> list[tuple[Any, Answer]]:
        if self.fit_split == "test":
            self._fit_on_rows(prepared, view.budget)
        return super()._answer_in_batches(prepared, view)

    def _fit_on_rows(self, prepared: Prepared, budget: Budget) -> None:
        x = torch.as_tensor(prepared.x[prepared.todo])
        target = torch.as_tensor(prepared.target_values[prepared.todo])
        keys = self._key_of(target, torch.as_tensor(prepared.y[prepared.todo]))
        for key in sorted(set(keys.tolist())):
            rows = keys == key
            self.explanations_[key] = self._make(key, x[rows], target[rows], budget)

    def _explanation(self, key: int, budget: Budget) -> GlobalExplanation:
        if key not in self.explanations_:
            rows, target = self._affected(key, self.train_)
            made = self._make(key, self.train_.x[rows], target[rows], budget)
            if budget.late:  # learning has the deadline of the rows, not their evaluations
                return made
            self.explanations_[key] = made
        return self.explanations_[key]

    def _make(self, key: int, x: Tensor, target: Tensor, budget: Budget) -> GlobalExplanation:
        limit = Budget()
        limit.deadline = budget.deadline
        problem = self._problem(key, x, target, limit)
        empty = GlobalExplanation(
            method=self.name, target=self._target_name(key), rows=len(x), key=key, owner=self
        )
        reason = infeasible_reason(problem)
        learned = Learned(reason=reason) if reason else self._learn(problem)
        made = replace(
            empty,
            units=learned.units,
            state=learned.state,
            reason=learned.reason,
            budget_hit=learned.budget_hit,
            logs=learned.logs | {"rows_used": len(problem.query)},
        )
        return self._measure(made, problem, learned.applied) if made.units else made

    def _problem(self, key: int, x: Tensor, target: Tensor, budget: Budget) -> Cohort:
        rng = np.random.default_rng([self.random_state, key % 2**32])
        kept = some_rows(x, self.max_rows, self.random_state)
        device = self._device()
        x = x[kept].to(device)
        target = target[kept].to(device)
        if target.is_floating_point():
            target = target.to(x.dtype)
        train = TrainRows(x=self.train_.x.to(device), y=self.train_.y.to(device))
        bin_cost = BinCost.of(self.space_, train.x)
        arrays = (a.cpu().numpy() for a in (bin_cost.low, bin_cost.high, train.x[0]))
        return Cohort(
            query=Query(
                x=x,
                target=target,
                region=Region.around(self.space_, x),
                model=self._view(budget),
                rng=RowStreams.of(x, self.random_state),
                budget=budget,
            ),
            train=train,
            hit=self._hits(key, train),
            bin_cost=bin_cost,
            wording=Wording(self.space_, self.pipeline_, *arrays),
            rng=rng,
            key=key,
        )

    def _measure(
        self, made: GlobalExplanation, problem: Cohort, known: Applied | None
    ) -> GlobalExplanation:
        """Add coverage, validity, cost and conflicts on the rows it was fitted on."""
        query = problem.query
        done = known or self._apply(made.state, query)
        have = ~done.x.isnan().any(1)
        valid = have.clone()
        valid[have] = query.model.margin(done.x[have], query.target[have]) >= MARGIN
        cost = problem.bin_cost(query.x[valid], done.x[valid])
        return replace(
            made,
            coverage=float(have.double().mean()),
            validity=float(valid.double().mean()),
            cost=float(cost.mean()) if len(cost) else float("nan"),
            conflict_rate=float((done.matches > 1).double().mean()),
        )

    def _explain(self, query: Query) -> Answer:
        y = self._predictions(query)
        keys = self._key_of(query.target, y)
        x, groups = torch.full_like(query.x, torch.nan), torch.full_like(keys, -1)
        used = []
        for key in sorted(set(keys.tolist())):
            explanation = self._explanation(key, query.budget)
            used.append(explanation)
            rows = (keys == key).nonzero()[:, 0]
            if not explanation.units:
                continue
            done = self._apply(explanation.state, query.select(rows))
            ids = torch.tensor([u.id for u in explanation.units], device=x.device)
            x[rows] = done.x
            groups[rows] = torch.where(done.unit >= 0, ids[done.unit.clamp(min=0)], -1)
        stuck = query.region.fixed.all(1)
        return Answer(x=x, groups=groups, infeasible=stuck, logs=self._log(used))

    def _predictions(self, query: Query) -> Tensor:
        return query.target

    def _log(self, used: list[GlobalExplanation]) -> dict[str, Any]:
        count = sum(len(e) for e in used)
        logs: dict[str, Any] = {
            "units": count,
            "rule_length": sum(e.rule_length * len(e) for e in used) / max(count, 1),
            "conflict_rate": float(np.mean([e.conflict_rate for e in used])) if used else 0.0,
            "oracle": bool(getattr(self, "oracle", True)),
            "budget_hit": any(e.budget_hit for e in used),
        }
        reasons = {str(e.target): e.reason for e in used if e.reason}
        return logs | ({"reason": reasons} if reasons else {})
