"""T-CREx: rules that lead to the target, and metarules that say whose."""

from __future__ import annotations

from cel.cf_methods.group_methods.tcrex.tcrex import TCREx

__all__ = ["TCREx"]
