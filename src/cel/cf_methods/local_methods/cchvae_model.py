"""A small conditional variational autoencoder for rows of numbers and labels."""

from __future__ import annotations

from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

from cel.space import FeatureSpace

__all__ = ["RowAutoencoder"]

_FLOOR = 0.02  # smallest noise of a standardised number; keeps the likelihood bounded


class RowAutoencoder:
    """A VAE of the mutable columns given the immutable ones.

    q(z | x, c) is Gaussian; p(x | z, c) is Gaussian with one learned noise per number and
    categorical per label, so that numbers and labels are weighed by how well they can be known.
    With c the immutable columns, `decode` never invents them.

    Attributes:
        mutable: (d,) bool, columns that are encoded and decoded; the others are the condition.
        shift, scale: (d,) standardisation of the numbers.
        history: mean negative ELBO per epoch.

    Reference: Kingma and Welling, 2014; Pawelczyk et al., WWW 2020 (conditional form).
    """

    def __init__(self, space: FeatureSpace, *, latent: int, hidden: tuple[int, ...]) -> None:
        owner = torch.as_tensor(space.owner)
        self.mutable = torch.as_tensor(space.mutable_mask)[owner]
        self.latent, self.hidden = latent, hidden
        numeric = torch.zeros(space.width, dtype=torch.bool)
        numeric[torch.as_tensor(space.numeric_columns)] = True
        self.numeric = numeric
        inside = torch.cumsum(self.mutable.long(), 0) - 1
        self.numbers = inside[self.mutable & numeric]
        self.blocks = [
            inside[list(f.columns)] for f in space.one_hot_features if f.mutable
        ]  # positions among the mutable columns

    def fit(
        self, x: Tensor, *, epochs: int, batch_size: int, lr: float, kl_weight: float, seed: int
    ) -> Self:
        """Maximise the evidence lower bound over rows `x` (m, d)."""
        spread = x.std(0, unbiased=False)
        plain = ~self.numeric.to(x.device) | (spread < 1e-6)
        self.shift = torch.where(plain, torch.zeros_like(spread), x.mean(0))
        self.scale = torch.where(plain, torch.ones_like(spread), spread)
        self._build(x, seed)
        generator = torch.Generator(device=x.device).manual_seed(seed)
        rows = self._standardised(x)
        optimiser = torch.optim.Adam([*self.net.parameters(), self.log_noise], lr=lr)
        self.history: list[float] = []
        with torch.enable_grad():
            for _ in range(epochs):
                order = torch.randperm(len(x), generator=generator, device=x.device)
                losses = []
                for batch in torch.split(order, batch_size):
                    loss = self._loss(rows[batch], kl_weight, generator)
                    optimiser.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                    losses.append(loss.detach() * len(batch))
                self.history.append(float(torch.stack(losses).sum()) / len(x))
        self.net.requires_grad_(False).eval()
        return self

    def encode(self, x: Tensor) -> Tensor:
        """Return the posterior means (n, q) of rows (n, d)."""
        mean: Tensor = self.net["encoder"](self._standardised(x)).chunk(2, -1)[0]
        return mean

    def decode(self, z: Tensor, x: Tensor) -> Tensor:
        """Return rows (n, d): means and label probabilities at z (n, q), immutables as in `x`."""
        mutable = self.mutable.to(x.device)
        out = self._decoded(z, self._standardised(x)[:, ~mutable])
        for block in self.blocks:
            out[:, block] = out[:, block].softmax(-1)
        rows = x.clone()
        rows[:, mutable] = out * self.scale[mutable] + self.shift[mutable]
        return rows

    def _build(self, like: Tensor, seed: int) -> None:
        free = int(self.mutable.sum())
        given = len(self.mutable) - free
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = _mlp((free + given, *self.hidden, 2 * self.latent))
            decoder = _mlp((self.latent + given, *reversed(self.hidden), free))
        self.net = nn.ModuleDict({"encoder": encoder, "decoder": decoder}).to(like)
        self.log_noise = torch.zeros(len(self.numbers), device=like.device, requires_grad=True)

    def _standardised(self, x: Tensor) -> Tensor:
        return (x - self.shift) / self.scale

    def _decoded(self, z: Tensor, given: Tensor) -> Tensor:
        out: Tensor = self.net["decoder"](torch.cat([z, given], -1))
        return out

    def _loss(self, rows: Tensor, kl_weight: float, generator: torch.Generator) -> Tensor:
        mutable = self.mutable.to(rows.device)
        mean, log_var = self.net["encoder"](rows).chunk(2, -1)
        log_var = log_var.clamp(-10, 10)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        out = self._decoded(mean + noise * (log_var / 2).exp(), rows[:, ~mutable])
        kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(-1)
        given = rows[:, mutable]
        width = self.log_noise.exp().clamp(min=_FLOOR)
        error = (out[:, self.numbers] - given[:, self.numbers]) / width
        log_lik = -(0.5 * error.square() + width.log()).sum(-1)
        for block in self.blocks:
            log_lik = log_lik + (out[:, block].log_softmax(-1) * given[:, block]).sum(-1)
        loss: Tensor = (kl_weight * kl - log_lik).mean()
        return loss


def _mlp(widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
