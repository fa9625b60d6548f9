"""Counterfactuals guided by prototypes (Van Looveren and Klaise, 2021)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.cegp.guidance import (
    accept_guided,
    distance_cost,
    encoded_pull,
    logit_margin,
    pulled,
    rebuilt,
    shortfall,
    summed,
)
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.tangent.autoencoder import LinearAutoencoder
from cel.cf_methods.tangent.category_distances import category_distances
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.ladder import climb, descent, tangents
from cel.cf_methods.tangent.margins import AIM, class_margins
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.tangent.prototypes import kth_nearest
from cel.cf_methods.view import ModelView
from cel.objectives import probability_hinge
from cel.parameters import check_positive, check_shares
from cel.protocols import Need, Predictor, Support
from cel.search import Found
from cel.search.gradient import RowFunction
from cel.space import FeatureSpace

__all__ = ["CEGP"]


class CEGP(LocalMixin, BaseCounterfactualMethod):
    """CEM's search, pulled towards a prototype of the target class.

    Minimise `c * max(0, max_{k != t} p_k - p_t + kappa) + beta |d|_1 + |d|_2^2
    + gamma |x' - AE(x')|_2^2 + theta |x' - prototype|_2^2`, with d = x' - x and probabilities p.
    FISTA descends the objective from x. As in the authors' code, points of the target class are
    compared by `beta |d|_1 + |d|_2^2`: the prototype guides the way, and the answer is where the
    way enters the target class (c is raised for rows where it never does). With
    `rank="objective"` they are compared by the whole objective, whose minimum lies close to the
    prototype and is found in closed form or through tangents.

    A category change a -> b costs `beta D(a, b) + D(a, b)^2` with a distance D learned from the
    training rows; see `distance_cost`.

    Args:
        model: any classifier with gradients.
        theta: weight of the prototype; 0 leaves it out (what the printed benchmark ran).
        beta: weight of the L1 term.
        gamma: weight of the reconstruction term.
        kappa: wanted margin, in probabilities.
        prototypes: "kdtree", the k-th nearest training row that the model puts into the target
            class, or "encoder", the mean of its k nearest codes.
        k: neighbours; None (encoder) takes all rows of the class.
        encoder: rows (n, d) -> codes (n, e); by default the principal directions.
        autoencoder: rows -> reconstructions; by default the best linear one.
        category_distance: "abdm", "mvdm" or "hamming".
        trust: smallest ratio of the distances to the nearest rows of the old and new class.
        rank: "distance" or "objective".
        search: "first", stop where the way enters the target class, or "c", the authors' search:
            whole descents with c bracketed and bisected, the best point of all kept.
        c_init: first c.
        c_steps: values of c tried per row.
        max_iter: FISTA steps per c.
        lr: first step size, decaying as sqrt(1 - t / max_iter); smaller than the authors' 0.01,
            so that the place of entry is met closely.
        options: see `Options`.

    References:
        Van Looveren and Klaise: Interpretable counterfactual explanations guided by prototypes.
        ECML PKDD 2021.
    """

    name = "cegp"
    version: ClassVar[int] = 3
    needs = frozenset({Need.GRADIENTS, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Van Looveren and Klaise, ECML PKDD 2021"
    _test_params: ClassVar[dict[str, Any]] = {"c_steps": 4, "max_iter": 80, "lr": 0.03}

    def __init__(
        self,
        model: Predictor,
        *,
        theta: float = 10.0,
        beta: float = 0.1,
        gamma: float = 0.0,
        kappa: float = 0.0,
        prototypes: Literal["kdtree", "encoder"] = "kdtree",
        k: int | None = 1,
        encoder: Callable[[Tensor], Tensor] | None = None,
        autoencoder: Callable[[Tensor], Tensor] | None = None,
        category_distance: Literal["abdm", "mvdm", "hamming"] = "abdm",
        trust: float = 0.0,
        rank: Literal["distance", "objective"] = "distance",
        search: Literal["first", "c"] = "first",
        c_init: float = 10.0,
        c_steps: int = 5,
        max_iter: int = 200,
        lr: float = 0.003,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.theta, self.beta, self.gamma, self.kappa = theta, beta, gamma, kappa
        self.prototypes, self.k, self.encoder = prototypes, k, encoder
        self.autoencoder, self.category_distance = autoencoder, category_distance
        self.trust, self.rank, self.search = trust, rank, search
        self.c_init, self.c_steps = c_init, c_steps
        self.max_iter, self.lr = max_iter, lr

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "c_init", "c_steps", "max_iter", "lr")
        check_positive(self, "theta", "beta", "gamma", "kappa", "trust", zero=True)
        if self.k is not None:
            check_positive(self, "k")
        check_shares(self, ("kappa",))

    def _fit(self, train: TrainRows) -> None:
        self.distances_ = category_distances(
            self.category_distance, train.x.cpu(), train.y.cpu(), self.space_
        ).to(train.x)
        self.linear_ae_ = LinearAutoencoder(train.x)

    def _explain(self, query: Query) -> Answer:
        apart = self.distances_.to(query.x)
        new, old = self._prototypes(query, query.target, self.k or 1), None
        if self.trust:
            old = self._prototypes(query, query.model.scores(query.x).argmax(1), 1)
        near = cost = distance_cost(query, self.beta, apart)
        if self.theta and self.prototypes == "kdtree":
            cost = pulled(cost, new, self.theta, apart)
        problem = NearestPoint(
            query=query,
            cost=replace(cost, extra=self._extra(query)),
            margins=class_margins(query),
            accept=accept_guided(query, self.kappa, self.trust, old, new),
            aim=AIM + logit_margin(self.kappa),
        )
        if self.rank == "objective" or not self.theta:
            slow = descent(lambda part: self._descend(part, part.cost.value, self.c_init), 50)
            rungs = [slow] if problem.cost.extra is not None else [tangents(50), slow]
            return climb(problem, rungs, finish=lambda _, found: found)
        if self.search == "c":
            return Answer(x=self._descend(problem, near.value, self.c_init).x)
        plain = replace(problem, cost=near)
        found = plain.restart(self._enter(problem, near), lambda rows: new[rows][:, None], steps=0)
        return Answer(x=plain.finish(found, whole_features=False).x)

    def _prototypes(self, query: Query, classes: Tensor, k: int) -> Tensor:
        """Return (n, d) the k-th nearest training row of a class, or the row itself if none is."""
        train, numeric = self.train_, query.region.layout.numeric
        return kth_nearest(query.x, classes, train.x, train.y, numeric, self.distances_, k)

    def _extra(self, query: Query) -> RowFunction | None:
        """Return the terms of the objective that have no closed form."""
        terms: list[RowFunction] = []
        if self.theta and self.prototypes == "encoder":
            encode = self.encoder or self.linear_ae_.encode
            terms.append(encoded_pull(query, self.train_, encode, self.theta, self.k))
        if self.gamma:
            terms.append(rebuilt(self.autoencoder or self.linear_ae_, self.gamma))
        return summed(terms) if terms else None

    # -- the search --------------------------------------------------------------------------

    def _enter(self, problem: NearestPoint, near: SeparableCost) -> Found:
        """Follow the descent until it enters the target class; raise c where it never does."""
        found, c = Found.nothing(problem.query.x), self.c_init
        for _ in range(self.c_steps):
            todo = (~found.ok).nonzero()[:, 0]
            if not len(todo) or problem.query.budget.expired:
                break
            part, rank = problem.on(todo), near.select(todo).value
            found.put_better(todo, self._descend(part, rank, c, first=True))
            c *= 10
        return found

    def _descend(
        self, problem: NearestPoint, rank: RowFunction, c: float, *, first: bool = False
    ) -> Found:
        """Descend the objective from the rows; with `first` end at the first accepted point."""
        return problem.descend(
            shortfall(problem.query, self.kappa + AIM),
            slope=probability_hinge(self.kappa + AIM),
            stepper=problem.fista(self.lr, self.max_iter),
            weight=c,
            rounds=1 if first else self.c_steps,
            steps=self.max_iter,
            rank=rank,
            check_every=1 if first else 5,
            stop_at_first=first,
            rest=True,
        )
