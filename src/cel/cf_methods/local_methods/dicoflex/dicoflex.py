"""DiCoFlex: one conditional flow, many diverse counterfactuals in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.dice.known_rows import best_distinct
from cel.cf_methods.local_methods.dicoflex.neighbour_flow import FlowKind, NeighbourFlow
from cel.cf_methods.local_methods.dicoflex.neighbour_pairs import (
    column_weights,
    draw_pairs,
    norm_distance,
)
from cel.cf_methods.local_methods.nice import NICE
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.parameters import at_least, check_positive, check_shares
from cel.protocols import Need, Predictor
from cel.space import FeatureSpace

__all__ = ["DiCoFlex"]

HOW = {0: "a draw of the flow", 1: "NICE (fallback)"}
SMALL = 3.0  # changes within this many times the noise of training are given back


class DiCoFlex(LocalMixin, BaseCounterfactualMethod):
    """Draw counterfactuals from a flow that was trained on rows and their neighbours.

    In `fit`, a conditional flow learns the law of the K nearest training rows of the target class
    around a row, given the row, the class, the features that are fixed, and the exponent p of the
    distance `(sum |x_j - x'_j|^p)^(1/p)`; small exponents prefer rows that differ in few features.
    `explain` draws `samples` points for every row in one pass, snaps them, asks the model, and
    keeps the nearest valid ones: all of them in `x_sets`. Constraints that are declared later
    (frozen features) and the exponent are conditions of the flow, so that nothing is trained anew.

    Args:
        model: any classifier; only its predictions are used.
        samples: points drawn for every row.
        total_CFs: most counterfactuals that are kept for every row.
        temperature: standard deviation of the latent draws; below 1 draws keep to where the flow
            is sure.
        norm: exponent p of the answers, one of `norms`.
        norms: exponents that the flow is trained for.
        neighbours: nearest rows of the class that count as counterfactuals of a row.
        confidence: least probability of the class that such a row has.
        pairs: pairs of rows and neighbours to train on, about.
        draws: neighbours drawn for each row, mask and exponent.
        noise: standard deviation of the noise on numbers in training, in encoded units.
        category_noise: the same for columns of categories.
        flow: "realnvp" draws in one pass per transform; "maf", the published choice, in one pass
            per transform and column; "nsf" is one of splines.
        transforms: of the flow.
        hidden: width of its hidden layers.
        epochs: most passes over the pairs.
        patience: epochs without improvement before training stops.
        pair_batch: pairs per step of the training.
        fallback: "nice" answers rows without a valid draw by `NICE`, and says in `cf_group_ids`
            which rows those are; None, as published, leaves them without an answer.
        **options: see `Options`.

    Reference: Furman, Movsum-zada, Marszalek, Zieba and Smieja, DiCoFlex: model-agnostic diverse
    counterfactuals with flexible control, NeurIPS 2025, arXiv:2505.23700.
    """

    name: ClassVar[str] = "dicoflex"
    version: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS})
    reference: ClassVar[str] = "Furman et al., NeurIPS 2025, arXiv:2505.23700"
    _test_params: ClassVar[Mapping[str, Any]] = {
        "samples": 50, "pairs": 2000, "epochs": 15, "transforms": 4, "hidden": 32,
    }  # fmt: skip

    def __init__(
        self,
        model: Predictor,
        *,
        samples: int = 100,
        total_CFs: int = 10,
        temperature: float = 0.8,
        norm: float = 2.0,
        norms: tuple[float, ...] = (0.5, 1.0, 2.0),
        neighbours: int = 32,
        confidence: float = 0.55,
        pairs: int = 20_000,
        draws: int = 8,
        noise: float = 0.01,
        category_noise: float = 0.08,
        flow: FlowKind = "realnvp",
        transforms: int = 8,
        hidden: int = 64,
        epochs: int = 8,
        patience: int = 8,
        pair_batch: int = 256,
        fallback: Literal["nice"] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.samples, self.total_CFs, self.temperature = samples, total_CFs, temperature
        self.norm, self.norms, self.neighbours = norm, norms, neighbours
        self.confidence, self.pairs, self.draws = confidence, pairs, draws
        self.noise, self.category_noise, self.flow = noise, category_noise, flow
        self.transforms, self.hidden = transforms, hidden
        self.epochs, self.patience, self.pair_batch = epochs, patience, pair_batch
        self.fallback = fallback

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        at_least(self, 1, "samples", "total_CFs", "neighbours", "pairs", "draws")
        at_least(self, 1, "transforms", "hidden", "epochs", "patience", "pair_batch")
        check_positive(self, "norm", "noise", "category_noise")
        check_positive(self, "temperature", zero=True)
        check_shares(self, ("confidence",))
        if not self.norms or min(self.norms) <= 0 or self.norm not in self.norms:
            raise ConfigError(
                f"DiCoFlex: norm={self.norm} must be one of norms={self.norms}, all positive"
            )

    def _copies_per_row(self) -> int:
        return 12 * self.samples

    def _fit(self, train: TrainRows) -> None:
        self.nice_: NICE | None = None
        if self.fallback == "nice":
            self.nice_ = NICE(self.model, space=self.space).adopt_rows(self)
        view = ModelView(self.model)
        rows = TrainRows(x=train.x.to(self._device()), y=train.y.to(self._device()))
        self.weight_ = column_weights(self.space_, rows.x)
        pairs = draw_pairs(
            rows, self.space_, view, count=self.pairs, neighbours=self.neighbours,
            draws=self.draws, confidence=self.confidence, norms=tuple(self.norms),
            seed=self.random_state,
        )  # fmt: skip
        self.pairs_ = len(pairs.goal)
        self.flow_: NeighbourFlow | None = None
        if self.pairs_:
            self.flow_ = NeighbourFlow(
                self.space_, view.n_outputs, kind=self.flow, noise=self.noise,
                category_noise=self.category_noise, seed=self.random_state,
                transforms=self.transforms, hidden=self.hidden, epochs=self.epochs,
                patience=self.patience, batch_size=self.pair_batch,
            ).fit(pairs)  # fmt: skip

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        answer = self._drawn(query)
        return answer if self.nice_ is None else self._filled(query, answer, self.nice_)

    def _filled(self, query: Query, answer: Answer, nice: NICE) -> Answer:
        """Let another method answer the rows without a draw, and tell which rows are whose."""
        x, sets = answer.x, answer.sets
        groups = torch.where(x.isnan().any(1), -1, 0)
        left = (groups < 0).nonzero()[:, 0]
        if len(left):
            theirs = nice.answer(query.select(left)).x
            x = x.index_copy(0, left, theirs)
            groups[left] = torch.where(theirs.isnan().any(1), -1, 1)
            if sets is not None:
                sets = sets.clone()
                sets[left, 0] = theirs
        logs = {**(answer.logs or {}), "how": HOW}
        return replace(answer, x=x, sets=sets, groups=groups, logs=logs)

    def _drawn(self, query: Query) -> Answer:
        """Return the nearest valid draws."""
        stuck = query.region.fixed.all(1)
        if self.flow_ is None:
            why = "no training row has a neighbour of another class that keeps the constraints"
            nothing = torch.full_like(query.x, torch.nan)
            return Answer(x=nothing, infeasible=stuck, logs={"why": why})
        drawn = self.draw(query)
        source = query.rows().repeat_interleave(drawn.shape[1])
        seen, ok = query.accept(self._settled(drawn, query).flatten(0, 1), source)
        seen, ok = seen.reshape(drawn.shape), ok.reshape(drawn.shape[:2])
        ok &= (seen != query.x[:, None]).any(-1)
        norm = torch.full_like(query.x[:, 0], self.norm)
        away = norm_distance(seen - query.x[:, None], norm, self.weight_.to(seen))
        sets = best_distinct(seen, away, ok, self.total_CFs)
        accepted = float(ok.double().mean()) if ok.numel() else 0.0
        return Answer(x=sets[:, 0], sets=sets, infeasible=stuck, logs={"accepted": accepted})

    def draw(self, query: Query) -> Tensor:
        """Return what the flow draws for the rows of a query, (n, samples, d), as it comes."""
        assert self.flow_ is not None
        latent = self.temperature * query.rng.normal(self.samples, query.x.shape[1])
        norm = torch.full_like(query.x[:, 0], self.norm)
        return self.flow_.sample(
            query.x, query.target, query.region.fixed, norm, latent.to(query.x)
        )

    def _settled(self, drawn: Tensor, query: Query) -> Tensor:
        """Put back what is fixed, and numbers that moved no further than the noise."""
        x = query.x[:, None]
        small = (drawn - x).abs() <= SMALL * self.noise
        same = query.region.fixed[:, None] | (small & query.region.layout.numeric)
        return torch.where(same, x, drawn)
