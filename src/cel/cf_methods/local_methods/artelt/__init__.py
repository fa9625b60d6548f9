"""Plausible counterfactuals by convex programming."""

from __future__ import annotations

from cel.cf_methods.local_methods.artelt.artelt import Artelt

__all__ = ["Artelt"]
