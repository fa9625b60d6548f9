"""Which density suits a feature space."""

from __future__ import annotations

from typing import Any, Literal

from cel.errors import ConfigError
from cel.models.base import GenerativePytorchMixin
from cel.models.generative.flows.flow_models import MaskedAutoregressiveFlow, NeuralSplineFlow
from cel.models.generative.mixed.mixed_density import MixedDensity
from cel.registry import did_you_mean
from cel.space import FeatureSpace

__all__ = ["default_density"]


def default_density(
    space: FeatureSpace, *, flow: Literal["affine", "spline"] | None = None, **options: Any
) -> GenerativePytorchMixin:
    """Return an unfitted density: a flow for numbers, `MixedDensity` with categories.

    Args:
        space: encoded feature space.
        flow: transforms of the numbers; None takes what suits them: the paper's affine ones
            where there are numbers only, splines beside categories.
        options: constructor arguments.

    >>> default_density(FeatureSpace.continuous(2), epochs=5).name
    'maf'
    """
    numbers: dict[str, type[GenerativePytorchMixin]] = {
        "affine": MaskedAutoregressiveFlow,
        "spline": NeuralSplineFlow,
    }
    if flow is not None and flow not in numbers:
        raise ConfigError(f"unknown flow {flow!r}; {did_you_mean(flow, numbers)}")
    if space.categorical_features:
        return MixedDensity(flow=flow or "spline", **options)
    return numbers[flow or "affine"](**options)
