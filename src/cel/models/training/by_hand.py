"""Gradients of ReLU networks without a graph: the kernels of autograd, in memory that is kept.

A loss tells its slope by the decorator `sloped`; a subclass that writes another loss is not
mistaken for it. `gradients` takes the path by hand where the module is a plain `Network` on the
CPU and the loss has a slope, and autograd everywhere else. Both paths give the same bytes.
A module that knows its own gradients says so by a method `by_hand`; it is asked where the loss is
what the module returns, negated, and nothing else (decorator `negated`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from cel.models.layers import Linear, Network
from cel.models.training.jobs import RowLoss

__all__ = [
    "Gradients",
    "cross_entropy_slope",
    "gradients",
    "negated",
    "scaled_error_slope",
    "sloped",
]


class Gradients(Protocol):
    """The losses of a module, or of a stack of them, and their gradients."""

    def __call__(self, weight: Tensor | None, *batch: Tensor) -> Tensor:
        """Set the gradients of the parameters, return the loss by model."""

    def rows(self, *batch: Tensor) -> Tensor:
        """Return the losses of rows, (..., n)."""


Slope = Callable[[Network, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""`slope(network, out, y, share)`: from outputs (..., n, k), targets and what each row counts,
(..., n), to the losses of the rows, (..., n), and the gradient in the outputs, (..., n, k)."""

aten = torch.ops.aten
_Loss = TypeVar("_Loss", bound=Callable[..., Tensor])


def sloped(slope: Slope) -> Callable[[_Loss], _Loss]:
    """Say of a loss `loss(module, x, y)` how its gradient in the outputs is computed."""

    def mark(loss: _Loss) -> _Loss:
        loss.slope = slope  # type: ignore[attr-defined]
        return loss

    return mark


def negated(loss: _Loss) -> _Loss:
    """Say of a loss `loss(module, *batch)` that it is `-module(*batch)`."""
    loss.negated = True  # type: ignore[attr-defined]
    return loss


def cross_entropy_slope(
    network: Network, out: Tensor, y: Tensor, share: Tensor
) -> tuple[Tensor, Tensor]:
    """Slope of `-log softmax(out)[y]`, for labels (..., n)."""
    log_p = out.log_softmax(-1)
    flat, label, each = log_p.flatten(0, -2), y.flatten(), 0  # a loss for each row
    rows, count = aten.nll_loss_forward.default(flat, label, None, each, -1)
    to_log_p = aten.nll_loss_backward.default(
        share.flatten(), flat, label, None, each, -1, count
    ).view_as(out)
    slope = torch._log_softmax_backward_data(to_log_p, log_p, -1, out.dtype)
    return rows.view_as(y), slope


def scaled_error_slope(
    network: Network, out: Tensor, y: Tensor, share: Tensor
) -> tuple[Tensor, Tensor]:
    """Slope of the mean over targets of `((out - y) / scale)^2`, for values (..., n, m)."""
    error = (out - y) / network.scale
    slope = share.unsqueeze(-1) / out.shape[-1] * (2 * error) / network.scale
    return error.square().mean(-1), slope


def gradients(module: nn.Module, loss: RowLoss) -> Gradients:
    """Return the function that computes gradients: by hand where all is known, else autograd."""
    slope: Slope | None = getattr(loss, "slope", None)
    if slope is not None and isinstance(module, Network) and _is_plain(module):
        return _ByHand(module, loss, slope)
    ask: Callable[[nn.Module], Gradients | None] | None = getattr(type(module), "by_hand", None)
    own = ask(module) if ask is not None and getattr(loss, "negated", False) else None
    return own or _ByGraph(module, loss)


def _is_plain(network: Network) -> bool:
    """Whether the network has layers and ReLUs only, all of them learn, on the CPU."""
    known = all(isinstance(m, Linear | nn.ReLU) for m in network.layers)
    learning = all(p.requires_grad and p.device.type == "cpu" for p in network.parameters())
    return type(network) is Network and known and learning


