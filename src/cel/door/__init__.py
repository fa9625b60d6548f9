"""The front door: anyone's model, anyone's table; what `cel.explain` is made of."""

from __future__ import annotations

from cel.door.explainer import Explainer

__all__ = ["Explainer"]
