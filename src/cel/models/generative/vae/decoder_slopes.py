"""The decoder of `VAE` and its gradients by hand: small batches pay for autograd."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cel.models.generative.vae.vae_net import VAENet
from cel.models.layers import Linear

__all__ = ["Decoded", "DecoderSlopes"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoded:
    """Rows that codes stand for, and what the way back needs.

    Attributes:
        soft: (n, d) rows whose blocks hold probabilities.
        hard: (n, d) rows whose blocks are one-hot; the same tensor where there are none.
        hidden: what each hidden layer gave.
        mean: (n, k) numbers before they are clipped.
        chances: (n, g, k) probabilities of the blocks, or None.
    """

    soft: Tensor
    hard: Tensor
    hidden: list[Tensor]
    mean: Tensor
    chances: Tensor | None


class DecoderSlopes:
    """Decodes as `VAENet.decode_row` does, to the byte, and pulls gradients back to the codes.

    Args:
        net: a decoder without context.
    """

    def __init__(self, net: VAENet) -> None:
        self.net = net
        layers = [m for m in net.decoder.layers if isinstance(m, Linear)]
        self.layers = [(m.weight.detach(), m.bias.detach()) for m in layers]
        self.loc, self.scale = (net._number_columns(v) for v in (net.loc, net.scale))
        fixed = net.fixed
        self.fixed_loc, self.fixed_scale = net.loc[..., fixed], net.scale[..., fixed]

    @staticmethod
    def can_read(net: VAENet) -> bool:
        """Whether the decoder is nothing but affine layers and ReLUs, without rescaled outputs."""
        decoder, first = net.decoder, net.decoder.layers[0]
        plain = bool((decoder.scale == 1).all()) and bool((decoder.shift == 0).all())
        seen = net.latent + len(net.fixed)
        return plain and isinstance(first, Linear) and first.in_features == seen

    def decode(self, z: Tensor, x: Tensor) -> Decoded:
        """Return the rows of codes (n, q); what cannot change is taken from rows x (n, d)."""
        net, hidden, out = self.net, [], z
        fixed = x[:, net.fixed]
        if len(net.fixed):
            out = torch.cat((z, (fixed - self.fixed_loc) / self.fixed_scale), -1)
        for weight, bias in self.layers[:-1]:
            out = torch.addmm(bias, out, weight.T).relu_()
            hidden.append(out)
        weight, bias = self.layers[-1]
        out = torch.addmm(bias, out, weight.T)
        count = len(net.numbers)
        mean = self.loc + self.scale * (out if net._plain else out[:, :count])
        clipped = mean.clamp(net.lower, net.upper)
        if not len(net.choices):
            soft = clipped if net._plain else self._rows(clipped, None, fixed)
            return Decoded(soft=soft, hard=soft, hidden=hidden, mean=mean, chances=None)
        chances = net._padded(out[:, count:]).softmax(-1)
        sure = functional.one_hot(chances.argmax(-1), chances.shape[-1]).to(chances)
        soft, hard = (self._rows(clipped, p, fixed) for p in (chances, sure))
        return Decoded(soft=soft, hard=hard, hidden=hidden, mean=mean, chances=chances)

    def back(self, slope: Tensor, seen: Decoded) -> Tensor:
        """Return gradients (n, q) by the codes of a loss with slopes (n, d) by the soft rows."""
        net = self.net
        inside = (seen.mean >= net.lower) & (seen.mean <= net.upper)
        push = slope if net._plain else slope.index_select(1, net.numbers)
        push = torch.where(inside, push, 0.0) * self.scale
        if seen.chances is not None:
            push = torch.cat((push, self._blocks_back(slope, seen.chances)), 1)
        for (weight, _), hidden in zip(self.layers[:0:-1], seen.hidden[::-1], strict=True):
            push = torch.ops.aten.threshold_backward(push @ weight, hidden, 0)
        return (push @ self.layers[0][0])[:, : net.latent]

    def _blocks_back(self, slope: Tensor, chances: Tensor) -> Tensor:
        """Return the slopes (n, c) by the logits of the blocks."""
        net = self.net
        table = torch.zeros_like(chances)
        table.flatten(1)[:, net.blocks.place] = slope.index_select(1, net.choices)
        inner = torch.ops.aten._softmax_backward_data(table, chances, -1, chances.dtype)
        return net.blocks.flat(inner)

    def _rows(self, numbers: Tensor, chances: Tensor | None, fixed: Tensor) -> Tensor:
        net = self.net
        x = numbers.new_zeros(len(numbers), net.width)
        x.index_copy_(1, net.numbers, numbers)
        if chances is not None:
            x.index_copy_(1, net.choices, net.blocks.flat(chances))
        if len(net.fixed):
            x.index_copy_(1, net.fixed, fixed)
        return x
