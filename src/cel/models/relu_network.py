"""What models that are chains of ReLU layers offer."""

from __future__ import annotations

from typing import Unpack

from torch import nn

from cel.models.base import PytorchBase, TrainOptions
from cel.models.layers import Network
from cel.models.relu_view import ReluView, network_view

__all__ = ["Perceptron"]


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
