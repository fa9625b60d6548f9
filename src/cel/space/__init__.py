"""Feature spaces: what a row is made of and where it may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cel.lazy_names import lazy_names
from cel.space.constraints import ChangeLimit, Constraint, Implication, LinearRelation
from cel.space.feature import Direction, Feature, Kind
from cel.space.feature_space import FeatureSpace
from cel.space.target import Target

if TYPE_CHECKING:
    from cel.space.region import Region

__all__ = [
    "ChangeLimit",
    "Constraint",
    "Direction",
    "Feature",
    "FeatureSpace",
    "Implication",
    "Kind",
    "LinearRelation",
    "Region",
    "Target",
]


__getattr__ = lazy_names(__name__, {"Region": "cel.space.region"})  # loads torch
