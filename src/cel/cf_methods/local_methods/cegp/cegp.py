"""Counterfactuals guided by prototypes (Van Looveren and Klaise, 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.cegp.guidance import accept_guided, distance_cost, pulled
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.settings import check_choice, check_positive
from cel.cf_methods.tangent.autoencoder import LinearAutoencoder
from cel.cf_methods.tangent.category_distances import category_distances
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.margins import AIM, class_margins
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.tangent.prototypes import encoded_prototypes, nearest_rows
from cel.cf_methods.tangent.switches import search_with_switches
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.objectives import hinge, probability_margin, reconstruction_error
from cel.protocols import Need, Support
from cel.search import Fista, Found
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
    training rows. The authors map each category to one number (multidimensional scaling of D to
    two dimensions, then one) and round back; here the relaxed one-hot block pays the *expected*
    cost, which is exact at every decodable row, where a single number distorts D as soon as a
    feature has three categories that do not lie on a line.

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
        trust: smallest ratio of the distances to the nearest rows of the old and new class; 0
            accepts all.
        rank: "distance" or "objective".
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
    version: ClassVar[int] = 2
    needs = frozenset({Need.GRADIENTS, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Van Looveren and Klaise, ECML PKDD 2021"
    _test_params: ClassVar[dict[str, Any]] = {"c_steps": 4, "max_iter": 80, "lr": 0.03}

    def __init__(
        self,
        model: Any,
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
        self.trust, self.rank, self.c_init, self.c_steps = trust, rank, c_init, c_steps
        self.max_iter, self.lr = max_iter, lr

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_choice(self, prototypes=("kdtree", "encoder"), rank=("distance", "objective"))
        check_choice(self, category_distance=("abdm", "mvdm", "hamming"))
        check_positive(self, "c_init", "c_steps", "max_iter", "lr")
        check_positive(self, "theta", "beta", "gamma", "kappa", "trust", zero=True)
        if self.k is not None:
            check_positive(self, "k")
        if self.kappa >= 1:
            raise ConfigError(
                f"CEGP: kappa is a margin of probabilities below 1, got {self.kappa}"
            )

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
            aim=AIM + _logit(self.kappa),
        )
        if self.rank == "objective" or not self.theta:
            found, infeasible = self._cheapest(problem)
            return Answer(x=found.x, infeasible=infeasible)
        plain = replace(problem, cost=near)
        found = plain.restart(self._enter(problem, near), lambda rows: new[rows][:, None], steps=0)
        return Answer(x=plain.finish(found, whole_features=False).x)

    def _prototypes(self, query: Query, classes: Tensor, k: int) -> Tensor:
        """Return (n, d) the k-th nearest training row of a class, or the row itself if none is."""
        rows = nearest_rows(
            query.x, classes, self.train_.x, self.train_.y, query.region.layout.numeric,
            self.distances_.to(query.x), k,
        )  # fmt: skip
        last = (~rows.isnan().any(-1)).sum(1).clamp(min=1) - 1
        chosen = rows[query.rows(), last]
        return torch.where(chosen.isnan(), query.x, chosen)

    def _extra(self, query: Query) -> RowFunction | None:
        """Return the terms of the objective that have no closed form."""
        terms: list[RowFunction] = []
        if self.theta and self.prototypes == "encoder":
            encode = self.encoder or self.linear_ae_.encode
            with torch.no_grad():
                pool, codes = encode(self.train_.x.to(query.x)), encode(query.x)
                labels = self.train_.y.to(query.x.device)
                goal = encoded_prototypes(codes, query.target, pool, labels, self.k)
                goal = torch.where(goal.isnan(), codes, goal)
            terms.append(lambda x, rows: self.theta * reconstruction_error(encode(x), goal[rows]))
        if self.gamma:
            rebuild = self.autoencoder or self.linear_ae_
            terms.append(lambda x, rows: self.gamma * reconstruction_error(x, rebuild(x)))
        if not terms:
            return None
        return lambda x, rows: torch.stack([term(x, rows) for term in terms]).sum(0)

    # -- the search --------------------------------------------------------------------------

    def _enter(self, problem: NearestPoint, near: SeparableCost) -> Found:
        """Follow the descent until it enters the target class; raise c where it never does."""
        found, c = Found.nothing(problem.query.x), self.c_init
        for _ in range(self.c_steps):
            todo = (~found.ok).nonzero()[:, 0]
            if not len(todo) or problem.query.budget.expired:
                break
            part, rank = problem.on(todo), near.select(todo).value
            found.put_better(todo, self._descend(part, rank, c, rounds=1, stop_at_first=True))
            c *= 10
        return found

    def _descend(
        self,
        problem: NearestPoint,
        rank: RowFunction,
        c: float,
        *,
        rounds: int,
        stop_at_first: bool,
    ) -> Found:
        query, cost = problem.query, problem.cost

        def short(x: Tensor, rows: Tensor) -> Tensor:
            margin = probability_margin(query.model.logits(x), query.target[rows])
            return hinge(margin, self.kappa + AIM)

        def shrink(x: Tensor, step: Tensor, rows: Tensor) -> Tensor:
            return query.project(cost.prox(x, step, rows), rows)

        return problem.descend(
            short,
            stepper=Fista(self.lr, self.max_iter, prox=shrink),
            weight=c,
            rounds=rounds,
            steps=self.max_iter,
            rank=rank,
            check_every=1 if stop_at_first else 5,
            stop_at_first=stop_at_first,
        )

    def _cheapest(self, problem: NearestPoint) -> tuple[Found, Tensor | None]:
        """Return the minimum of the whole objective."""
        query, infeasible = problem.query, None
        if problem.has_closed_form:
            found, infeasible = problem.closed_form()
        elif problem.cost.extra is None:
            found = search_with_switches(problem, steps=50)
        else:
            found = Found.nothing(query.x)
        todo = ~found.ok if infeasible is None else ~found.ok & ~infeasible
        rows = todo.nonzero()[:, 0]
        if len(rows) and not query.budget.expired:
            part = problem.on(rows)
            other = self._descend(
                part, part.cost.value, self.c_init, rounds=self.c_steps, stop_at_first=False
            )
            found.put_better(rows, part.polish(other, steps=50))
        return found, infeasible


def _logit(kappa: float) -> float:
    """Return the margin in logits that equals a margin of probabilities of two classes."""
    return math.log((1 + kappa) / (1 - kappa))
