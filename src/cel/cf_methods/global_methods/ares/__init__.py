"""AReS: a short list of two-level recourse rules."""

from __future__ import annotations

from cel.cf_methods.global_methods.ares.ares import AReS

__all__ = ["AReS"]
