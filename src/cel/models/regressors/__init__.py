"""Regressors to be explained."""

from __future__ import annotations

from cel.models.regressors.linear import LinearRegression
from cel.models.regressors.mlp import MLPRegressor

__all__ = ["LinearRegression", "MLPRegressor"]
