"""Robust neighbours (Jiang et al., 2023; Hamman et al., 2023): rows that survive the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.robust_nearest.certificates import (
    certified_delta,
    weight_margin,
)
from cel.cf_methods.local_methods.robust_nearest.noisy_shares import stability
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.errors import UnsupportedError
from cel.parameters import check_positive
from cel.protocols import Need, Predictor
from cel.search import bisect_to_boundary, revert_features
from cel.search.gradient import RowFunction
from cel.search.pool import Distance, Neighbours, Pool
from cel.search.relu_bounds import margin_floors
from cel.space import FeatureSpace

__all__ = ["RobustNearest"]

ROWS = 1024  # training rows that are tested together
NEIGHBOURS = 8  # of a row that are looked up first,
WIDER = 4  # and how many times as many if none of them passes
ASKED = 4  # neighbours whose stability is tested together


class RobustNearest(LocalMixin, BaseCounterfactualMethod):
    """Show the nearest training row of the class that passes a test of robustness.

    Two tests:

    - "delta" (RNCE): the class holds for *every* network whose weights and biases differ by at
      most `delta` from the explained one. Bounds of intervals, exact for linear models and one
      hidden layer, sufficient for deeper networks: a row that passes is certified, one that does
      not is undecided.
    - "stability" (T-Rex): `mean(p(x_i) - |p(x') - p(x_i)|) >= tau` over noisy copies x_i of x',
      p the probability of the class. It needs predictions only and certifies nothing.

    Training rows are tested once, where they are (for "delta"); those that pass count where the
    region of the row puts them, and are tested again there. The nearest one that passes is found
    exactly; with `optimal` it is then moved towards the row, and features are given back,
    as long as the test is passed.

    Args:
        model: for "delta" a linear model or a ReLU network (`ModelView.relu`); any classifier for
            "stability".
        test: "delta" or "stability".
        delta: largest change of a weight or bias, in units of encoded columns.
        sigma: standard deviation of the noise on numbers, in encoded units.
        draws: noisy copies of a point.
        tau: least stability.
        optimal: whether rows are moved towards the explained one.
        distance: "l1_mad", "heom", "l2" or "gower"; see `cel.search.pool.Pool`.
        options: see `Options`.

    References:
        Jiang, Leofante, Rago and Toni: Formalising the robustness of counterfactual explanations
        for neural networks. AAAI 2023; Interval abstractions for robust counterfactual
        explanations. AIJ 2024. Hamman, Noorani, Mishra, Magazzeni and Dutta: Robust
        counterfactual explanations for neural networks with probabilistic guarantees. ICML 2023.
    """

    name = "robust_nearest"
    version: ClassVar[int] = 2
    needs = frozenset({Need.TRAIN_ROWS})
    reference = "Jiang et al., AAAI 2023 and AIJ 2024; Hamman et al., ICML 2023"
    _copies: ClassVar[int] = 120
    _test_params: ClassVar[Mapping[str, Any]] = {"draws": 100}

    def __init__(
        self,
        model: Predictor,
        *,
        test: Literal["delta", "stability"] = "delta",
        delta: float = 0.005,
        sigma: float = 0.1,
        draws: int = 1000,
        tau: float = 0.5,
        optimal: bool = True,
        distance: Distance = "l1_mad",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.test, self.delta, self.sigma = test, delta, sigma
        self.draws, self.tau, self.optimal, self.distance = draws, tau, optimal, distance

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "draws")
        check_positive(self, "delta", "sigma", zero=True)
        if self.test == "delta" and model.relu() is None:
            raise UnsupportedError(
                f"RobustNearest(test='delta') needs the weights of a ReLU network or a linear "
                f"model; {type(self.model).__name__} shows none. Use test='stability'"
            )

    def _fit(self, train: TrainRows) -> None:
        x, y = train.x.to(self._device()), train.y.to(self._device())
        self.pool_ = Pool.of(x, y, self.space_, self.distance, among=self._certified(x, y))

    def _certified(self, x: Tensor, y: Tensor) -> Tensor | None:
        """Return (m,) which training rows are certified where they are; None: ask for each."""
        view = ModelView(self.model).relu() if self.test == "delta" else None
        if view is None:
            return None
        own, outputs = y.cpu(), len(view.layers[-1][1])
        eye = torch.eye(outputs, dtype=torch.float64)
        good = torch.zeros(len(x), dtype=torch.bool)
        for rows in torch.split(torch.arange(len(x)), ROWS):
            mix = eye[own[rows]][:, None] - eye
            floors = margin_floors(view.layers, x[rows].double().cpu(), mix, self.delta)
            floors = floors.scatter(1, own[rows][:, None], torch.inf)
            good[rows] = (floors > 0).all(1)
        return good.to(x.device)

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        surplus = self._surplus(query)
        accept = query.accept_if(_positive(self._surplus(query, quick=True)))
        x, ok = self._nearest(query)
        if self.optimal and not query.budget.expired:
            lay = query.region.layout
            x = bisect_to_boundary(query.x, x, ok, accept, slide=lay.numeric)
            x = revert_features(x, query.x, ok, accept, lay.owner)
        return Answer(x=x, logs=self._why(ok), row_logs=self._told(query, x, ok, surplus))

    def _nearest(self, query: Query) -> tuple[Tensor, Tensor]:
        """Return the nearest training rows (n, d) that pass the test, and who has one.

        The test of "stability" costs many predictions, so that neighbours are asked in the order
        of their distance, a few at a time, and no more once one has passed.
        """
        if self.test == "delta":
            near = self.pool_.nearest(
                query.x, query.target, region=query.region,
                accept=query.accept_if(_positive(self._surplus(query))), budget=query.budget,
            )  # fmt: skip
            return near.x[:, 0], near.ok[:, 0]
        x = torch.full_like(query.x, torch.nan)
        ok = torch.zeros_like(query.x[:, 0], dtype=torch.bool)
        todo, first, last = query.rows(), 0, NEIGHBOURS
        while len(todo) and not query.budget.expired:
            part = query.select(todo)
            near = self.pool_.nearest(
                part.x, part.target, last, region=part.region, accept=part.accept,
                budget=query.budget,
            )  # fmt: skip
            which = _first_that_passes(near, self._surplus(part, quick=True), first)
            good = which >= 0
            x[todo[good]], ok[todo[good]] = near.x[good, which[good]], True
            todo, first, last = todo[~good & near.ok[:, -1]], last, WIDER * last
        return x, ok

    def _surplus(self, query: Query, *, quick: bool = False) -> RowFunction:
        """Return by how much points pass the test; `quick`: fewer copies of clear points."""
        if self.test == "stability":
            score = stability(query, self.sigma, self.draws, self.tau if quick else None)
            return lambda x, rows: score(x, rows) - self.tau
        view = query.model.relu()
        assert view is not None
        return weight_margin(query, view, self.delta)

    def _told(
        self, query: Query, x: Tensor, ok: Tensor, surplus: RowFunction
    ) -> dict[str, list[Any]]:
        rows = ok.nonzero()[:, 0]
        margin = torch.full_like(x[:, 0], torch.nan)
        margin[rows] = surplus(x[rows], rows)
        told = {"robust_margin": _plain(margin)}
        if self.test == "delta":
            view = query.model.relu()
            assert view is not None
            most = torch.full_like(margin, torch.nan)
            most[rows] = certified_delta(query.select(rows), view, x[rows])
            told["certified_delta"] = _plain(most)
        return told

    def _why(self, ok: Tensor) -> dict[str, Any] | None:
        if bool(ok.all()):
            return None
        lost, pool = int((~ok).sum()), {k: len(p) for k, p in self.pool_.parts.items()}
        return {
            "why": f"{lost} rows: no training row of the class passes the test inside the region",
            "pool": pool,
        }


def _first_that_passes(near: Neighbours, surplus: RowFunction, first: int) -> Tensor:
    """Return the place (n,) of the first neighbour, from `first` on, with a positive surplus.

    It is -1 where none has one; `ASKED` neighbours of a row are asked at a time.
    """
    out = torch.full_like(near.row[:, 0], -1)
    for start in range(first, near.row.shape[1], ASKED):
        known = near.ok[:, start : start + ASKED] & (out < 0)[:, None]
        row, place = known.nonzero(as_tuple=True)
        if not len(row):
            continue
        good = torch.zeros_like(known)
        good[row, place] = surplus(near.x[row, start + place], row) > 0
        any_ = good.any(1)
        out[any_] = start + good[any_].to(torch.int8).argmax(1)
    return out


def _positive(surplus: RowFunction) -> RowFunction:
    return lambda x, rows: surplus(x, rows) > 0


def _plain(values: Tensor) -> list[Any]:
    return [None if math.isnan(v) else v for v in values.tolist()]
