"""What models that are chains of ReLU layers offer."""

from __future__ import annotations

from cel.models.base import PytorchBase
from cel.models.relu_view import ReluView, network_view

__all__ = ["ReluMixin"]


class ReluMixin(PytorchBase):
    """Tells the weights of a model whose module is a `Network`."""

    def relu_(self) -> ReluView:
        """Return the layers of the fitted network, over encoded rows."""
        self.check_fitted()
        return network_view(self.module_, self.logits, type(self).__name__)  # type: ignore[attr-defined]
