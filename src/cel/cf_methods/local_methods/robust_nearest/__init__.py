"""The nearest row that certifiably survives changes of the model: RNCE and T-Rex."""

from __future__ import annotations

from cel.cf_methods.local_methods.robust_nearest.robust_nearest import RobustNearest

__all__ = ["RobustNearest"]
