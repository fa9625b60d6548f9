"""Models to be explained, densities that judge plausibility, adapters for foreign models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cel.lazy_names import lazy_names

if TYPE_CHECKING:
    from cel.models.adapters import WrappedModel, wrap
    from cel.models.adapters.surrogate import SurrogateModel, fit_surrogate
    from cel.models.base import (
        MODELS,
        ClassifierPytorchMixin,
        GenerativePytorchMixin,
        PytorchBase,
        RegressionPytorchMixin,
        TrainOptions,
        load_model,
    )
    from cel.models.training.many import fit_many

_HOMES = {
    "MODELS": "base",
    "ClassifierPytorchMixin": "base",
    "GenerativePytorchMixin": "base",
    "TrainOptions": "base",
    "PytorchBase": "base",
    "RegressionPytorchMixin": "base",
    "SurrogateModel": "adapters",
    "WrappedModel": "adapters",
    "fit_many": "training.many",
    "fit_surrogate": "adapters",
    "load_model": "base",
    "wrap": "adapters",
}

__all__ = [
    "MODELS",
    "ClassifierPytorchMixin",
    "GenerativePytorchMixin",
    "PytorchBase",
    "RegressionPytorchMixin",
    "SurrogateModel",
    "TrainOptions",
    "WrappedModel",
    "fit_many",
    "fit_surrogate",
    "load_model",
    "wrap",
]


__getattr__ = lazy_names(
    __name__,
    {name: f"cel.models.{home}" for name, home in _HOMES.items()}
    | {"Options": "cel.models.base:TrainOptions"},  # its earlier name
)
