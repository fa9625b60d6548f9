"""An exact law of several categories: each one given those before it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cel.models.generative.flows.masked import MaskedNet
from cel.models.generative.mixed.category_terms import CategoryTerms
from cel.preprocessing.blocks import Blocks

__all__ = ["CategoricalNet", "hide_blocks"]


class CategoricalNet(nn.Module):
    """log P(c_1, ..., c_g | context) = sum_i log P(c_i | c_1..c_{i-1}, context), by softmax.

    Categories are blocks of one-hot columns. For blocks that are not one-hot but lie on the
    simplex the term of a block is its expected log-probability, which is linear in the block and
    exact at its corners.

    Args:
        sizes: number of categories of each variable.
        n_context: columns of the context, 0 for none.
        hidden: width of hidden layers.
        n_hidden: number of hidden layers.
        floor: share of the uniform law mixed into each factor; bounds log P from below.
        dropout: share of the blocks that a training step hides from the later ones.

    >>> net = CategoricalNet((2, 3))
    >>> net(torch.tensor([[1.0, 0, 0, 1, 0]])).exp()
    tensor([0.1667], grad_fn=<ExpBackward0>)
    """

    stackable = True
    log_uniform: Tensor

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        n_context: int = 0,
        hidden: int = 64,
        n_hidden: int = 2,
        floor: float = 1e-3,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.floor, self.dropout = floor, dropout
        self.blocks = Blocks(sizes)
        self.net = MaskedNet(
            self.blocks.owner[None, :] + 1,
            n_context=n_context,
            n_params=1,
            hidden=hidden,
            n_hidden=n_hidden,
        )
        self.net.start_equal(0, self.blocks)
        logs = [[-math.log(size)] for size in sizes]
        self.register_buffer("log_uniform", torch.tensor(logs))
        self.terms = CategoryTerms(self.blocks, torch.tensor(logs), floor)

    @torch.no_grad()
    def start(self, onehot: Tensor) -> None:
        """Begin at the smoothed marginals of training rows (n, D)."""
        count = onehot.sum(0) + 1.0
        self.net.b_first[0, 0, self.net.sizes[0] :] = (count / len(onehot)).log()

    def forward(self, onehot: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log P (..., n) of rows (..., n, D)."""
        seen = hide_blocks(onehot, self.blocks, self.dropout) if self.training else onehot
        if (self.training or not torch.is_grad_enabled()) and self.terms.serves(onehot):
            return self.terms(self._logits(seen, context), onehot)
        log_p = self.log_probs(seen, context)
        return (self.blocks.split(onehot, fill=0.0) * log_p).sum((-2, -1))

    def log_probs(self, onehot: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log P of every category given the blocks before it, (..., n, g, k).

        Places beyond the last category of a variable hold zero.
        """
        logits = self._logits(onehot, context)
        log_p = self.blocks.split(logits, fill=torch.finfo(logits.dtype).min).log_softmax(-1)
        if self.floor:
            uniform = (self.log_uniform + math.log(self.floor)).expand_as(log_p)
            log_p = torch.logaddexp(log_p + math.log1p(-self.floor), uniform)
        return torch.where(self.blocks.real, log_p, 0.0)

    def _logits(self, onehot: Tensor, context: Tensor | None) -> Tensor:
        logits: Tensor = self.net(onehot, context, self.net.weights()[0])[..., 0, :]
        return logits

    @torch.no_grad()
    def sample(self, n: int, context: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draw (n, D) one-hot rows, variable by variable."""
        onehot = self.log_uniform.new_zeros(n, len(self.blocks.owner))
        everyone = torch.arange(n, device=onehot.device)
        for g, size in enumerate(self.blocks.sizes):
            p = self.log_probs(onehot, context)[:, g, :size].exp()
            chosen = torch.multinomial(p, 1, generator=generator)[:, 0]
            onehot[everyone, self.blocks.table[g][chosen]] = 1.0
        return onehot


def hide_blocks(onehot: Tensor, blocks: Blocks, share: float, out: Tensor | None = None) -> Tensor:
    """Set each block of rows (..., n, D) to zero with probability `share`; write it to `out`."""
    if not share:
        return onehot if out is None else out.copy_(onehot)
    kept = torch.rand(*onehot.shape[:-1], len(blocks), device=onehot.device) >= share
    return torch.mul(onehot, kept.to(onehot.dtype).index_select(-1, blocks.owner), out=out)
