"""What models with affine logits offer."""

from __future__ import annotations

from torch import Tensor

from cel.models.base import PytorchBase
from cel.models.layers import Linear

__all__ = ["LinearMixin"]


class LinearMixin(PytorchBase):
    """Tells the coefficients of a model whose module is one affine layer."""

    def linear_(self) -> tuple[Tensor, Tensor]:
        """Return W (K, d) and b (K,) such that logits = x W' + b."""
        self.check_fitted()
        module = self.module_
        assert isinstance(module, Linear)
        return module.weight.detach().clone(), module.bias.detach().clone()
