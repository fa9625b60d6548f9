"""Variational dequantization in front of a flow."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from cel.errors import MissingInputError
from cel.models.base import GenerativePytorchMixin, TrainOptions
from cel.models.generative.flows.bijections import Affine
from cel.models.generative.flows.flow import Flow
from cel.models.generative.flows.masked import autoregressive_degrees
from cel.models.generative.noise import normal_bank
from cel.parameters import check_positive, check_shares
from cel.preprocessing.dequantization_variational import VariationalDequantizer
from cel.space import FeatureSpace

__all__ = ["DequantizedFlow"]

GROUPS = 64  # of noise; rows with other categories mostly have other noise


class DequantizedFlow(GenerativePytorchMixin):
    """A masked autoregressive flow over rows whose discrete parts were made continuous.

    Training maximises E_q[log p(v | y) - log q(v | x, y)] over the flow and the dequantizer (Ho et
    al., 2019; Hoogeboom et al., 2021). `log_prob` is the importance-weighted bound

        log 1/S sum_s p(v_s | y) / q(v_s | x, y)  -  log(volume of the cells),

    below log p(x | y) on average. It uses S fixed draws of noise that depend on the discrete part
    of the row only: the bound is the same every time, for every batch, and smooth in the numbers,
    while its error averages out over rows. Measures are those of `MixedDensity`: counting for
    one-hot blocks, Lebesgue for numbers, the probability of a coarse grid point divided by its
    step.

    Args:
        transforms: number of transforms of the flow.
        hidden: width of its hidden layers.
        n_hidden: hidden layers per transform.
        samples: number S of draws.
        coarser_than: grids with a smaller step count as continuous.
        noise: standard deviation of the noise added to continuous columns in training.
        tail: share of heavy tails in the latent law.
        limit: bound on the log-scale of a transform.
        options: settings of the training, see `PytorchBase`.
    """

    name = "dequantized_flow"

    def __init__(
        self,
        *,
        transforms: int = 8,
        hidden: int = 16,
        n_hidden: int = 4,
        samples: int = 16,
        coarser_than: float = 0.05,
        noise: float = 0.02,
        tail: float = 1e-3,
        limit: float = 2.0,
        **options: Unpack[TrainOptions],
    ) -> None:
        super().__init__(**options)
        self.transforms, self.hidden, self.n_hidden = transforms, hidden, n_hidden
        self.samples, self.coarser_than = samples, coarser_than
        self.noise, self.tail, self.limit = noise, tail, limit

    def _build(self, n_in: int, n_out: int) -> DequantizedNet:
        if self.space_ is None:
            raise MissingInputError(
                "DequantizedFlow must know which columns are discrete; pass space=..."
            )
        sizes = ("transforms", "hidden", "n_hidden", "samples", "limit")
        check_positive(self, *sizes)
        check_shares(self, ("tail",))
        flow = Flow(
            autoregressive_degrees(self.transforms, n_in),
            Affine(self.limit),
            n_context=n_out,
            hidden=self.hidden,
            n_hidden=self.n_hidden,
            tail=self.tail,
        )
        dequantizer = VariationalDequantizer(
            space=self.space_, n_context=n_out, coarser_than=self.coarser_than
        )
        return DequantizedNet(self.space_, flow, dequantizer, self.samples, self.noise)

    def _initialise(self, module: nn.Module, *tables: Tensor) -> None:
        assert isinstance(module, DequantizedNet)
        module.start(tables[0], tables[1] if self.context_kind_ == "value" else None)


class DequantizedNet(nn.Module):
    """The flow and its dequantizer; the bound of a row, from one draw in training."""

    stackable = True
    bank: Tensor
    smooth: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(
        self,
        space: FeatureSpace,
        flow: Flow,
        dequantizer: VariationalDequantizer,
        samples: int,
        noise: float,
    ) -> None:
        super().__init__()
        self.flow, self.dequantizer, self.noise = flow, dequantizer, noise
        self.register_buffer("bank", normal_bank(GROUPS, samples, dequantizer.n_noise))
        smooth = torch.ones(1, space.width)
        smooth[:, dequantizer.cells.grid] = 0.0
        smooth[:, dequantizer.cells.block] = 0.0
        self.register_buffer("smooth", smooth)
        for name in ("lower", "upper"):
            bound = torch.as_tensor(space.vector(name))[None, :]
            self.register_buffer(name, bound.to(smooth.dtype))

    @torch.no_grad()
    def start(self, x: Tensor, context: Tensor | None = None) -> None:
        """Standardise numbers by training rows (n, d); blocks have unit scale to begin with."""
        self.flow.standardise(x, context)
        self.flow.scale.copy_((self.flow.scale.square() + self.noise**2 * self.smooth).sqrt())
        block = self.dequantizer.cells.block
        self.flow.loc[:, block], self.flow.scale[:, block] = 0.0, 1.0

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the bound on log p(x | context), (..., n), for rows (..., n, d)."""
        if self.training:
            x = x + self.noise * self.smooth * torch.randn_like(x)
            noise = torch.randn(
                *x.shape[:-1], self.dequantizer.n_noise, device=x.device, dtype=x.dtype
            )
            return self._bound(x, noise, context)
        noise = self.bank[self.dequantizer.cells.key(x) % GROUPS].transpose(-3, -2)
        count = noise.shape[-3]
        wide = None if context is None else _repeat(context, count)
        terms = self._bound(_repeat(x, count), noise.flatten(-3, -2), wide)
        total: Tensor = terms.view(*x.shape[:-2], count, x.shape[-2]).logsumexp(-2)
        return total - math.log(count)

    @torch.no_grad()
    def sample(self, n: int, context: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draw (n, d) rows; discrete parts are exact."""
        x = self.dequantizer.quantize(self.flow.sample(n, context, generator))
        grid = self.dequantizer.cells.grid
        x[:, grid] = x[:, grid].clamp(self.lower[:, grid], self.upper[:, grid])
        return x

    def _bound(self, x: Tensor, noise: Tensor, context: Tensor | None) -> Tensor:
        v, log_q = self.dequantizer.forward(x, noise, context)
        log_p: Tensor = self.flow(v, context)
        return log_p - log_q - self.dequantizer.cells.log_volume


def _repeat(rows: Tensor, count: int) -> Tensor:
    """Return (..., n, d) rows `count` times one after the other, (..., count n, d)."""
    shape = (*rows.shape[:-2], count, *rows.shape[-2:])
    return rows.unsqueeze(-3).expand(shape).flatten(-3, -2)
