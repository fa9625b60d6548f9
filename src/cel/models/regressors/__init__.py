"""Regressors to be explained."""

from __future__ import annotations

from cel.models.regressors.linear_regression import LinearRegression
from cel.models.regressors.mlp_regressor import MLPRegressor

__all__ = ["LinearRegression", "MLPRegressor"]
