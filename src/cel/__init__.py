"""Counterfactual explanations: datasets, models, methods, metrics and one controlled benchmark."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__"]
