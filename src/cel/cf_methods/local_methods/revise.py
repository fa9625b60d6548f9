"""REVISE (Joshi et al., 2019): descend in the latent space of an autoencoder."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.row_codes import VAE_SETTINGS, codes_of, half_width
from cel.cf_methods.tangent.decoded_slopes import DecodedSlopes
from cel.cf_methods.tangent.margins import class_margin
from cel.cf_methods.view import ModelView
from cel.objectives import hinge
from cel.parameters import at_least, check_positive
from cel.protocols import Need, Predictor, Support
from cel.search import Adam, Found, search_weight
from cel.search.latent import latent_search
from cel.space import FeatureSpace

__all__ = ["REVISE"]

AIM = 0.02  # margin in logits that the descent heads for


class REVISE(LocalMixin, BaseCounterfactualMethod):
    """Minimise `L(f(dec(z)), t) + lam |dec(z) - x|_1` over codes z, from the row's own code.

    Answers are decoded rows: as plausible as the autoencoder is good. Immutable columns are given
    to encoder and decoder and are never searched. The authors fix `lam`; rows without an answer
    get a smaller one here, up to `rounds` times, and rows with one a larger.

    Args:
        model: any classifier with gradients.
        lam: weight of the distance.
        rounds: values of lam tried per row; 1 is the publication.
        steps: descent steps per lam.
        lr: step size of Adam on codes.
        latent: size of the latent space; by default half the columns, at most 8, so that codes
            cannot hold what rows of the data do not.
        hidden: widths of the hidden layers of encoder and decoder.
        vae_steps: batches seen in training of the autoencoder, at most.
        vae_batch: rows per batch.
        vae_lr: its learning rate.
        kl_weight: weight of its KL term.
        autoencoder: a fitted object with `encode(x)` and `decode(z, x, hard=...)` instead.
        options: see `Options`.

    References:
        Joshi, Koyejo, Vijitbenjaronk, Kim and Ghosh: Towards realistic individual recourse and
        actionable explanations in black-box decision making systems. 2019.
    """

    name = "revise"
    version: ClassVar[int] = 3
    needs = frozenset({Need.GRADIENTS, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Joshi et al., 2019, arXiv:1907.09615"
    autoencoder_settings = VAE_SETTINGS
    _test_params: ClassVar[dict[str, Any]] = {"steps": 60, "vae_steps": 60}

    def __init__(
        self,
        model: Predictor,
        *,
        lam: float = 0.5,
        rounds: int = 3,
        steps: int = 300,
        lr: float = 0.1,
        latent: int | None = None,
        hidden: tuple[int, ...] = (64, 32),
        vae_steps: int = 1000,
        vae_batch: int = 256,
        vae_lr: float = 3e-3,
        kl_weight: float = 0.1,
        autoencoder: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.lam, self.rounds, self.steps, self.lr = lam, rounds, steps, lr
        self.latent, self.hidden, self.autoencoder = latent, hidden, autoencoder
        self.vae_steps, self.vae_batch, self.vae_lr = vae_steps, vae_batch, vae_lr
        self.kl_weight = kl_weight

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "rounds", "steps", "lr", "vae_steps", "vae_batch")
        at_least(self, 1, "latent")
        check_positive(self, "lam", "vae_lr", "kl_weight", zero=True)

    def _fit(self, train: TrainRows) -> None:
        x = train.x.to(self._device())
        self.codes_ = codes_of(
            self.autoencoder, x, self.space_, latent=self.latent or half_width(x),
            hidden=self.hidden, steps=self.vae_steps, batch_size=self.vae_batch,
            lr=self.vae_lr, beta=self.kl_weight, seed=self.random_state,
        )  # fmt: skip

    def _explain(self, query: Query) -> Answer:
        codes, stuck = self.codes_, query.region.fixed.all(1)
        if codes is None or bool(stuck.all()):
            return Answer(x=torch.full_like(query.x, torch.nan), infeasible=stuck)
        margin, unit = class_margin(query), 1 / max(self.lam, 1e-6)
        with torch.no_grad():
            start = codes.encode(query.x)

        def decode(z: Tensor, rows: Tensor) -> Tensor:
            return codes.decode_for(query, z, rows, hard=True)

        def distance(x: Tensor, rows: Tensor) -> Tensor:
            return (x - query.x[rows]).abs().sum(-1)

        known = DecodedSlopes.of(query, codes, AIM)

        def solve(weights: Tensor) -> Found:
            def loss(z: Tensor, rows: Tensor) -> Tensor:
                x = codes.decode_for(query, z, rows)
                box = query.project(x, rows).detach()
                outside = (x - box).square().sum(-1)  # steers the way; the test decides
                short = hinge(margin(x, rows), AIM)
                return weights[rows] * short + distance(x, rows) + outside

            return latent_search(
                loss,
                start,
                like=query.x,
                decode=decode if known is None else known.decode,
                accept=query.accept if known is None else known.accept,
                cost=distance,
                stepper=Adam(self.lr),
                steps=self.steps,
                patience=max(40, self.steps // 2),
                budget=query.budget,
                closed=None if known is None else known.descent(weights),
            )[0]

        first = torch.full_like(query.x[:, 0], unit)
        found = search_weight(solve, first, rounds=self.rounds, budget=query.budget)
        return Answer(x=found.x, infeasible=stuck)
