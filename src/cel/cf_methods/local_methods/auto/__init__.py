"""A portfolio: the method that fits the model first, others where it fails."""

from __future__ import annotations

from cel.cf_methods.local_methods.auto.auto import Auto
from cel.cf_methods.local_methods.auto.plans import PLANS, Stage, kind_of

__all__ = ["PLANS", "Auto", "Stage", "kind_of"]
