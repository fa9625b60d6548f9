"""Causal recourse: actions, and what follows from them."""

from __future__ import annotations

from cel.cf_methods.local_methods.causal.recourse import CausalRecourse

__all__ = ["CausalRecourse"]
