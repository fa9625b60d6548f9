"""CLUE (Antoran et al., 2021): the nearest plausible row about which the model is certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.row_codes import VAE_SETTINGS, codes_of, half_width
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.objectives import cross_entropy
from cel.parameters import at_least, check_positive, check_shares
from cel.protocols import Need, Predictor, Support
from cel.search import Adam
from cel.search.latent import latent_search
from cel.space import FeatureSpace

__all__ = ["CLUE", "predictive_entropy"]


def predictive_entropy(logits: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return total and epistemic entropy (n,) of the mean of some models' probabilities.

    Args:
        logits: (n, K) scores of each member; a single member has no epistemic part.

    >>> a, b = torch.tensor([[9.0, -9.0]]), torch.tensor([[-9.0, 9.0]])
    >>> total, epistemic = predictive_entropy([a, b])
    >>> round(float(total), 3), round(float(epistemic), 3)
    (0.693, 0.693)
    """
    p = torch.stack([z.softmax(-1) for z in logits])
    total = _entropy(p.mean(0))
    return total, total - _entropy(p).mean(0)


def _entropy(p: Tensor) -> Tensor:
    return -(p * p.clamp(min=1e-12).log()).sum(-1)


class CLUE(LocalMixin, BaseCounterfactualMethod):
    """Minimise `H(y | dec(z)) + distance` over codes z.

    In mode "uncertainty", the publication's, every row keeps its predicted class and is answered
    where the entropy falls below the `level` quantile of training rows; rows below it already are
    not touched. In mode "target" the cross-entropy to the wanted class is added and the answer
    must have that class: the form that other benchmarks run.

    Args:
        model: any classifier with gradients.
        mode: "target" or "uncertainty".
        ensemble: further models of the same task; uncertainty is then the epistemic part.
        weight: of the distance, the L1 norm divided by the number of columns.
        level: quantile of training entropies that counts as certain.
        steps: descent steps.
        lr: step size of Adam on codes.
        latent: size of the latent space; by default half the columns, at most 8.
        hidden: widths of the hidden layers of encoder and decoder.
        vae_steps: batches seen in training of the autoencoder, at most.
        vae_batch: rows per batch.
        vae_lr: its learning rate.
        kl_weight: weight of its KL term.
        autoencoder: a fitted object with `encode(x)` and `decode(z, x, hard=...)` instead.
        options: see `Options`.

    References:
        Antoran, Bhatt, Adel, Weller and Hernandez-Lobato: Getting a CLUE: a method for explaining
        uncertainty estimates. ICLR 2021.
    """

    name = "clue"
    version: ClassVar[int] = 3
    needs = frozenset({Need.GRADIENTS, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Antoran et al., ICLR 2021, arXiv:2006.06848"
    autoencoder_settings = VAE_SETTINGS
    _test_params: ClassVar[dict[str, Any]] = {"steps": 40, "vae_steps": 60}

    def __init__(
        self,
        model: Predictor,
        *,
        mode: Literal["target", "uncertainty"] = "target",
        ensemble: Sequence[Any] = (),
        weight: float = 1.0,
        level: float = 0.25,
        steps: int = 50,
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
        self.mode, self.ensemble, self.weight, self.level = mode, ensemble, weight, level
        self.steps, self.lr, self.latent, self.hidden = steps, lr, latent, hidden
        self.vae_steps, self.vae_batch, self.vae_lr = vae_steps, vae_batch, vae_lr
        self.kl_weight, self.autoencoder = kl_weight, autoencoder

    @property
    def keeps_class(self) -> bool:
        """Whether rows keep their predicted class: so it is in mode "uncertainty"."""
        return self.mode == "uncertainty"

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "steps", "lr", "vae_steps", "vae_batch")
        at_least(self, 1, "latent")
        check_positive(self, "weight", "vae_lr", "kl_weight", zero=True)
        check_shares(self, ("level",), closed=True)
        if any(not callable(getattr(m, "logits", None)) for m in self.ensemble):
            raise ConfigError("CLUE: every member of the ensemble needs logits()")

    def _fit(self, train: TrainRows) -> None:
        with torch.no_grad():
            uncertain = self._uncertainty(ModelView(self.model), train.x)
        self.level_ = float(torch.quantile(uncertain, self.level))
        x = train.x.to(self._device())
        self.codes_ = codes_of(
            self.autoencoder, x, self.space_, latent=self.latent or half_width(x),
            hidden=self.hidden, steps=self.vae_steps, batch_size=self.vae_batch,
            lr=self.vae_lr, beta=self.kl_weight, seed=self.random_state,
        )  # fmt: skip

    def _uncertainty(self, model: ModelView, x: Tensor) -> Tensor:
        members = [model.logits(x), *(m.logits(x) for m in self.ensemble)]
        total, epistemic = predictive_entropy(members)
        return epistemic if self.ensemble else total

    def _explain(self, query: Query) -> Answer:
        codes, stuck = self.codes_, query.region.fixed.all(1)
        if codes is None or bool(stuck.all()):
            return Answer(x=torch.full_like(query.x, torch.nan), infeasible=stuck)
        with torch.no_grad():
            start = codes.encode(query.x)
        model, width = query.model, query.x.shape[1]

        def distance(x: Tensor, rows: Tensor) -> Tensor:
            return (x - query.x[rows]).abs().sum(-1) / width

        def loss(z: Tensor, rows: Tensor) -> Tensor:
            x = codes.decode_for(query, z, rows)
            value = self._uncertainty(model, x) + self.weight * distance(x, rows)
            if self.mode == "target":
                value = value + cross_entropy(model.logits(x), query.target[rows])
            return value

        def accept(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            seen, ok = query.accept(x, rows)
            if self.mode == "uncertainty":
                with torch.no_grad():
                    ok &= self._uncertainty(model, seen) <= self.level_
            return seen, ok

        found, _ = latent_search(
            loss,
            start,
            like=query.x,
            decode=lambda z, rows: codes.decode_for(query, z, rows, hard=True),
            accept=accept,
            cost=distance,
            stepper=Adam(self.lr),
            steps=self.steps,
            budget=query.budget,
        )
        parts = "epistemic" if self.ensemble else "total, of one network"
        return Answer(x=found.x, infeasible=stuck, logs={"uncertainty": parts})
