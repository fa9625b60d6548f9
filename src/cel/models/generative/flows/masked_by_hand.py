"""Masked networks and their gradients without a graph, in memory that is kept.

Every product and every sum is the one that autograd makes of `MaskedNet`, on the same numbers:
gradients are equal to the byte. What is saved is the graph, hundreds of nodes a step, fresh
memory for every result, and the copies that stitch results together: each layer writes its
columns of a wider table where the next product reads them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from cel.models.generative.flows.masked import MaskedNet

__all__ = ["MaskedByHand", "Trace", "Workspace", "learns_alone", "same_narrow"]

DIFFERENT_STARTS = 4  # of the weights of one transform after another
ROUND = 16  # numbers from one round address to the next
FEW_ROWS = 64
MOST_ADDED = 1.1  # columns of a padded product, in those of the product
ALONE = 3  # axes of the weights of one model: transforms, inputs, outputs
aten = torch.ops.aten


def learns_alone(net: MaskedNet) -> bool:
    """Tell whether this is one network, not a stack, that learns in single precision on a CPU."""
    plain = (p.device.type == "cpu" and p.dtype == torch.float32 for p in net.parameters())
    learning = all(p.requires_grad and p.dim() == ALONE for p in net.parameters())
    return type(net) is MaskedNet and learning and all(plain)


class Trace:
    """What the gradient of one transform needs of its forward pass, for `n` rows.

    Args:
        net: the networks.
        n: number of rows.
        inputs: (n, inputs) where the transform reads; of its own if None.
    """

    def __init__(self, net: MaskedByHand, n: int, inputs: Tensor | None = None) -> None:
        room = net.first[0].new_empty
        self.inputs = room(n, net.n_inputs) if inputs is None else inputs
        self.turned = self.inputs.t()
        self.sums = [room(n, net.hidden) for _ in range(net.n_hidden)]
        self.turned_sums = [s.t() for s in self.sums]
        self.units = [self.sums[0], *(room(n, net.hidden) for _ in range(net.n_hidden - 1))]


class Workspace:
    """What every transform overwrites, for `n` rows.

    `out` holds the numbers that a network returns and `by_out` takes their gradient, each
    (n, outputs): the last columns of tables that also have the first hidden layer, unless they
    must lie `apart` from them.
    """

    def __init__(self, net: MaskedByHand, n: int) -> None:
        room, h, width = net.first[0].new_empty, net.hidden, net.n_outputs
        self.layer = net.first_for(n)
        self.first, self.by_first = (torch.zeros(n, self.layer.width) for _ in range(2))
        whole, self.by_whole = (t[:, : h + width] for t in (self.first, self.by_first))
        self.start, self.skip = whole[:, :h], whole[:, h:]
        self.by_start, self.by_skip = self.by_whole[:, :h], self.by_whole[:, h:]
        self.apart = not same_inside(n, h, width, self.layer.width)
        self.out = room(n, width) if self.apart else self.skip
        self.by_out = room(n, width) if self.apart else self.by_skip
        self.by_h, self.by_unit = room(n, h), room(n, h)


@functools.lru_cache(maxsize=256)
def same_inside(n: int, hidden: int, width: int, whole: int) -> bool:
    """Tell whether products round alike for a matrix (n, width) inside (n, whole) and alone.

    Some libraries take other ways where rows do not begin at round addresses. It is tried here,
    on random numbers and with weights that begin at several addresses.
    """
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
    h, wide, columns = draw(n, hidden), draw(n, whole), slice(hidden, hidden + width)
    part, by_h = wide[:, columns], draw(n, hidden)
    alone, turned = part.clone(), draw(DIFFERENT_STARTS, hidden, hidden)
    for weight, inner in zip(draw(DIFFERENT_STARTS, hidden, width), turned, strict=True):
        pairs = (
            (torch.addmm(part, h, weight), wide.clone()[:, columns].addmm_(h, weight)),
            (torch.mm(h.t(), alone), torch.mm(h.t(), part)),
            (torch.mm(alone, weight.t()), torch.mm(part, weight.t())),
            (torch.mm(h, inner.t()).add_(by_h), by_h.clone().addmm_(h, inner.t())),
        )
        if not all(torch.equal(a, b) for a, b in pairs):
            return False
    return True


@functools.lru_cache(maxsize=256)
def same_narrow(n: int, width: int, whole: int, inputs: int, wanted: int) -> bool:
    """Tell whether the first columns of a product (n, width) (width, inputs) round as in it.

    Libraries take other ways for narrow products. Gradients lie in (n, whole); see `same_inside`.
    """
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
    by, weights = draw(n, whole)[:, :width], draw(DIFFERENT_STARTS, inputs, width)
    alone = by.contiguous()
    return all(
        torch.equal(torch.mm(alone, w.t())[:, :wanted], torch.mm(by, w[:wanted].t()))
        for w in weights
    )


@functools.lru_cache(maxsize=256)
def same_padded(n: int, inputs: int, width: int, padded: int) -> bool:
    """Tell whether first products (n, inputs) (inputs, width) round alike with more columns.

    Those of zeros that make the width round; see `same_inside`.
    """
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
    x, by = draw(n, inputs), torch.zeros(n, padded)
    by[:, :width] = draw(n, width)
    alone, bias = by[:, :width].contiguous(), torch.zeros(1, padded)
    bias[:, :width] = draw(1, width)
    weights, rooms = (torch.zeros(DIFFERENT_STARTS, inputs, k) for k in (padded, width))
    weights[..., :width] = draw(DIFFERENT_STARTS, inputs, width)
    plain = weights[..., :width].contiguous()
    for wide, narrow, room in zip(weights, plain, rooms, strict=True):
        there = torch.addmm(bias, x, wide), torch.mm(x.t(), by)
        here = torch.addmm(bias[:, :width], x, narrow), torch.mm(x.t(), alone)
        beside = torch.mm(x.t(), alone, out=room)
        pairs = (*zip(there, here, strict=True), (there[1], beside))
        back = torch.mm(by[:, :width], narrow.t()), torch.mm(alone, narrow.t())
        if not all(torch.equal(a[:, :width], b) for a, b in pairs) or not torch.equal(*back):
            return False
    return True


class _HiddenLayer(NamedTuple):
    """A hidden layer of one transform: weights, what turns gradients back, where theirs go."""

    weight: Tensor
    bias: Tensor
    back: Tensor
    to_weight: Tensor
    to_bias: Tensor


class _Weights:
    """Weights of one kind of layer, (t, in, out), as they are and masked, and their gradient."""

    def __init__(self, parameter: Tensor, mask: Tensor, spaced: bool) -> None:
        self.weight, self.mask = parameter.detach(), mask
        self.masked, self.grad = torch.empty_like(self.weight), _grad(parameter)
        t, rows, columns = parameter.shape
        step = -(-rows * columns // ROUND) * ROUND
        spread = torch.zeros(t * step).as_strided((t, rows, columns), (step, columns, 1))
        self.room = spread if spaced else self.grad


class _First:
    """First layers of all transforms as their products have them: bias, weight, gradient."""

    def __init__(self, bias: Tensor, weight: Tensor, room: Tensor) -> None:
        self.whole = bias, weight
        self.room, self.width = room, weight.shape[-1]
        self.bias, self.weight, self.to_weight = (s.unbind(0) for s in (bias, weight, room))

    def padded(self, columns: int) -> _First:
        """Return the same with more columns, of zeros."""
        more = (0, columns - self.width)
        return _First(*(functional.pad(t, more) for t in (*self.whole, self.room)))


class MaskedByHand:
    """A `MaskedNet` and the gradients of its weights; see `learns_alone`.

    Args:
        net: the networks of all transforms.
        spaced: whether the gradient of each transform begins at a round address, as those of
            autograd do; else they lie side by side. Products may round by where they end up.
    """

    def __init__(self, net: MaskedNet, *, spaced: bool) -> None:
        self.n_inputs, self.n_hidden = net.w_first.shape[1], 1 + len(net.w_hidden)
        self.hidden, self.n_outputs = net.w_out.shape[1:]
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        pairs = [(net.w_first, net.mask_first), (net.w_out, net.mask_out)]
        pairs += [(w, net.mask_hidden) for w in net.w_hidden]
        self.weights = [_Weights(p, mask, spaced) for p, mask in pairs]
        first, out, *inner = self.weights
        self.plain = _First(net.b_first.detach(), first.masked, first.room)
        self.padded: _First | None = None
        self.first, self.out = self.plain.weight, out.masked.unbind(0)
        self.out_back, self.to_out = out.masked.mT.unbind(0), out.room.unbind(0)
        self.to_bias = _grad(net.b_first).unbind(0)
        stacks = [
            (w.masked, b.detach(), w.masked.mT, w.room, _grad(b))
            for w, b in zip(inner, net.b_hidden, strict=True)
        ]
        layers = [list(zip(*(s.unbind(0) for s in stack), strict=True)) for stack in stacks]
        self.layers = [[_HiddenLayer(*own[t]) for own in layers] for t in range(len(self.first))]

    def first_back(self, columns: int) -> tuple[Tensor, ...]:
        """Return of each transform what turns gradients back to its first `columns` inputs."""
        return tuple(weight[:columns].t() for weight in self.first)

    def first_for(self, n: int) -> _First:
        """Return the first layers for `n` rows: of round width, if that is little more work."""
        width = self.plain.width
        columns = -(-width // ROUND) * ROUND
        pays = n >= FEW_ROWS and width < columns <= MOST_ADDED * width
        if not pays or not same_padded(n, self.n_inputs, width, columns):
            return self.plain
        self.padded = self.padded or self.plain.padded(columns)
        return self.padded

    def mask_weights(self, first: _First) -> None:
        """Read the weights as they are now, for products that have `first`."""
        for own in self.weights:
            torch.mul(own.weight, own.mask, out=own.masked)
        if first is not self.plain:
            for wide, plain in zip(first.whole, self.plain.whole, strict=True):
                wide[..., : self.plain.width] = plain

    def mask_gradients(self, first: _First) -> None:
        """Hand over the gradients; those of connections that do not exist are zero."""
        rooms = [own.room for own in self.weights]
        rooms[0] = first.room[..., : self.plain.width]
        for own, room in zip(self.weights, rooms, strict=True):
            torch.mul(room, own.mask, out=own.grad)

    def forward(self, t: int, trace: Trace, space: Workspace) -> None:
        """Write to `space.out` what network `t` makes of `trace.inputs`."""
        own = space.layer
        torch.addmm(own.bias[t], trace.inputs, own.weight[t], out=space.first)
        h = torch.clamp_min(space.start, 0, out=trace.sums[0])
        for layer, unit, total in zip(
            self.layers[t], trace.units[1:], trace.sums[1:], strict=True
        ):
            torch.addmm(layer.bias, h, layer.weight, out=unit).relu_()
            h = torch.add(h, unit, out=total)
        torch.addmm(space.skip, h, self.out[t], out=space.out)

    def backward(self, t: int, trace: Trace, space: Workspace) -> None:
        """Write the gradients of network `t`, and that of its first product to `by_first`."""
        by_h, by_unit = space.by_h, space.by_unit
        if space.apart:
            space.by_skip.copy_(space.by_out)
        torch.mm(trace.turned_sums[-1], space.by_out, out=self.to_out[t])
        torch.mm(space.by_out, self.out_back[t], out=by_h)
        for k in range(self.n_hidden - 1, 0, -1):
            layer = self.layers[t][k - 1]
            aten.threshold_backward.grad_input(by_h, trace.units[k], 0, grad_input=by_unit)
            torch.mm(trace.turned_sums[k - 1], by_unit, out=layer.to_weight)
            torch.sum(by_unit, 0, keepdim=True, out=layer.to_bias)
            by_h.addmm_(by_unit, layer.back)
        aten.threshold_backward.grad_input(by_h, trace.units[0], 0, grad_input=space.by_start)
        torch.mm(trace.turned, space.by_first, out=space.layer.to_weight[t])
        torch.sum(space.by_whole, 0, keepdim=True, out=self.to_bias[t])


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
