"""Models from outside: anything that predicts from raw tables or encoded rows."""

from __future__ import annotations

from cel.models.adapters.surrogate import SurrogateModel, fit_surrogate
from cel.models.adapters.wrap import WrappedModel, WrappedModule, wrap

__all__ = ["SurrogateModel", "WrappedModel", "WrappedModule", "fit_surrogate", "wrap"]
