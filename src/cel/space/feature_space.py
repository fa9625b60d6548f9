"""The ordered features of a matrix, and the constraints between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.errors import ConfigError
from cel.registry import did_you_mean
from cel.space.constraints import ChangeLimit, Constraint, LinearRelation
from cel.space.feature import Feature

if TYPE_CHECKING:
    from cel.space.region import Region

__all__ = ["FeatureSpace"]


@dataclass(frozen=True)
class FeatureSpace:
    """Ordered features that together cover the columns `0..width-1` exactly once.

    Constraints between features are stated in the coordinates of this space; `limit` says how many
    features may change at once.

    >>> space = FeatureSpace((Feature(name="a"), Feature(name="b", columns=(1,))))
    >>> space.width, space.names
    (2, ('a', 'b'))
    """

    features: tuple[Feature, ...]
    constraints: tuple[Constraint, ...] = ()
    limit: ChangeLimit | None = None

    def __post_init__(self) -> None:
        if not self.features:
            raise ConfigError("a feature space needs at least one feature")
        names = [f.name for f in self.features]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ConfigError(f"feature {twice[0]!r} is defined twice")
        columns = [c for f in self.features for c in f.columns]
        if sorted(columns) != list(range(len(columns))):
            raise ConfigError("the columns of the features must cover 0..width-1 exactly once")
        for constraint in self.constraints:
            self._check(constraint)

    def _check(self, constraint: Constraint) -> None:
        for name in constraint.features:
            self[name]
        if isinstance(constraint, LinearRelation):
            for name in constraint.features:
                if self[name].is_categorical:
                    raise ConfigError(f"relation {constraint}: {name!r} is categorical")
            return
        sides = (
            (constraint.feature, constraint.values),
            (constraint.then_feature, constraint.then_values),
        )
        for name, values in sides:
            for value in values:
                if value not in self[name].categories:
                    hint = did_you_mean(str(value), map(str, self[name].categories))
                    raise ConfigError(f"{constraint}: {name!r} has no category {value!r}; {hint}")

    @classmethod
    def continuous(
        cls, width: int, lower: float = 0.0, upper: float = 1.0, names: tuple[str, ...] = ()
    ) -> FeatureSpace:
        """Return a space of `width` continuous features with equal bounds."""
        labels = names or tuple(f"x{j}" for j in range(width))
        return cls(
            tuple(
                Feature(name=n, columns=(j,), lower=lower, upper=upper)
                for j, n in enumerate(labels)
            )
        )

    def __len__(self) -> int:
        return len(self.features)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.features)

    def __getitem__(self, name: str) -> Feature:
        try:
            return self._by_name[name]
        except KeyError:
            hint = did_you_mean(name, self._by_name)
            raise ConfigError(f"unknown feature {name!r}; {hint}") from None

    @cached_property
    def _by_name(self) -> dict[str, Feature]:
        return {f.name: f for f in self.features}

    @cached_property
    def width(self) -> int:
        """Number of columns."""
        return sum(len(f.columns) for f in self.features)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Feature names, in order."""
        return tuple(f.name for f in self.features)

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """One name per column; one-hot columns are called `feature=category`."""
        names = [""] * self.width
        for f in self.features:
            for k, c in enumerate(f.columns):
                names[c] = f"{f.name}={f.categories[k]}" if len(f.columns) > 1 else f.name
        return tuple(names)

    @cached_property
    def owner(self) -> np.ndarray:
        """(width,) position of the feature that owns each column."""
        owner = np.empty(self.width, dtype=np.int64)
        for i, f in enumerate(self.features):
            owner[list(f.columns)] = i
        return owner

    @cached_property
    def numeric_columns(self) -> np.ndarray:
        """Columns of continuous, integer and ordinal features."""
        columns = [f.columns[0] for f in self.features if not f.is_categorical]
        return np.array(columns, dtype=np.int64)

    @cached_property
    def one_hot_features(self) -> tuple[Feature, ...]:
        """Features that are one-hot blocks."""
        return tuple(f for f in self.features if f.one_hot)

    @cached_property
    def numeric_features(self) -> tuple[Feature, ...]:
        """Features that are one number."""
        return tuple(f for f in self.features if not f.is_categorical)

    @cached_property
    def categorical_features(self) -> tuple[Feature, ...]:
        """Features whose values are unordered labels."""
        return tuple(f for f in self.features if f.is_categorical)

    @cached_property
    def change_units(self) -> np.ndarray:
        """(number of features,) what `limit` counts: each feature, or the thing it belongs to."""
        units = () if self.limit is None else self.limit.units
        return np.array(units or range(len(self.features)), dtype=np.int64)

    def vector(self, attribute: str) -> np.ndarray:
        """Return a numeric feature attribute repeated for every column, shape (width,)."""
        values = np.array([float(getattr(f, attribute)) for f in self.features])
        return np.asarray(values[self.owner])

    @property
    def mutable_mask(self) -> np.ndarray:
        """(number of features,) whether each feature may change."""
        return np.array([f.mutable for f in self.features], dtype=bool)

    def region(self, origin: Any) -> Region:
        """Return the feasible set of each row of `origin` (n, width)."""
        from cel.space.region import Region

        return Region.around(self, origin)

    def with_changes(self, **changes: dict[str, Any]) -> FeatureSpace:
        """Return a copy in which the named features have other attributes.

        >>> FeatureSpace.continuous(2).with_changes(x0={"mutable": False})["x0"].mutable
        False
        """
        for name in changes:
            self[name]
        features = tuple(replace(f, **changes.get(f.name, {})) for f in self.features)
        return FeatureSpace(features, self.constraints, self.limit)
