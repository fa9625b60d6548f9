"""T-CREx: rules that lead to the target, and metarules that say whose (Bewley et al., 2024)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import GroupMixin, Options
from cel.cf_methods.explanations.base import ExplanationMethod, FitSplit
from cel.cf_methods.explanations.cohort import Applied, Cohort, Learned
from cel.cf_methods.explanations.units import GlobalExplanation
from cel.cf_methods.group_methods.tcrex.boxes import Surrogates
from cel.cf_methods.group_methods.tcrex.completion import Completion, Order, complete
from cel.cf_methods.group_methods.tcrex.learning import (
    Evidence,
    Learnt,
    actionable_views,
    learn_boxes,
)
from cel.cf_methods.query import Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.parameters import at_least
from cel.protocols import Predictor, Task
from cel.search import Budget
from cel.space import FeatureSpace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TCREx"]


class TCREx(GroupMixin, ExplanationMethod):
    """Send rows into large boxes of training rows that nearly all have the target outcome.

    Trees imitate the model; the box of each of their nodes is a candidate rule R with

        feasibility(R) = share of training rows in R,
        accuracy(R)    = share of those with the target outcome.

    Boxes are the boxes with feasibility >= rho and accuracy >= tau that no other such box
    contains. A row's rule minimises (features of x outside R) - feasibility(R); metarules are the
    regions of rows that share it.

    Accuracy speaks about the rows in a box, not about the point of the box nearest to x, which
    often misses the target when the model is smooth. How features are filled therefore matters:

    Args:
        model: any predictor.
        tau: smallest accuracy of a rule.
        rho: smallest feasibility of a rule.
        confidence: standard errors by which the accuracy of a rule is lowered before it is
            compared with tau, since the best of many boxes look better than they are; 0 for
            the paper's plain accuracy.
        tau_floor: how far tau is relaxed when no box reaches it; below, rho is halved and the
            trees grow deeper. `tau_effective` in the logs is what was asked for in the end.
        n_trees: one tree, or a forest on bootstrap samples.
        max_leaf_nodes: most leaves of a tree.
        actionable: if rules are out of reach of some rows because features are fixed or may
            move one way only, grow also trees that do not see these features; their rules are
            for such rows.
        completion: "clip" moves x just behind the faces of the box; "interior" copies the
            features outside the box from the nearest training row in it that has the target
            outcome; "donor" goes on copying until the model gives the target.
        order: "donor" copies first what brings the row closest to the target ("gain"), or what
            differs most ("difference").
        n_rules: rules tried for a row, by cost; the cheapest counterfactual in bins is kept.
        groups: "rule" answers rows by the rules of least cost, and units are rules; "metarule"
            answers them by the rule of their metarule alone, and units are metarules.
        max_rules: most rules, the most feasible ones.
        max_donors: most training rows of a rule to copy from.
        bounds: "mirrored" imitates the boxes behind the printed tables (leaves with their
            thresholds on the wrong side, whatever their class); it is for comparing with print.
        fit_split: see `ExplanationMethod`.
        max_rows: see `ExplanationMethod`.
        options: settings that every method has.

    The conditions of a rule as a unit are the smallest box around its metarules; `metarules()`
    lists these exactly. The whole space is never a rule. "clip" and "interior" also give points
    that miss the target (status `invalid`): that is what the rule says. The printed benchmark
    used `max_leaf_nodes=8, completion="clip", n_rules=1, actionable=False`.

    Targets of regression are rounded to multiples of the tolerance; the outcome asked of a rule is
    the interval of +- the tolerance around that, the outcome asked of a row its own interval.
    """

    name: ClassVar[str] = "tcrex"
    tasks: ClassVar[frozenset[Task]] = frozenset(Task)
    reference: ClassVar[str] = (
        "T. Bewley, S. I. Amoukou, S. Mishra, D. Magazzeni, M. Veloso. Counterfactual Metarules "
        "for Local and Global Recourse. ICML 2024, PMLR 235:3707, arXiv:2405.18875"
    )
    _test_params: ClassVar[dict[str, Any]] = {"max_rows": 200, "max_donors": 100}

    def __init__(
        self,
        model: Predictor,
        *,
        tau: float = 0.9,
        rho: float = 0.02,
        confidence: float = 2.0,
        tau_floor: float = 0.85,
        n_trees: int = 1,
        max_leaf_nodes: int | None = None,
        actionable: bool = True,
        completion: Completion = "donor",
        order: Order = "gain",
        n_rules: int = 5,
        groups: Literal["rule", "metarule"] = "rule",
        max_rules: int = 1000,
        max_donors: int = 500,
        bounds: Literal["tree", "mirrored"] = "tree",
        fit_split: FitSplit = "train",
        max_rows: int | None = 1000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, fit_split=fit_split, max_rows=max_rows, **options)
        self.tau = tau
        self.rho = rho
        self.confidence = confidence
        self.tau_floor = tau_floor
        self.n_trees = n_trees
        self.max_leaf_nodes = max_leaf_nodes
        self.actionable = actionable
        self.completion = completion
        self.order = order
        self.n_rules = n_rules
        self.groups = groups
        self.max_rules = max_rules
        self.max_donors = max_donors
        self.bounds = bounds

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        super()._check(model, space)
        at_least(self, 1, "n_trees", "n_rules", "max_donors")
        at_least(self, 1, "max_rules")
        at_least(self, 0, "confidence")
        at_least(self, 2, "max_leaf_nodes")
        for name in ("tau", "rho", "tau_floor"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"{name} must be in (0, 1], got {getattr(self, name)}")

    # -- regression: one explanation for each multiple of the tolerance ----------------------

    @property
    def _width(self) -> float:
        return max(self.tolerance, 1e-3)

    def _value(self, key: int) -> float:
        """Return the target that a key stands for; keys count 0, -1, 1, -2, 2, ..."""
        return self._width * (key // 2 if key % 2 == 0 else -(key + 1) // 2)

    def _key_of(self, target: Tensor, y: Tensor) -> Tensor:
        if target.ndim == 1:
            return target
        place = (target[:, 0] / self._width).round().long()
        return torch.where(place >= 0, 2 * place, -2 * place - 1)

    def _affected(self, key: int, train: TrainRows) -> tuple[Tensor, Tensor]:
        if train.y.ndim == 1:
            return super()._affected(key, train)
        return ~self._hits(key, train), torch.full_like(train.y, self._value(key))

    def _hits(self, key: int, train: TrainRows) -> Tensor:
        return self._near(key, train, 1.0)

    def _near(self, key: int, train: TrainRows, reach: float) -> Tensor:
        """Return which rows have the target, or are within `reach` tolerances of it."""
        if train.y.ndim == 1:
            return train.y == key
        return (train.y[:, 0] - self._value(key)).abs() <= reach * self._width

    def _target_name(self, key: int) -> Any:
        if Task(self.model.task) is Task.CLASSIFICATION:
            return super()._target_name(key)
        outcome = getattr(self, "target_", None)
        value = self._value(key)
        return value if outcome is None else float(outcome.decode([[value]])[0, 0])

    def _assign_target(self, key: int, X: Any) -> Any:
        if Task(self.model.task) is Task.CLASSIFICATION:
            return super()._assign_target(key, X)
        return self._value(key)

    # -- learning and applying ---------------------------------------------------------------

    def _fit(self, train: TrainRows) -> None:
        super()._fit(train)
        y = train.y.cpu().numpy()
        self.surrogates_ = tuple(
            Surrogates(
                x=train.x.cpu().numpy(),
                y=y[:, 0] if y.ndim == 2 else y,
                columns=columns,
                n_trees=self.n_trees,
                max_leaf_nodes=self.max_leaf_nodes,
                regression=y.ndim == 2,
                seed=self.random_state,
                mirrored=self.bounds == "mirrored",
            )
            for columns in actionable_views(self.space_, self.actionable)
        )
        self.surrogates_[0].at(self.rho, Budget())
        self.__dict__.pop("_seen_later", None)

    @cached_property
    def _seen_later(self) -> TrainRows | None:
        """Held-out rows, for telling how good rules are; they are never learned from."""
        if self._split is None or not len(self._split.test.X):
            return None
        x = np.asarray(self._split.test.X, dtype=np.float32)
        outcome = torch.as_tensor(self._view(Budget()).outcome(x))
        return TrainRows(x=torch.as_tensor(x), y=outcome)

    def _learn(self, problem: Cohort) -> Learned:
        unseen = self._seen_later
        evidence = Evidence(
            surrogates=self.surrogates_,
            near=self._near(problem.key, problem.train, 1.5),
            unseen=None
            if unseen is None
            else (unseen.x.numpy(), self._hits(problem.key, unseen).numpy()),
        )
        return learn_boxes(self, problem, evidence, self._apply)

    def _apply(self, state: Learnt, query: Query) -> Applied:
        costs = state.reach.costs(query.region)
        if self.groups == "rule":
            value, rules = costs.sort(dim=1, stable=True)
            rules, usable = rules[:, : self.n_rules], value[:, : self.n_rules].isfinite()
        else:
            part = state.metarules.part_of(query.x.cpu().numpy())
            told = torch.as_tensor(state.metarules.rule[part]).to(query.x.device)[:, None]
            rules = told.clamp(min=0)
            usable = (told >= 0) & costs.gather(1, rules).isfinite()
        done = complete(
            query, state.reach, state.donors, rules, usable, how=self.completion, order=self.order
        )
        unit = done.rule
        if self.groups == "metarule":
            number = np.cumsum(state.metarules.rule >= 0) - 1
            unit = torch.where(unit >= 0, torch.as_tensor(number[part]).to(unit), -1)
        return Applied(x=done.x, unit=unit, matches=(unit >= 0).long())

    # -- the user's part ---------------------------------------------------------------------

    def metarules(self, target: Any = None) -> pd.DataFrame:
        """Return all metarules of a target: who, to which rule, and where that is.

        Args:
            target: as in `explanation`.
        """
        explanation = self.explanation(target)
        if explanation.state is None:
            raise ConfigError(f"there are no metarules: {explanation.reason}")
        state: Learnt = explanation.state
        return state.table()

    def _log(self, used: list[GlobalExplanation]) -> dict[str, Any]:
        logs = super()._log(used) | {"oracle": self.groups == "rule" and self.n_rules > 1}
        known = [e.logs for e in used if e.units]
        for name, summary in (("tau_effective", min), ("rho_effective", min)):
            logs[name] = summary((k[name] for k in known), default=None)
        for name in ("held_out_accuracy", "metarule_agreement", "fidelity"):
            values = [k[name] for k in known if np.isfinite(k[name])]
            logs[name] = float(np.mean(values)) if values else None
        return logs
