"""Kernel density estimation, per class or around a value."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn

from cel.errors import ConfigError
from cel.models.base import TrainOptions
from cel.models.generative.closed_form import ClosedFormDensity
from cel.models.generative.kernels.bandwidth import KernelShape, choose_kernel
from cel.models.generative.kernels.kernel_net import KernelNet
from cel.models.inputs import FitRows
from cel.parameters import check_positive, check_shares
from cel.registry import did_you_mean

__all__ = ["KDE"]

RULES = ("loo", "scott", "silverman")


class KDE(ClosedFormDensity):
    """p(x | y) = mean_i prod_j K((x_j - x_ij) / h_j) / h_j over the rows of class y.

    Numbers have Gaussian kernels, one-hot blocks Aitchison-Aitken kernels. For values instead of
    classes p(x | y) = p(x, y) / p(y), both by kernels. A small share of a broad law keeps the
    log-density of far rows within reason.

    Args:
        bandwidth: "loo" (leave-one-out maximum likelihood), "scott", "silverman", or one number
            for all columns.
        floor: smallest bandwidth that a rule may choose, in encoded units.
        max_rows: more training rows than this are thinned out at random; None keeps all.
        background: share of the broad law.
        options: `random_state` and `device`; nothing is trained.

    >>> density = KDE(bandwidth=0.5, background=0.0).fit([[0.0], [1.0]])
    >>> round(density.log_prob(torch.tensor([[0.5]])).exp().item(), 4)
    0.4839
    """

    name = "kde"
    n_rows_: int

    def __init__(
        self,
        *,
        bandwidth: Literal["loo", "scott", "silverman"] | float = "loo",
        floor: float = 0.02,
        max_rows: int | None = 20_000,
        background: float = 1e-3,
        **options: Unpack[TrainOptions],
    ) -> None:
        super().__init__(**options)
        self.bandwidth, self.floor, self.max_rows = bandwidth, floor, max_rows
        self.background = background

    def _learn_target(self, rows: FitRows) -> None:
        super()._learn_target(rows)
        self.n_rows_ = min(len(rows.X), self.max_rows or len(rows.X))

    def _build(self, n_in: int, n_out: int) -> KernelNet:
        self._check()
        return KernelNet(
            n_rows=self.n_rows_,
            n_in=n_in,
            n_context=n_out,
            by_class=self._by_class,
            blocks=self._blocks(),
            background=self.background,
        )

    def _settle(self, module: nn.Module, x: Tensor, context: Tensor | None) -> None:
        assert isinstance(module, KernelNet)
        generator = torch.Generator().manual_seed(self.random_state)
        if self.n_rows_ < len(x):
            chosen = torch.randperm(len(x), generator=generator)[: self.n_rows_].to(x.device)
            x, context = x[chosen], None if context is None else context[chosen]
        module.keep(x, context)
        for k in range(module.n_groups):
            own = module.group(k)
            shape = self._shape(own.shape[1])
            shuffled = own[torch.randperm(len(own), generator=generator).to(own.device)]
            module.set_kernel(k, choose_kernel(shape, shuffled, self.bandwidth), self.floor)

    def _shape(self, width: int) -> KernelShape:
        blocks = self._blocks()
        taken = {c for b in blocks for c in b}
        numbers = tuple(c for c in range(width) if c not in taken)
        return KernelShape(numbers, blocks, width, self.floor)

    def _blocks(self) -> tuple[tuple[int, ...], ...]:
        features = () if self.space_ is None else self.space_.one_hot_features
        return tuple(f.columns for f in features)

    def _check(self) -> None:
        check_positive(self, "floor")
        check_shares(self, ("background",))
        if isinstance(self.bandwidth, str):
            if self.bandwidth not in RULES:
                hint = did_you_mean(self.bandwidth, RULES)
                raise ConfigError(f"unknown bandwidth {self.bandwidth!r}; {hint}, or a number")
        else:
            check_positive(self, "bandwidth")

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"n_rows_": self.n_rows_}
