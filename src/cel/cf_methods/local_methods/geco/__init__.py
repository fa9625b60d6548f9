"""GeCo: few changes first, values as frequent as in the data."""

from __future__ import annotations

from cel.cf_methods.local_methods.geco.geco import GeCo

__all__ = ["GeCo"]
