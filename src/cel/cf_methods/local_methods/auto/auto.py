"""`auto`: one incumbent table, several methods, and a word on which of them answered."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import METHODS, BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.auto.plans import PLANS, Stage, Wish, kind_of
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.errors import BudgetExceeded, CelError
from cel.protocols import DensityModel, Need, Predictor, Proof, Support, Task
from cel.search import Budget, Found
from cel.space.distances import mad_scale
from cel.space.layout import by_feature

__all__ = ["Auto"]

PER_CHANGE = 0.05  # cost of touching a feature at all


class Auto(LocalMixin, BaseCounterfactualMethod):
    """Answer each row by the first method of a plan that can, and keep the cheapest answer.

    The plan depends on what can be seen of the model: exact methods for linear models and trees,
    tangents where there are gradients, donors and sampling for black boxes (`PLANS`). All stages
    share one budget and one table of incumbents, compared by `L1 / MAD + 1 per changed category +
    0.05 per changed feature`; a later stage sees only rows that are still open and can never make
    an answer worse. Methods that refuse the model, or whose packages are missing, are passed over
    and named in `logs["passed_over"]`. `logs["source"]` tells for each row which stage answered.

    Args:
        model: any model.
        want: "near", "sparse", "plausible" (rows of real people first) or "proof" (exact methods
            where there are some).
        gen_model: a density; with it and `want="plausible"`, PPCEF is asked first.
        options: see `Options`.
    """

    name = "auto"
    version: ClassVar[int] = 6  # may ask `cearm` for values; that begins elsewhere
    tasks = frozenset({Task.CLASSIFICATION, Task.REGRESSION})
    needs = frozenset({Need.TRAIN_ROWS})
    supports = frozenset(Support)
    proves: ClassVar[bool] = True
    reference = ""
    _copies: ClassVar[int] = 300

    def __init__(
        self,
        model: Predictor,
        *,
        want: Wish = "near",
        gen_model: DensityModel | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.want, self.gen_model = want, gen_model

    def _fit(self, train: TrainRows) -> None:
        scale = mad_scale(train.x.cpu().numpy(), self.space_)
        self.scale_ = torch.as_tensor(scale).to(train.x)
        self.ready_: dict[str, BaseCounterfactualMethod] = {}
        self.passed_over_: dict[str, str] = {}

    def plan(self) -> tuple[Stage, ...]:
        """Return the stages for this model and wish, in order."""
        view = self._view(Budget())
        stages = PLANS[kind_of(view), view.task]
        plan = tuple(s for s in stages if not s.wishes or self.want in s.wishes)
        if self.want == "plausible" and self.gen_model is not None and view.differentiable:
            return (Stage(method="ppcef", params={"gen_model": self.gen_model}), *plan)
        return plan

    def _explain(self, query: Query) -> Answer:
        return self._by(query, self.plan())

    def _by(self, query: Query, stages: tuple[Stage, ...]) -> Answer:
        """Return what some stages answer, one after the other."""
        n = len(query)
        found, source = Found.nothing(query.x), np.full(n, "", dtype=object)
        infeasible = torch.zeros(n, dtype=torch.bool, device=query.x.device)
        bound = torch.full_like(query.x[:, 0], torch.nan)
        proof = np.full(n, Proof.NONE.value, dtype=object)
        cost = self._cost(query)
        for stage in stages:
            open_ = ~infeasible if stage.every else ~infeasible & ~found.ok
            rows = open_.nonzero()[:, 0]
            if not len(rows) or query.budget.expired:
                continue
            method = self._stage(stage)
            if method is None:
                continue
            before = found.cost.clone()
            try:
                answer = method.answer(query.select(rows))
                held = ~answer.x.isnan().any(1)
                found.offer(answer.x[held], rows[held], query.accept, cost)
            except BudgetExceeded:  # what was found before is kept
                break
            won = (found.cost < before).cpu().numpy()
            source[won], proof[won] = stage.method, Proof.NONE.value
            if method.proves:
                numbers = rows.cpu().numpy()
                self._take_proofs(answer, rows, found, infeasible, bound)
                if answer.proof is not None:
                    mine = won[numbers]
                    proof[numbers[mine]] = np.asarray(answer.proof)[mine]
        infeasible &= ~found.ok
        kept = torch.as_tensor(proof != Proof.NONE.value).to(found.ok.device)
        bound = torch.where(kept, bound, torch.nan)  # another stage's answer, another bound
        return Answer(
            x=found.x,
            infeasible=infeasible,
            bound=bound,
            proof=proof,
            logs={"passed_over": dict(self.passed_over_), "kind": kind_of(query.model)},
            row_logs={"source": [s or None for s in source]},
        )

    def _take_proofs(
        self, answer: Answer, rows: Tensor, found: Found, infeasible: Tensor, bound: Tensor
    ) -> None:
        """Take over proofs of one stage; an incumbent outweighs any word of impossibility."""
        if answer.infeasible is not None:
            infeasible[rows] |= answer.infeasible & ~found.ok[rows]
        if answer.bound is not None:
            bound[rows] = answer.bound.to(bound)

    def _stage(self, stage: Stage) -> BaseCounterfactualMethod | None:
        """Return a fitted method, or None with the reason in `passed_over_`."""
        name = stage.method
        if name in self.ready_:
            return self.ready_[name]
        if name in self.passed_over_:
            return None
        try:
            made: BaseCounterfactualMethod = self._class_of(name)(
                self.model,
                space=self.space,
                random_state=self.random_state,
                tolerance=self.tolerance,
                **stage.params,
            )
            made.adopt_rows(self)
        except CelError as error:
            self.passed_over_[name] = str(error)
            return None
        self.ready_[name] = made
        return made

    def _class_of(self, name: str) -> Any:
        """Return the class of the method of a stage."""
        return METHODS.get(name)

    def _cost(self, query: Query) -> Any:
        lay, scale = query.region.layout, self.scale_.to(query.x)
        weight = torch.where(lay.numeric, 1 / scale, torch.full_like(scale, 0.5))

        def cost(x: Tensor, rows: Tensor) -> Tensor:
            moved = (x - query.x[rows]).abs()
            touched = by_feature(moved, lay.owner, len(query.region.space))
            return (moved * weight).sum(-1) + PER_CHANGE * (touched > 0).sum(-1)

        return cost
