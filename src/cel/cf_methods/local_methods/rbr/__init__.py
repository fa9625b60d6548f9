"""Robust Bayesian recourse: the odds of two classes around the boundary, at worst."""

from __future__ import annotations

from cel.cf_methods.local_methods.rbr.rbr import RBR

__all__ = ["RBR"]
