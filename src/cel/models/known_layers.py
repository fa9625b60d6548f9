"""What models offer whose layers are known: one affine layer, or a chain of ReLU layers."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from cel.models.base import PytorchBase, TrainOptions
from cel.models.layers import Linear, Network
from cel.models.relu_view import ReluView, network_view

__all__ = ["LinearMixin", "Perceptron"]


class LinearMixin(PytorchBase):
    """Tells the coefficients of a model whose module is one affine layer."""

    def linear_(self) -> tuple[Tensor, Tensor]:
        """Return W (K, d) and b (K,) such that logits = x W' + b."""
        self.check_fitted()
        module = self.module_
        assert isinstance(module, Linear)
        return module.weight.detach().clone(), module.bias.detach().clone()


class Perceptron(PytorchBase):
    """A model whose module is a `Network` of ReLU layers, which it tells.

    Args:
        hidden: widths of the hidden layers.
        dropout: share of hidden units left out while training.
        options: see `PytorchBase`.
    """

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (256, 256),
        dropout: float = 0.0,
        **options: Unpack[TrainOptions],
    ) -> None:
        super().__init__(**options)
        self.hidden, self.dropout = hidden, dropout

    def _build(self, n_in: int, n_out: int) -> nn.Module:
        return Network(n_in, tuple(self.hidden), n_out, dropout=self.dropout)

    def relu_(self) -> ReluView:
        """Return the layers of the fitted network, over encoded rows."""
        self.check_fitted()
        return network_view(self.module_, self.logits, type(self).__name__)  # type: ignore[attr-defined]
