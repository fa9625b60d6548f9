"""Which density suits a feature space."""

from __future__ import annotations

from typing import Any

from cel.models.base import GenerativePytorchMixin
from cel.models.generative.flows.flow_models import MaskedAutoregressiveFlow
from cel.models.generative.mixed.mixed_density import MixedDensity
from cel.space import FeatureSpace

__all__ = ["default_density"]


def default_density(space: FeatureSpace, **options: Any) -> GenerativePytorchMixin:
    """Return an unfitted density: the paper's flow for numbers, `MixedDensity` with categories.

    Args:
        space: encoded feature space.
        options: constructor arguments.

    >>> default_density(FeatureSpace.continuous(2), epochs=5).name
    'maf'
    """
    if space.categorical_features:
        return MixedDensity(**options)
    return MaskedAutoregressiveFlow(**options)
