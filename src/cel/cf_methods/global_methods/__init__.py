"""Global methods: one explanation for all rows."""

from __future__ import annotations

from cel.cf_methods.global_methods.ares import AReS
from cel.cf_methods.global_methods.globe_ce import GLOBECE

__all__ = ["GLOBECE", "AReS"]
