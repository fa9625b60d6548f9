"""Affine scaling of number columns."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np

from cel.errors import DataError
from cel.preprocessing.affine import rescale
from cel.preprocessing.step import STEPS, Columns, Step
from cel.space import Feature, FeatureSpace

__all__ = ["MinMaxScaler", "RobustScaler", "StandardScaler"]

_TINY = float(np.finfo(np.float64).tiny)


class _Scaler(Step):
    """`z = (x - shift) / scale` for continuous, integer and ordinal features.

    Attributes:
        shift_: feature name -> shift.
        scale_: feature name -> scale; 1 for columns that do not vary.
    """

    stage: ClassVar[int] = 2
    shift_: dict[str, float]
    scale_: dict[str, float]

    @abstractmethod
    def _learn(self, x: np.ndarray) -> tuple[float, float]:
        """Return shift and scale of a column (n,) that varies."""

    def applies(self, feature: Feature) -> bool:
        """Tell whether the feature is a number."""
        return not feature.is_categorical

    def fit(self, columns: Columns, space: FeatureSpace) -> Self:
        """Learn shift and scale of each column."""
        super().fit(columns, space)
        self.shift_, self.scale_ = {}, {}
        for name in self.features_:
            low, high = float(columns[name].min()), float(columns[name].max())
            if not np.isfinite(high - low):
                raise DataError(
                    f"column {name!r} spans {low} to {high}, too far for 64-bit floats"
                )
            varies = high - low > _TINY
            shift, scale = self._learn(columns[name]) if varies else (low, 1.0)
            self.shift_[name], self.scale_[name] = float(shift), float(scale)
        return self

    def encode_space(self, space: FeatureSpace) -> FeatureSpace:
        """Return the space in scaled coordinates."""
        return rescale(space, self.shift_, self.scale_)

    def transform(self, columns: Columns) -> Columns:
        """Return the columns with the fitted ones scaled, in float64."""
        scaled = {n: (columns[n] - self.shift_[n]) / self.scale_[n] for n in self.features_}
        return columns | scaled

    def inverse_transform(self, columns: Columns) -> Columns:
        """Return the columns with the fitted ones in their former units, in float64."""
        raw = {
            n: columns[n].astype(np.float64) * self.scale_[n] + self.shift_[n]
            for n in self.features_
        }
        return columns | raw


class StandardScaler(_Scaler):
    """Scale to mean 0 and standard deviation 1: `z = (x - mean) / std`.

    >>> columns, space = {"x0": np.array([1.0, 3.0])}, FeatureSpace.continuous(1)
    >>> StandardScaler().fit(columns, space).transform(columns)["x0"]
    array([-1.,  1.])
    """

    name = "standard_scaler"

    def _learn(self, x: np.ndarray) -> tuple[float, float]:
        mean, std = x.mean(dtype=np.float64), x.std(dtype=np.float64)
        return mean, std if std > _TINY else float(x.max()) - float(x.min())


class MinMaxScaler(_Scaler):
    """Scale the range of the training rows to [0, 1]: `z = (x - min) / (max - min)`.

    New values outside that range leave [0, 1]; nothing is clipped.

    >>> columns, space = {"x0": np.array([2.0, 3.0, 6.0])}, FeatureSpace.continuous(1)
    >>> MinMaxScaler().fit(columns, space).transform(columns)["x0"]
    array([0.  , 0.25, 1.  ])
    """

    name = "min_max_scaler"

    def _learn(self, x: np.ndarray) -> tuple[float, float]:
        low = float(x.min())
        return low, float(x.max()) - low


class RobustScaler(_Scaler):
    """Scale by median and interquartile range: `z = (x - median) / (q75 - q25)`.

    Where the quartiles coincide, the standard deviation takes the place of their distance.

    >>> columns, space = {"x0": np.array([0.0, 1.0, 2.0, 3.0, 100.0])}, FeatureSpace.continuous(1)
    >>> RobustScaler().fit(columns, space).transform(columns)["x0"]
    array([-1. , -0.5,  0. ,  0.5, 49. ])
    """

    name = "robust_scaler"

    def _learn(self, x: np.ndarray) -> tuple[float, float]:
        low, middle, high = np.quantile(x, [0.25, 0.5, 0.75])
        spread = float(x.max()) - float(x.min())
        # A quartile distance far below the range would spoil the digits of 32-bit values.
        scales = (high - low, x.std(dtype=np.float64), spread)
        return middle, next(s for s in scales if s > 1e-9 * spread)


for _scaler in (StandardScaler, MinMaxScaler, RobustScaler):
    STEPS.add(_scaler.name, _scaler)
