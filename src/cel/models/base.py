"""What every model of CEL is built from: the estimator with a module, and three mixins.

A model is a subclass of one mixin and `PytorchBase` that sets `name` (its name in `MODELS`) and
writes `_build(n_in, n_out) -> nn.Module`; the rest is inherited:

    class MyClassifier(ClassifierPytorchMixin, PytorchBase):
        name = "mine"

        def __init__(self, *, width: int = 8, **options: Unpack[TrainOptions]) -> None:
            super().__init__(**options)
            self.width = width

        def _build(self, n_in: int, n_out: int) -> nn.Module:
            return Network(n_in, (self.width,), n_out)
"""

from __future__ import annotations

from cel.models.densities import GenerativePytorchMixin
from cel.models.estimator import PytorchBase, TrainOptions
from cel.models.mixins import ClassifierPytorchMixin, RegressionPytorchMixin
from cel.models.names import MODELS
from cel.models.storage import load_model

__all__ = [
    "MODELS",
    "ClassifierPytorchMixin",
    "GenerativePytorchMixin",
    "PytorchBase",
    "RegressionPytorchMixin",
    "TrainOptions",
    "load_model",
]
