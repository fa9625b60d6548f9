"""Group-wise methods: one explanation for each group of rows."""

from __future__ import annotations

from cel.cf_methods.group_methods.glance import GLANCE
from cel.cf_methods.group_methods.group_ppcef import GroupPPCEF
from cel.cf_methods.group_methods.tcrex import TCREx

__all__ = ["GLANCE", "GroupPPCEF", "TCREx"]
