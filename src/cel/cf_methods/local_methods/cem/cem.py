"""Contrastive explanations (Dhurandhar et al., 2018): pertinent negatives and positives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.cem.information import (
    adding,
    farther,
    kept_away,
    no_information,
    removing,
    values_without_information,
)
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.tangent.autoencoder import LinearAutoencoder
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.ladder import climb, descent, known_rows, restarts, tangents
from cel.cf_methods.tangent.margins import AIM, accept_beyond, class_margins
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.view import ModelView
from cel.errors import NotFittedError
from cel.objectives import hinge, margin_hinge, reconstruction_error
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support
from cel.search import Fista, Found
from cel.space import FeatureSpace

__all__ = ["CEM"]

STEPS = 50  # tangents of one search


class CEM(LocalMixin, BaseCounterfactualMethod):
    """Minimise `c * hinge + beta |d|_1 + |d|_2^2 + gamma |x' - AE(x')|_2^2`.

    A pertinent negative (PN) is what must be added to a row so that it gets the target class:
    `hinge = max(0, max_{k != t} Z_k - Z_t + kappa)` on logits Z, d = x' - x. A pertinent positive
    (PP) is the part of a row that alone keeps its class: d = x' - b, where b is the value without
    information, and every feature stays between b and x.

    The paper and its codes shrink by `beta` after each step of size lr. The proximal map of the
    objective shrinks by `lr * beta`; with `beta` a feature moves only if one step pushes it
    farther than `beta`, saturated models never move, and the point reached is not the minimum.
    The default is the proximal map. Linear models are solved exactly, others through their
    tangents, with changes of categories tried one by one; rows where that fails go through FISTA
    with the search for c, as do a reconstruction term and `threshold="paper"`.

    Args:
        model: any classifier with gradients.
        mode: "PN", or "PP" (then `explain` keeps the predicted class).
        kappa: wanted margin, in logits (the paper's unit; alibi's is probability).
        beta: weight of the L1 term.
        gamma: weight of the reconstruction term.
        autoencoder: rows (n, d) -> reconstructions (n, d); by default, when gamma > 0, the best
            linear autoencoder of the training rows.
        pn_constraint: let a PN only add, that is move features away from b: True on the side of
            b where the row is, "two-sided" (the paper's set) also to the other side if that is
            farther from b than the row, by descent. Off by default: for tables, where less can be
            the remedy as well as more, it leaves rows unanswered.
        no_info: (d,) encoded values b; by default the median, or the most frequent category.
        threshold: "prox", or "paper" for the shrinkage by `beta`.
        c_init: first c.
        c_steps: values of c tried per row.
        max_iter: FISTA steps per c.
        lr: first step size, decaying as sqrt(1 - t / max_iter).
        restarts: other starting points for unanswered rows.
        options: see `Options`.

    References:
        Dhurandhar et al.: Explanations based on the missing. NeurIPS 2018.
    """

    name = "cem"
    version: ClassVar[int] = 3
    needs = frozenset({Need.GRADIENTS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Dhurandhar et al., NeurIPS 2018"
    _test_params: ClassVar[dict[str, Any]] = {"c_steps": 3, "max_iter": 50, "lr": 0.03}

    def __init__(
        self,
        model: Predictor,
        *,
        mode: Literal["PN", "PP"] = "PN",
        kappa: float = 0.0,
        beta: float = 0.1,
        gamma: float = 0.0,
        autoencoder: Callable[[Tensor], Tensor] | None = None,
        pn_constraint: bool | Literal["two-sided"] = False,
        no_info: Any = None,
        threshold: Literal["prox", "paper"] = "prox",
        c_init: float = 10.0,
        c_steps: int = 5,
        max_iter: int = 200,
        lr: float = 0.01,
        restarts: int = 8,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.mode, self.kappa, self.beta, self.gamma = mode, kappa, beta, gamma
        self.autoencoder, self.pn_constraint, self.no_info = autoencoder, pn_constraint, no_info
        self.threshold, self.c_init, self.c_steps = threshold, c_init, c_steps
        self.max_iter, self.lr, self.restarts = max_iter, lr, restarts

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "c_init", "c_steps", "max_iter", "lr")
        check_positive(self, "kappa", "beta", "gamma", "restarts", zero=True)

    def _require_fit(self) -> None:
        needs_b = self.no_info is None and (self.mode == "PP" or self.pn_constraint)
        needs_rows = needs_b or (self.gamma > 0 and self.autoencoder is None)
        if needs_rows and not hasattr(self, "train_"):
            raise NotFittedError(
                "CEM needs training rows for the values without information or for the "
                "autoencoder; call fit(split) or fit(X, y), or pass no_info= and autoencoder="
            )

    def _fit(self, train: TrainRows) -> None:
        self.no_info_ = no_information(train.x, self.space_)
        if self.gamma and self.autoencoder is None:
            self.autoencoder_ = LinearAutoencoder(train.x)

    @property
    def keeps_class(self) -> bool:
        """Whether rows keep their predicted class: that is what a pertinent positive is."""
        return self.mode == "PP"

    def _explain(self, query: Query) -> Answer:
        query, center = self._sides(query)
        problem = self._problem(query, center)
        if self._two_sided:
            base = self._base(query)
            problem = replace(
                problem, accept=farther(accept_beyond(query, self.kappa), query, base)
            )
        if self.threshold == "paper" or self._two_sided:
            return Answer(x=self._descend(problem).x)
        others = restarts(known_rows(getattr(self, "train_", None), self.restarts), STEPS)
        slow = descent(self._descend, STEPS)
        plain = problem.cost.extra is None
        return climb(problem, [tangents(STEPS), others, slow] if plain else [slow, others])

    # -- the problem -------------------------------------------------------------------------

    def _sides(self, query: Query) -> tuple[Query, Tensor]:
        """Return the query with the region of a PN or PP, and where changes are counted from."""
        if self.mode == "PN" and not self.pn_constraint:
            return query, query.x
        b = self._base(query)
        if self._two_sided:
            return replace(query, region=adding(query.region, b, both=True)), query.x
        region = adding(query.region, b) if self.mode == "PN" else removing(query.region, b)
        center = query.x if self.mode == "PN" else torch.where(region.fixed, query.x, b)
        return replace(query, region=region), center

    @property
    def _two_sided(self) -> bool:
        return self.mode == "PN" and self.pn_constraint == "two-sided"

    def _base(self, query: Query) -> Tensor:
        return values_without_information(self.no_info, getattr(self, "no_info_", None), query)

    def _problem(self, query: Query, center: Tensor) -> NearestPoint:
        cost = SeparableCost.around(
            query.region, l1=self.beta, l2=True, change=1.0 + self.beta, center=center
        )
        rebuild = self.autoencoder or getattr(self, "autoencoder_", None)
        if self.gamma and rebuild is not None:
            gamma, again = self.gamma, rebuild
            cost = replace(cost, extra=lambda x, rows: gamma * reconstruction_error(x, again(x)))
        return NearestPoint(
            query=query,
            cost=cost,
            margins=class_margins(query),
            accept=accept_beyond(query, self.kappa),
            aim=self.kappa + AIM,
        )

    # -- the search --------------------------------------------------------------------------

    def _descend(self, problem: NearestPoint) -> Found:
        return problem.descend(
            lambda x, rows: hinge(problem.margin(x, rows), problem.aim),
            slope=margin_hinge(problem.aim),
            stepper=self._stepper(problem),
            weight=self.c_init,
            rounds=self.c_steps,
            steps=self.max_iter,
        )

    def _stepper(self, problem: NearestPoint) -> Fista:
        step = problem.fista(self.lr, self.max_iter, by_step=self.threshold == "prox")
        if self._two_sided:
            query = problem.query
            step = replace(step, prox=kept_away(step.prox, query, self._base(query)))
        return step
