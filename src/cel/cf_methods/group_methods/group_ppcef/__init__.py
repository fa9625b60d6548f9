"""Group-wise PPCEF: plausible counterfactuals of all, of groups and of single rows."""

from __future__ import annotations

from cel.cf_methods.group_methods.group_ppcef.group_ppcef import GroupPPCEF

__all__ = ["GroupPPCEF"]
