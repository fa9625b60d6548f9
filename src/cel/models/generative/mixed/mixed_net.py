"""The module of `MixedDensity`: a law of choices and a flow that sees them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cel.models.generative.flows.flow import Flow, spread
from cel.models.generative.mixed.categorical import CategoricalNet, hide_blocks
from cel.models.generative.mixed.columns import Choices
from cel.models.generative.mixed.mixed_by_hand import MixedByHand

__all__ = ["MixedNet"]


class MixedNet(nn.Module):
    """log P(c | y) + log p(v | c, y) - log(cell) for rows of choices c and numbers v.

    Args:
        choices: which columns are choices.
        law: of the choices; None if there are none.
        flow: of the numbers, with context [y, c]; None if there are none.
        n_context: columns of y, 0 for none.
        dropout: share of the choices that a training step hides from the flow.
    """

    stackable = True
    context_loc: Tensor
    context_scale: Tensor

    def __init__(
        self,
        choices: Choices,
        law: CategoricalNet | None,
        flow: Flow | None,
        *,
        n_context: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.choices, self.law, self.flow, self.dropout = choices, law, flow, dropout
        self.register_buffer("context_loc", torch.zeros(1, n_context))
        self.register_buffer("context_scale", torch.ones(1, n_context))
        if law is not None and flow is not None:
            flow.net.start_equal(flow.n_features + n_context, law.blocks)

    @torch.no_grad()
    def start(self, x: Tensor, context: Tensor | None = None) -> None:
        """Standardise by training rows (n, d) and by a `context` (n, c) of values."""
        blocks, numbers = self.choices(x)
        if self.law is not None:
            self.law.start(blocks)
        if self.flow is not None:
            self.flow.standardise(numbers)
        if context is not None:
            self.context_loc.copy_(context.mean(0, keepdim=True))
            self.context_scale.copy_(spread(context))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p(x | context) of shape (..., n) for rows (..., n, d)."""
        blocks, numbers = self.choices(x)
        context = self.standard_context(context)
        total = x.new_full(x.shape[:-1], -self.choices.log_cell)
        if self.law is not None:
            total = total + self.law(blocks, context)
        if self.flow is None:
            return total
        if self.training and self.law is not None:
            blocks = hide_blocks(blocks, self.law.blocks, self.dropout)
        log_p: Tensor = self.flow(numbers, _join(context, blocks))
        return total + log_p

    @torch.no_grad()
    def sample(self, n: int, context: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draw (n, d) rows; choices are exact, numbers are not rounded."""
        context = self.standard_context(context)
        blocks = numbers = self.context_loc.new_zeros(n, 0)
        if self.law is not None:
            blocks = self.law.sample(n, context, generator)
        if self.flow is not None:
            numbers = self.flow.sample(n, _join(context, blocks), generator)
        return self.choices.assemble(blocks, numbers)

    def by_hand(self) -> MixedByHand | None:
        """Return steps without a graph, or None where they do not serve."""
        return MixedByHand.of(self) if type(self) is MixedNet else None

    def standard_context(self, context: Tensor | None) -> Tensor | None:
        """Return the context (..., n, c) in units of the training rows."""
        return None if context is None else (context - self.context_loc) / self.context_scale


def _join(context: Tensor | None, blocks: Tensor) -> Tensor | None:
    """Return what the flow sees besides the numbers; None when there is nothing."""
    if context is None:
        return blocks if blocks.shape[-1] else None
    return torch.cat((context, blocks), -1)
