"""Counterfactuals of black-box regressors by Bayesian optimisation."""

from __future__ import annotations

from cel.cf_methods.local_methods.cearm.cearm import CEARM

__all__ = ["CEARM"]
