"""One invertible step of a preprocessing pipeline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from cel.errors import ConfigError, NotFittedError
from cel.registry import Registry
from cel.space import Feature, FeatureSpace

__all__ = ["STEPS", "Columns", "Step"]

Columns = dict[str, np.ndarray]
"""The values of each feature: numbers (n,), category codes (n,) or one-hot blocks (n, k)."""


class Step(ABC):
    """A map between columns that can be undone, and the same map for feature spaces.

    A step sees numbers (n,) for numeric features, integer codes (n,) for labels that are not
    encoded yet (-1 missing, -2 unknown) and blocks (n, k) for one-hot features. Everything that it
    learns in `fit` are plain values in attributes that end in `_`, so that `to_dict` is generic.

    Attributes:
        name: key in `STEPS`.
        stage: 0 fills gaps, 1 encodes labels, 2 works on numbers; steps come in this order.
        features: names of the features to work on; None means all that fit.
        features_: names of the features that `fit` chose.
    """

    name: ClassVar[str]
    stage: ClassVar[int] = 2
    features: Sequence[str] | None
    features_: list[str]

    def __init__(self, *, features: Sequence[str] | None = None) -> None:
        self.features = features

    def fit(self, columns: Columns, space: FeatureSpace) -> Self:
        """Learn from the columns of the training rows, whose features are those of `space`."""
        chosen = list(space.names) if self.features is None else list(self.features)
        for name in chosen:
            if self.features is not None and not self.applies(space[name]):
                raise ConfigError(f"{type(self).__name__}: {name!r} is {space[name].kind}")
        self.features_ = [n for n in chosen if self.applies(space[n])]
        return self

    @abstractmethod
    def applies(self, feature: Feature) -> bool:
        """Tell whether the step can work on a feature."""

    @abstractmethod
    def encode_space(self, space: FeatureSpace) -> FeatureSpace:
        """Return the space of the transformed columns."""

    @abstractmethod
    def transform(self, columns: Columns) -> Columns:
        """Return the transformed columns."""

    @abstractmethod
    def inverse_transform(self, columns: Columns) -> Columns:
        """Return the columns that `transform` was given."""

    def accepts_missing(self, name: str) -> bool:
        """Tell whether missing values of the feature may reach this step."""
        return False

    def accepts_unknown(self, name: str) -> bool:
        """Tell whether unlisted categories of the feature may reach this step."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """Return name, arguments and learned state as JSON values."""
        state = {k: v for k, v in vars(self).items() if k.endswith("_")}
        if not state:
            raise NotFittedError(f"{type(self).__name__} is not fitted; call fit first")
        params = {k: v for k, v in vars(self).items() if not k.endswith("_")}
        params["features"] = None if self.features is None else list(self.features)
        return {"step": self.name, "params": params, "state": state}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Step:
        """Return the step that `to_dict` wrote."""
        step = STEPS.get(data["step"])(**data["params"])
        for key, value in data["state"].items():
            setattr(step, key, value)
        return step

    def __repr__(self) -> str:
        values = {k: v for k, v in vars(self).items() if not k.endswith("_") and v is not None}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in values.items())})"


STEPS: Registry[type[Step]] = Registry("preprocessing step")
