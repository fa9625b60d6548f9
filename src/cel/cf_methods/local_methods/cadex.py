"""CADEX (Moore, Hammerla and Watkins, 2019): the first point past the boundary on Adam's path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query
from cel.cf_methods.tangent.score_slopes import ScoreLayers, entropy_slope
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.objectives import cross_entropy
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support
from cel.search import LastOf, bisect_to_boundary, gradient_search, row_gradient
from cel.search.steppers import Adam, State
from cel.space import FeatureSpace
from cel.space.distances import changed_features
from cel.space.layout import Layout

__all__ = ["CADEX", "Walk"]


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
        model: Predictor,
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

        known = ScoreLayers.to_the_bit(query.model, query.x)
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
            closed=None if known is None else entropy_slope(query.model, known, query.target),
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


class Walk:
    """A stepper that keeps rows in their boxes and switches categories.

    Args:
        query: rows and their regions; closed features are frozen there.
        lr: step size of Adam.
        tau: how far another category must rise before it is taken.

    Attributes:
        before: (n, d) the last point of each row before it was accepted.
    """

    def __init__(self, query: Query, *, lr: float, tau: float) -> None:
        self.query, self.adam, self.tau = query, Adam(lr), tau
        self.before = query.x.clone()
        self.done = torch.zeros(len(query), dtype=torch.bool, device=query.x.device)

    def accept(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Test points and remember which rows are done."""
        seen, ok = self.query.accept(x, rows)
        self.done[rows[ok]] = True
        return seen, ok

    def start(self, x: Tensor) -> State:
        """Return a fresh state: Adam's, the categories that are on, and those that were left."""
        state = self.adam.start(x)
        state.tensors["on"] = x > 0.5
        state.tensors["left"] = torch.zeros_like(x, dtype=torch.bool)
        return state

    def step(self, state: State, x: Tensor, grad: Tensor, rows: Tensor) -> Tensor:
        """Return the rows after one step."""
        walking = (~self.done[rows]).nonzero()[:, 0]
        if len(walking) == len(rows):
            self.before.index_copy_(0, rows, x)
        else:
            self.before.index_copy_(0, rows[walking], x[walking])
        here = self._here(rows)
        if here.any_fixed:
            grad = torch.where(here.fixed, torch.zeros_like(grad), grad)
        moved = self.adam.step(state, x, grad, rows)
        moved = torch.minimum(torch.maximum(moved, here.lower), here.upper)
        if here.any_fixed:
            moved = torch.where(here.fixed, here.home, moved)
        return self._switched(state, moved, grad, here.open)

    def _switched(self, state: State, x: Tensor, grad: Tensor, open_: Tensor) -> Tensor:
        """Switch categories of the rows in which one that is off has risen above tau."""
        s = state.tensors
        if not self.query.region.layout.blocks.numel():
            return x
        risen = open_ & ~s["on"] & ~s["left"] & (x > self.tau)
        at = risen.any(1).nonzero()[:, 0]
        if not len(at):
            return x
        part = State({name: s[name][at] for name in ("on", "left", "m", "v")})
        x = x.index_copy(0, at, self._switch(part, x[at], grad[at], risen[at]))
        for name, value in part.tensors.items():
            s[name] = s[name].index_copy(0, at, value)
        return x

    def _switch(self, state: State, x: Tensor, grad: Tensor, risen: Tensor) -> Tensor:
        """Take the most helpful category of those that rose above tau; its block starts afresh.

        It must help more than the present one: outside of the simplex a category can rise although
        the one that is on is better.
        """
        lay, s = self.query.region.layout, state.tensors
        blocked = torch.full_like(x, torch.inf)
        slope = _blocks(torch.where(risen, grad, blocked), lay)
        slope = torch.where(lay.real, slope, torch.full_like(slope, torch.inf))
        present = _blocks(torch.where(s["on"], grad, blocked), lay).amin(-1)
        lowest, best = slope.min(-1)  # (a, g)
        switch = lowest < present
        new = torch.nn.functional.one_hot(best, lay.blocks.shape[1]).bool() & switch[..., None]
        on, block = _columns(new, x, lay), _columns(switch[..., None].expand_as(new), x, lay)
        s["left"] = s["left"] | (s["on"] & block)
        s["on"] = torch.where(block, on, s["on"])
        for name in ("m", "v"):
            s[name] = torch.where(block, torch.zeros_like(x), s[name])
        return torch.where(block, on.to(x.dtype), x)

    @cached_property
    def _here(self) -> LastOf[_Here]:
        return LastOf(lambda rows: _Here.of(self.query, rows))


@dataclass(frozen=True, eq=False)
class _Here:
    """What a step looks at in the regions of some rows (a,), each (a, d)."""

    home: Tensor
    lower: Tensor
    upper: Tensor
    fixed: Tensor
    any_fixed: bool
    open: Tensor  # categories that may be had

    @classmethod
    def of(cls, query: Query, rows: Tensor) -> _Here:
        region = query.region
        fixed = region.fixed[rows]
        open_ = region.reachable[rows] & ~fixed & ~region.layout.numeric
        ends = query.x[rows], region.lower[rows], region.upper[rows]
        return cls(*ends, fixed, bool(fixed.any()), open_)


def _blocks(x: Tensor, lay: Layout) -> Tensor:
    """(a, d) -> (a, g, k)."""
    return x.index_select(1, lay.blocks.flatten()).reshape(-1, *lay.blocks.shape)


def _columns(blocks: Tensor, like: Tensor, lay: Layout) -> Tensor:
    """(a, g, k) bool -> (a, d) bool."""
    out = torch.zeros_like(like, dtype=torch.bool)
    out[:, lay.blocks[lay.real]] = blocks[:, lay.real]
    return out
