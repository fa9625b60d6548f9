"""DiCoFlex: one conditional flow that draws many counterfactuals at once."""

from __future__ import annotations

from cel.cf_methods.local_methods.dicoflex.dicoflex import DiCoFlex

__all__ = ["DiCoFlex"]
