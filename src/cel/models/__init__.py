"""Models to be explained, densities that judge plausibility, adapters for foreign models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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


def __getattr__(name: str) -> object:
    if name == "Options":  # its earlier name
        name = "TrainOptions"
    if name in _HOMES:
        return getattr(import_module(f"cel.models.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
