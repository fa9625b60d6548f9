"""C-CHVAE: search the latent space of a conditional autoencoder, shell by shell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.row_codes import codes_of
from cel.protocols import Need
from cel.search.shells import grow_shells

__all__ = ["CCHVAE"]


class CCHVAE(LocalMixin, BaseCounterfactualMethod):
    """Decode latent codes around the row's own until one has the target class.

    Solves `min |dz|_p  s.t.  f(decode(z + dz, c)) = target` by sampling growing shells; in the
    first shell with a hit the one nearest to the row in L1 wins. c are the immutable columns: the
    decoder is conditioned on them and they are never perturbed. A search ends at the radius
    `|z| + 3 sqrt(q)`, beyond which the prior has practically no mass.

    Changed from the original: one Gaussian latent variable with heads for numbers and labels
    instead of the mixture prior, `samples=300` per shell instead of 1000.

    Args:
        model: any classifier; only its predictions are used.
        samples: latent points per shell.
        step: thickness of a shell.
        p: norm of the latent radius.
        max_shells: largest number of shells.
        latent: size of the latent space.
        hidden: widths of the hidden layers of encoder and decoder.
        steps: batches seen in training.
        batch_size_vae: rows per training batch.
        lr: learning rate of the autoencoder.
        kl_weight: weight of the KL term; small, so that rows are encoded faithfully.
        autoencoder: a fitted object with `encode(x) -> z (n, q)` and `decode(z, x, hard=False) ->
            (n, d)`, such as `cel.models.generative.VAE`; by default one is trained in `fit`.
        **options: see `Options`.

    Reference: Pawelczyk, Broelemann and Kasneci, Learning model-agnostic counterfactual
    explanations for tabular data, WWW 2020.
    """

    name: ClassVar[str] = "cchvae"
    version: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS})
    reference: ClassVar[str] = "Pawelczyk et al., WWW 2020, arXiv:1910.09398"
    _copies: ClassVar[int] = 300
    _test_params: ClassVar[Mapping[str, Any]] = {"samples": 100, "steps": 50}

    def __init__(
        self,
        model: Any,
        *,
        samples: int = 300,
        step: float = 0.5,
        p: float = 2.0,
        max_shells: int = 500,
        latent: int = 8,
        hidden: tuple[int, ...] = (64, 32),
        steps: int = 1000,
        batch_size_vae: int = 256,
        lr: float = 3e-3,
        kl_weight: float = 0.1,
        autoencoder: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.samples, self.step, self.p, self.max_shells = samples, step, p, max_shells
        self.latent, self.hidden, self.steps, self.lr = latent, hidden, steps, lr
        self.batch_size_vae, self.kl_weight, self.autoencoder = (
            batch_size_vae,
            kl_weight,
            autoencoder,
        )

    def _fit(self, train: TrainRows) -> None:
        x = train.x.to(self._device())
        numeric = torch.as_tensor(self.space_.numeric_columns, device=x.device)
        spread = x[:, numeric].std(0, unbiased=False)
        self.unit_ = torch.ones_like(x[0])
        self.unit_[numeric] = torch.where(spread > 1e-6, spread, torch.ones_like(spread))
        self.codes_ = codes_of(
            self.autoencoder, train.x, self.space_, latent=self.latent, hidden=self.hidden,
            steps=self.steps, batch_size=self.batch_size_vae, lr=self.lr, beta=self.kl_weight,
            seed=self.random_state,
        )  # fmt: skip

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        stuck = query.region.fixed.all(1)
        codes = self.codes_
        if codes is None or bool(stuck.all()):
            return Answer(x=torch.full_like(query.x, torch.nan), infeasible=stuck)
        z = codes.encode(query.x)
        limit = (z.norm(p=self.p, dim=1) + 3 * math.sqrt(z.shape[1])).clamp(
            max=self.max_shells * self.step
        )

        def judge(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            s = points.shape[1]
            source = rows.repeat_interleave(s)
            decoded = codes.decode(points.flatten(0, 1), query.x[source])
            seen, ok = query.accept(decoded, source)
            cost = ((seen - query.x[source]).abs() / self.unit_).sum(-1)
            cost = cost.masked_fill(~ok, torch.inf)
            return seen.reshape(len(rows), s, -1), cost.reshape(len(rows), s)

        found = grow_shells(
            z,
            judge,
            like=query.x,
            rng=query.rng,
            step=self.step,
            samples=self.samples,
            limit=torch.where(stuck, torch.zeros_like(limit), limit),
            p=self.p,
            budget=query.budget,
        )
        return Answer(x=found.x, infeasible=stuck)
