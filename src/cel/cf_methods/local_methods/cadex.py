"""CADEX (Moore, Hammerla and Watkins, 2019): the first point past the boundary on Adam's path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.cadex_walk import Walk
from cel.cf_methods.local_methods.settings import check_positive
from cel.cf_methods.query import Answer, Query
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.objectives import cross_entropy
from cel.protocols import Need, Support
from cel.search import bisect_to_boundary, gradient_search, row_gradient
from cel.space import FeatureSpace
from cel.space.distances import changed_features

__all__ = ["CADEX"]


class CADEX(LocalMixin, BaseCounterfactualMethod):
    """Descend the cross entropy to the target class with Adam and stop at the first crossing.

    Closeness comes from stopping early, not from a distance term. Only the `n_changed` features
    with the largest first gradient move (a one-hot block is one feature, and only a category that
    would help to switch on counts), after the `n_skip` largest have been left out. A category is
    switched once another one, which helps more, has risen above `tau_cat`; a category that was
    left is not taken again, so that blocks cannot swing. The last stretch is bisected between the
    last point before and the first point past the boundary, so that the step size decides the
    speed and not the answer.

    Args:
        model: any classifier with gradients.
        n_changed: how many features may change; None for all; several numbers for a set of
            counterfactuals.
        n_skip: how many of the most promising features to leave alone; several numbers for a set.
        lr: step size of Adam; the original's 0.001 gives the same path in twice the steps.
        max_iter: steps.
        tau_cat: how far another category must rise before it is taken.
        options: see `Options`.

    References:
        Moore, Hammerla and Watkins: Explaining deep learning models with constrained adversarial
        examples. PRICAI 2019.
    """

    name = "cadex"
    needs = frozenset({Need.GRADIENTS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Moore, Hammerla and Watkins, PRICAI 2019"
    _test_params: ClassVar[dict[str, Any]] = {"lr": 0.02, "max_iter": 80}

    def __init__(
        self,
        model: Any,
        *,
        n_changed: int | Sequence[int] | None = None,
        n_skip: int | Sequence[int] = 0,
        lr: float = 0.002,
        max_iter: int = 750,
        tau_cat: float = 0.2,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.n_changed, self.n_skip = n_changed, n_skip
        self.lr, self.max_iter, self.tau_cat = lr, max_iter, tau_cat

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "lr", "max_iter", "tau_cat")
        for name, value in (("n_changed", self.n_changed), ("n_skip", self.n_skip)):
            least = 1 if name == "n_changed" else 0
            wrong = [v for v in _several(value) if v is not None and v < least]
            if wrong or not _several(value):
                shown = wrong[0] if wrong else value
                raise ConfigError(f"CADEX: {name} must be at least {least}, got {shown!r}")

    def _explain(self, query: Query) -> Answer:
        score = feature_scores(query)
        settings = list(product(_several(self.n_changed), _several(self.n_skip)))
        members = []
        for changed, skip in settings:
            if query.budget.expired:
                break
            members.append(self._walk(query, closed_features(score, changed, int(skip or 0))))
        if not members:
            return Answer(x=torch.full_like(query.x, torch.nan))
        sets = torch.stack(members, 1)
        if len(settings) == 1:
            return Answer(x=sets[:, 0])
        rank = torch.stack([_rank(query, x) for x in members], 1).argmin(1)
        return Answer(x=sets[query.rows(), rank], sets=sets)

    def _walk(self, query: Query, closed: Tensor) -> Tensor:
        """Answer all rows with some features (n, p) closed."""
        query = replace(query, region=query.region.freeze(closed))
        walk = Walk(query, lr=self.lr, tau=self.tau_cat)

        def loss(x: Tensor, rows: Tensor) -> Tensor:
            return cross_entropy(query.model.logits(x), query.target[rows])

        found = gradient_search(
            loss,
            query.x,
            stepper=walk,
            project=lambda x, rows: x,
            accept=walk.accept,
            cost=lambda x, rows: (x - query.x[rows]).abs().sum(-1),
            steps=self.max_iter,
            stop_at_first=True,
            give_up=50,
            budget=query.budget,
        )
        numeric = query.region.layout.numeric
        return bisect_to_boundary(walk.before, found.x, found.ok, query.accept, slide=numeric)


def feature_scores(query: Query) -> Tensor:
    """Return (n, p): how much each feature promises, the largest useful |gradient| it holds.

    A number that cannot move the way it should, because of a bound or a direction, promises
    nothing; in a one-hot block only categories that are off, reachable and helpful count.
    """
    region, lay = query.region, query.region.layout
    _, grad = row_gradient(
        lambda x, rows: cross_entropy(query.model.logits(x), query.target[rows]),
        query.x,
        query.rows(),
    )
    stuck = ((grad > 0) & (query.x <= region.lower)) | ((grad < 0) & (query.x >= region.upper))
    useless = ~region.reachable | (query.x > 0.5) | (grad >= 0)
    useless = region.fixed | torch.where(lay.numeric, stuck, useless)
    score = torch.where(useless, torch.zeros_like(grad), grad.abs())
    out = torch.zeros(len(query), len(region.space), dtype=score.dtype, device=score.device)
    return out.scatter_reduce(1, lay.owner.expand_as(score), score, "amax")


def closed_features(score: Tensor, n_changed: int | None, n_skip: int) -> Tensor:
    """Return (n, p) bool: features that stay as they are.

    >>> closed_features(torch.tensor([[0.1, 0.7, 0.5]]), n_changed=1, n_skip=1)
    tensor([[ True,  True, False]])
    """
    order = score.argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1, stable=True)
    closed = rank < n_skip
    if n_changed is not None:
        closed |= (rank >= n_skip + n_changed) | (score <= 0)
    return closed


def _several(value: int | Sequence[int] | None) -> list[int | None]:
    return [value] if value is None or isinstance(value, int) else list(value)


def _rank(query: Query, x: Tensor) -> Tensor:
    """Return (n,): fewer changed features first, then the smaller L1 distance."""
    changed = changed_features(query.x, x.nan_to_num(), query.region.space).sum(1)
    l1 = (x - query.x).abs().sum(1)
    return torch.where(l1.isnan(), torch.inf, changed + l1 / (1 + l1))
