"""What `z = (x - shift) / scale` does to the features and relations of a space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cel.space import Constraint, Feature, FeatureSpace, LinearRelation

__all__ = ["laid_out", "rescale"]


def laid_out(features: list[Feature], widths: list[int]) -> tuple[Feature, ...]:
    """Return the features on consecutive columns, each as wide as told."""
    out, start = [], 0
    for feature, width in zip(features, widths, strict=True):
        out.append(feature.at(tuple(range(start, start + width))))
        start += width
    return tuple(out)


def rescale(
    space: FeatureSpace, shift: Mapping[str, float], scale: Mapping[str, float]
) -> FeatureSpace:
    """Return the space in the coordinates `z = (x - shift) / scale` of the named features.

    >>> space = FeatureSpace.continuous(1, lower=10, upper=30)
    >>> rescale(space, {"x0": 10.0}, {"x0": 20.0})["x0"].upper
    1.0
    """
    features = tuple(
        _rescale_feature(f, shift[f.name], scale[f.name]) if f.name in scale else f for f in space
    )
    return FeatureSpace(
        features, tuple(_rescale_constraint(c, shift, scale) for c in space.constraints)
    )


def _rescale_feature(feature: Feature, shift: float, scale: float) -> Feature:
    return replace(
        feature,
        lower=(feature.lower - shift) / scale,
        upper=(feature.upper - shift) / scale,
        step=None if feature.step is None else feature.step / scale,
        anchor=(feature.anchor - shift) / scale,
    )


def _rescale_constraint(
    constraint: Constraint, shift: Mapping[str, float], scale: Mapping[str, float]
) -> Constraint:
    """Turn sum c x <= b into sum (c scale) z <= b - sum c shift, the largest factor being 1."""
    if not isinstance(constraint, LinearRelation):
        return constraint
    bound = constraint.bound - sum(c * shift.get(n, 0.0) for n, c in constraint.terms)
    terms = [(n, c * scale.get(n, 1.0)) for n, c in constraint.terms]
    # Tolerances are meant for coefficients near one.
    size = max(abs(c) for _, c in terms) or 1.0
    return LinearRelation(tuple((n, c / size) for n, c in terms), bound / size)
