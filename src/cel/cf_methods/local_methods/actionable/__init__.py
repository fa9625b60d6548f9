"""Actionable recourse: exact answers and flipsets of linear models."""

from __future__ import annotations

from cel.cf_methods.local_methods.actionable.actionable import Actionable

__all__ = ["Actionable"]
