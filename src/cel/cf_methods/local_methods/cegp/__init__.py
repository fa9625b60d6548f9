"""Counterfactuals guided by prototypes."""

from __future__ import annotations

from cel.cf_methods.local_methods.cegp.cegp import CEGP

__all__ = ["CEGP"]
