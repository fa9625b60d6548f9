"""A multilayer perceptron that predicts numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from cel.models.base import PytorchBase, RegressionPytorchMixin
from cel.models.known_layers import Perceptron
from cel.models.layers import Network
from cel.models.training.by_hand import scaled_error_slope, sloped

__all__ = ["MLPRegressor"]


class MLPRegressor(Perceptron, RegressionPytorchMixin, PytorchBase):
    """ReLU network with one output per target, fitted by squared error.

    Args:
        hidden: widths of the hidden layers.
        dropout: share of hidden units left out while training.
        options: see `PytorchBase`.

    >>> import numpy as np
    >>> X = np.linspace(0, 1, 64)[:, None]
    >>> model = MLPRegressor(hidden=(16,), epochs=100, lr=0.05).fit(X, 3 * X)
    >>> bool(abs(model.predict([[0.5]])[0, 0] - 1.5) < 0.1)
    True
    """

    name = "mlp_regressor"
    _test_params: ClassVar[Mapping[str, Any]] = {"hidden": (16, 16)}

    def _initialise(self, module: nn.Module, *tables: Tensor) -> None:
        """Centre and scale the outputs as the training targets are."""
        assert isinstance(module, Network)
        y = tables[1]
        module.shift.copy_(y.mean(0, keepdim=True))
        spread = y.std(0, keepdim=True, unbiased=False)
        module.scale.copy_(spread.where(spread > 0, 1.0))

    @sloped(scaled_error_slope)
    def _loss(self, module: nn.Module, *batch: Tensor) -> Tensor:
        """Squared error in standard deviations of each output, so that all count alike."""
        x, y = batch
        loss: Tensor = ((module(x) - y) / module.scale).square().mean(-1)
        return loss
