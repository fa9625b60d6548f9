"""The law of counterfactual neighbours, given a row and what is wished for."""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from torch import Tensor

from cel.cf_methods.local_methods.dicoflex.neighbour_pairs import NeighbourPairs
from cel.models.generative import MaskedAutoregressiveFlow, NeuralSplineFlow, RealNVP
from cel.models.generative.flows.by_rank import inverse_by_rank
from cel.space import FeatureSpace

__all__ = ["FlowKind", "NeighbourFlow"]

FlowKind = Literal["maf", "realnvp", "nsf"]
FLOWS = {"maf": MaskedAutoregressiveFlow, "realnvp": RealNVP, "nsf": NeuralSplineFlow}
EXTREME = 5.0  # standard deviations of a context column; what is rarer counts as this


class NeighbourFlow:
    """`q(x' - x | x, class, what is fixed, norm)`, trained on pairs of rows and neighbours.

    The change x' - x has the density of x' itself, and what cannot change is then pure noise
    around zero. Numbers and categories are smoothed by normal noise.

    Args:
        space: features of the rows.
        classes: number of classes.
        kind: which flow.
        noise: standard deviation of the noise on numbers.
        category_noise: the same for columns of categories.
        seed: of noise, weights and batches.
        options: settings of the flow and of its training.
    """

    def __init__(
        self,
        space: FeatureSpace,
        classes: int,
        *,
        kind: FlowKind,
        noise: float,
        category_noise: float,
        seed: int,
        **options: Any,
    ) -> None:
        self.space, self.classes, self.kind, self.seed = space, classes, kind, seed
        self.noise, self.category_noise = noise, category_noise
        self.options = options

    def fit(self, pairs: NeighbourPairs) -> Self:
        """Train the flow on pairs with the training loop of all models."""
        wishes = pairs.wishes
        raw = self._raw(wishes.x, wishes.target, wishes.region.fixed, wishes.norm)
        self.loc_, spread = raw.mean(0), raw.std(0, unbiased=False)
        self.used_ = (spread > 1e-6).nonzero()[:, 0]
        self.spread_ = spread.clamp(min=1e-6)
        generator = torch.Generator().manual_seed(self.seed)
        numeric = torch.as_tensor(self.space.numeric_columns)
        scale = torch.full((self.space.width,), self.category_noise)
        scale[numeric] = self.noise
        change = (pairs.goal - wishes.x).cpu()
        smooth = change + scale * torch.randn(change.shape, generator=generator)
        context = self._context(raw).cpu().double().numpy()
        self.flow_ = FLOWS[self.kind](
            noise=0.0, random_state=self.seed, device=str(pairs.goal.device), **self.options
        ).fit(smooth, context)
        return self

    def _raw(self, x: Tensor, target: Tensor, fixed: Tensor, norm: Tensor) -> Tensor:
        """Return (n, d + K + F + 1): the row, the class, which features are fixed, the norm."""
        wanted = torch.nn.functional.one_hot(target, self.classes).to(x)
        first = torch.tensor([f.columns[0] for f in self.space], device=x.device)
        return torch.cat([x, wanted, fixed[:, first].to(x), norm[:, None].to(x).log2()], 1)

    def _context(self, raw: Tensor) -> Tensor:
        units = (raw - self.loc_.to(raw)) / self.spread_.to(raw)
        return units[:, self.used_.to(raw.device)].clamp(-EXTREME, EXTREME)

    @torch.no_grad()
    def sample(
        self, x: Tensor, target: Tensor, fixed: Tensor, norm: Tensor, latent: Tensor
    ) -> Tensor:
        """Return the counterfactuals (n, s, d) that latent numbers (n, s, d) stand for.

        Args:
            x: (n, d) rows.
            target: (n,) wanted classes.
            fixed: (n, d) columns that stay as they are.
            norm: (n,) exponents.
            latent: standard normal, times a temperature.
        """
        n, s, d = latent.shape
        context = self._context(self._raw(x, target, fixed, norm)).float()
        many = context.repeat_interleave(s, 0)
        module: Any = self.flow_.frozen()
        change = inverse_by_rank(module, latent.reshape(n * s, d).float(), many).to(x)
        return x[:, None] + change.reshape(n, s, d)

    def log_prob(
        self, x: Tensor, target: Tensor, fixed: Tensor, norm: Tensor, goal: Tensor
    ) -> Tensor:
        """Return log q(goal | ...) of counterfactuals (n, d), shape (n,)."""
        context = self._context(self._raw(x, target, fixed, norm)).float()
        out: Tensor = self.flow_.log_prob((goal - x).float(), context)
        return out