def _mean(rows: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean over the rows, (..., n) to (...); repeated rows have weight zero."""
    return rows.mean(-1) if weight is None else (rows * weight).sum(-1) / weight.sum(-1)


class _ByGraph:
    """The gradients of any loss, by autograd."""

    def __init__(self, module: nn.Module, loss: RowLoss) -> None:
        self.module, self.loss = module, loss

    def __call__(self, weight: Tensor | None, *batch: Tensor) -> Tensor:
        self.module.zero_grad(set_to_none=True)
        losses = _mean(self.loss(self.module, *batch), weight)
        torch.autograd.backward(losses.sum())
        return losses.detach()

    def rows(self, *batch: Tensor) -> Tensor:
        return self.loss(self.module, *batch)


class _ByHand:
    """The gradients of a `Network`, or of a stack of them, layer by layer."""

    def __init__(self, network: Network, loss: RowLoss, slope: Slope) -> None:
        self.network, self.loss, self.slope = network, loss, slope
        self.layers = [_Layer(layer) for layer in network.layers if isinstance(layer, Linear)]
        self.memory: dict[int, _Memory] = {}  # by the number of rows
        self.rescaled = bool((network.scale != 1).any() or (network.shift != 0).any())

    @torch.no_grad()
    def __call__(self, weight: Tensor | None, *batch: Tensor) -> Tensor:
        x, y = batch
        n, network = x.shape[-2], self.network
        kept = self.memory.get(n) or self.memory.setdefault(n, _Memory(self.layers, n))
        out = self._forward(x, kept.outputs)
        if self.rescaled:
            out.mul_(network.scale).add_(network.shift)
        share = kept.share if weight is None else weight / weight.sum(-1, keepdim=True)
        rows, slope = self.slope(network, out, y, share)
        if self.rescaled:
            slope.mul_(network.scale)
        self._backward(slope, [x, *kept.outputs], kept.slopes)
        return _mean(rows, weight)

    def rows(self, *batch: Tensor) -> Tensor:
        return self.loss(self.network, *batch)

    def _forward(self, x: Tensor, outputs: list[Tensor]) -> Tensor:
        """Write the outputs of all layers, return those of the last."""
        for layer, out in zip(self.layers, outputs, strict=True):
            x = layer.forward(x, out)
            if layer is not self.layers[-1]:
                x.relu_()
        return x

    def _backward(self, slope: Tensor, inputs: list[Tensor], slopes: list[Tensor]) -> None:
        """Write the gradients of all layers, from the last to the first."""
        for i in range(len(self.layers) - 1, -1, -1):
            self.layers[i].learn(slope, inputs[i])
            if i:  # nobody asks for the gradient in the rows
                slope = self.layers[i].backward(slope, inputs[i], slopes[i - 1])


class _Layer:
    """An affine layer, or one for each model of a stack, and its gradients."""

    def __init__(self, layer: Linear) -> None:
        layer.weight.grad, layer.bias.grad = map(torch.empty_like, (layer.weight, layer.bias))
        self.weight, self.bias = layer.weight.detach(), layer.bias.detach().unsqueeze(-2)
        self.turned = self.weight.mT
        self.to_weight, self.to_bias = layer.weight.grad, layer.bias.grad.unsqueeze(-2)
        self.many = self.weight.dim() == 3
        self.product = torch.bmm if self.many else torch.mm
        self.shifted = torch.baddbmm if self.many else torch.addmm
        self.to_turned = torch.empty_like(self.turned, memory_format=torch.contiguous_format)

    def forward(self, x: Tensor, out: Tensor) -> Tensor:
        """Write `x W' + b`."""
        return self.shifted(self.bias, x, self.turned, out=out)

    def learn(self, slope: Tensor, x: Tensor) -> None:
        """Write the gradients of weights and bias."""
        if self.many:  # autograd multiplies in this order; the other one may round differently
            self.to_weight.copy_(torch.bmm(x.mT, slope, out=self.to_turned).mT)
        else:
            torch.mm(slope.mT, x, out=self.to_weight)
        torch.sum(slope, -2, keepdim=True, out=self.to_bias)

    def backward(self, slope: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """Write the gradient in what became the inputs `x` after a ReLU."""
        self.product(slope, self.weight, out=out)
        aten.threshold_backward.grad_input(out, x, 0, grad_input=out)
        return out


class _Memory:
    """Where the layers write for batches of `n` rows."""

    def __init__(self, layers: list[_Layer], n: int) -> None:
        def room(layer: _Layer) -> Tensor:
            *models, width, _ = layer.weight.shape
            return layer.weight.new_empty(*models, n, width)

        self.outputs = [room(layer) for layer in layers]
        self.slopes = [room(layer) for layer in layers[:-1]]
        self.share = layers[0].weight.new_ones(self.outputs[0].shape[:-1]) / n
