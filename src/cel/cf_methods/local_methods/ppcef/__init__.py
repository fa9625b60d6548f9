"""PPCEF: close, valid, and as probable as real rows of the class."""

from __future__ import annotations

from cel.cf_methods.local_methods.ppcef.ppcef import PPCEF

__all__ = ["PPCEF"]
