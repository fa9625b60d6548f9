"""The module of `KDE`: stored rows and one kernel per class."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cel.models.generative.background import draw_broad, log_broad, mix
from cel.models.generative.kernels.kernel_sums import (
    PAIRS_AT_ONCE,
    Kernel,
    log_kernel_sum,
    log_kernels,
)

__all__ = ["KernelNet"]


class KernelNet(nn.Module):
    """Rows of all classes, or rows joined with their values, and the kernels over them.

    Distances are computed in float64, whatever the dtype of the rows.

    Args:
        n_rows: number m of stored rows.
        n_in: columns d of a row.
        n_context: columns c of the context, 0 for none.
        by_class: whether the context is a one-hot class; otherwise it is a value.
        blocks: columns of each one-hot block.
        background: share of the broad law.
    """

    classes: Tensor
    inverse: Tensor
    ratio: Tensor
    factor: Tensor
    loc: Tensor
    scale: Tensor
    number: Tensor

    def __init__(
        self,
        *,
        n_rows: int,
        n_in: int,
        n_context: int,
        by_class: bool,
        blocks: tuple[tuple[int, ...], ...],
        background: float,
    ) -> None:
        super().__init__()
        self.by_class, self.background, self.n_in = by_class, background, n_in
        self.n_groups = n_context if by_class else 1
        self.blocks = blocks
        width = n_in if by_class else n_in + n_context
        self.rows = nn.Parameter(torch.zeros(n_rows, width), requires_grad=False)
        self.register_buffer("classes", torch.zeros(n_rows, dtype=torch.long))
        for name in ("inverse", "ratio"):
            self.register_buffer(name, torch.zeros(self.n_groups, width))
        self.register_buffer("factor", torch.zeros(self.n_groups))
        number = torch.ones(n_in, dtype=torch.bool)
        number[[c for b in blocks for c in b]] = False
        self.register_buffer("number", number)
        for name in ("loc", "scale"):
            self.register_buffer(name, torch.ones(self.n_groups, int(number.sum())))
        self.log_uniform = -math.fsum(math.log(len(b)) for b in blocks)

    def keep(self, x: Tensor, context: Tensor | None) -> None:
        """Store rows (m, d) with their encoded context (m, c)."""
        if context is None or self.by_class:
            self.rows.copy_(x)
        else:
            self.rows.copy_(torch.cat((x, context), 1))
        if context is not None and self.by_class:
            self.classes.copy_(context.argmax(1))

    def group(self, k: int) -> Tensor:
        """Return the rows of class `k` in float64, all rows where it has none."""
        own = self.classes == k
        rows = self.rows if not self.by_class or not bool(own.any()) else self.rows[own]
        return rows.double()

    def set_kernel(self, k: int, kernel: Kernel, floor: float) -> None:
        """Set the kernel of class `k`, and the broad law from its rows."""
        self.inverse[k], self.ratio[k], self.factor[k] = kernel
        numbers = self.group(k)[:, : self.n_in][:, self.number]
        self.loc[k] = numbers.mean(0)
        self.scale[k] = numbers.std(0, unbiased=False).clamp(min=floor)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p(x | context), (n,)."""
        wide = x.double()
        if context is None or not self.by_class:
            return self._of(0, wide, context).to(x.dtype)
        out = wide.new_zeros(len(x))
        for k in range(self.n_groups):
            own = (context[:, k] > 0.5).nonzero()[:, 0]
            if len(own):
                out = out.index_copy(0, own, self._of(k, wide[own], None))
        return out.to(x.dtype)

    @torch.no_grad()
    def sample(self, n: int, context: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draw (n, d) rows: a stored row each, moved by its kernel."""
        chosen, group = self._pick(n, context, generator)
        noise = torch.randn((n, self.n_in), generator=generator, device=generator.device)
        inverse = self.inverse[group][:, : self.n_in]
        width = torch.where(inverse > 0, 1 / inverse.clamp(min=1e-12), 0.0)
        x = self.rows[chosen][:, : self.n_in] + width * noise.to(width)
        x = self._other_categories(x, group, generator)
        broad = draw_broad(n, self.loc[group], self.scale[group], generator)
        heavy = torch.rand(n, generator=generator, device=generator.device) < self.background
        x[:, self.number] = torch.where(heavy[:, None], broad, x[:, self.number])
        return x

    def _of(self, k: int, x: Tensor, context: Tensor | None) -> Tensor:
        rows = self.group(k)
        kernel = (self.inverse[k].double(), self.ratio[k].double(), self.factor[k].double())
        weights = rows.new_full((len(rows),), -math.log(len(rows)))
        if context is None:
            log_p = log_kernel_sum(x, rows, kernel, weights)
        else:
            joint = torch.cat((x, context.double()), 1)
            log_p = log_kernel_sum(joint, rows, kernel, weights)
            log_p = log_p - self._log_values(context.double(), rows, weights)
        loc, scale = self.loc[k].double(), self.scale[k].double()
        broad = log_broad(x[:, self.number], loc, scale) + self.log_uniform
        return mix(log_p, broad, self.background)

    def _value_kernel(self) -> Kernel:
        inverse = self.inverse[0, self.n_in :].double()
        factor = inverse.log().sum() - 0.5 * len(inverse) * math.log(2 * math.pi)
        return inverse, torch.zeros_like(inverse), factor

    def _log_values(self, context: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
        return log_kernel_sum(context, rows[:, self.n_in :], self._value_kernel(), weights)

    def _pick(
        self, n: int, context: Tensor | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the stored row (n,) and the class (n,) to draw from."""
        device, count = self.rows.device, len(self.rows)
        group = torch.zeros(n, dtype=torch.long, device=device)
        if context is not None and not self.by_class:
            values, kernel = self.rows[:, self.n_in :].double(), self._value_kernel()
            parts = [
                torch.multinomial(
                    log_kernels(c, values, kernel).softmax(1), 1, generator=generator
                )
                for c in torch.split(context.double(), max(PAIRS_AT_ONCE // count, 1))
            ]
            return torch.cat(parts)[:, 0], group
        chosen = torch.randint(count, (n,), generator=generator, device=device)
        if context is not None:
            group = context.argmax(1)
            for k in range(self.n_groups):
                own = (self.classes == k).nonzero()[:, 0]
                if len(own):
                    chosen = torch.where(group == k, own[chosen % len(own)], chosen)
        return chosen, group

    def _other_categories(self, x: Tensor, group: Tensor, generator: torch.Generator) -> Tensor:
        for block in self.blocks:
            columns = list(block)
            p = (self.ratio[group][:, columns] * x[:, columns]).softmax(1)
            chosen = torch.multinomial(p, 1, generator=generator)[:, 0]
            x[:, columns] = nn.functional.one_hot(chosen, len(block)).to(x)
        return x
