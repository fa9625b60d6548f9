"""Feature spaces as plain JSON values, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from cel.errors import ConfigError
from cel.registry import did_you_mean
from cel.space.constraints import ChangeLimit, Constraint, Implication, LinearRelation
from cel.space.feature import Feature
from cel.space.feature_space import FeatureSpace

__all__ = ["plain_label", "space_from_dict", "space_to_dict"]

_TUPLES = ("columns", "categories", "allowed", "parents")


def plain_label(value: Any) -> str | int | float | bool | None:
    """Return a category label as a JSON value; other types than numbers and text are an error."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"category {value!r} cannot be written to JSON; give it a name")
    if value is None or isinstance(value, str | int | float):
        return value
    raise ConfigError(
        f"category {value!r} of type {type(value).__name__} cannot be written to JSON; "
        "turn the labels into text or numbers"
    )


def space_to_dict(space: FeatureSpace) -> dict[str, Any]:
    """Return the space as JSON values; attributes at their default are left out.

    >>> space_to_dict(FeatureSpace.continuous(1))
    {'features': [{'name': 'x0', 'columns': [0]}], 'constraints': []}
    """
    limit = space.limit
    few = {} if limit is None else {"limit": {"most": limit.most, "units": list(limit.units)}}
    return {
        "features": [_feature_to_dict(f) for f in space],
        "constraints": [_constraint_to_dict(c) for c in space.constraints],
    } | few


def space_from_dict(data: Mapping[str, Any]) -> FeatureSpace:
    """Return the space that `space_to_dict` wrote.

    >>> space = FeatureSpace.continuous(2, upper=float("inf"))
    >>> space_from_dict(space_to_dict(space)) == space
    True
    """
    features = tuple(_feature_from_dict(f) for f in data["features"])
    constraints = tuple(_constraint_from_dict(c) for c in data["constraints"])
    few = data.get("limit")
    limit = None if few is None else ChangeLimit(int(few["most"]), tuple(map(int, few["units"])))
    return FeatureSpace(features, constraints, limit)


def _feature_to_dict(feature: Feature) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in fields(feature):
        value = getattr(feature, field.name)
        if field.default is MISSING or field.name == "columns" or value != field.default:
            out[field.name] = _plain(value)
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [plain_label(v) for v in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"  # JSON has no infinity
    return value.item() if hasattr(value, "item") else value


def _feature_from_dict(data: Mapping[str, Any]) -> Feature:
    known = [f.name for f in fields(Feature)]
    for key in data:
        if key not in known:
            raise ConfigError(f"unknown feature attribute {key!r}; {did_you_mean(key, known)}")
    values = dict(data)
    for key in _TUPLES:
        if values.get(key) is not None:
            values[key] = tuple(values[key])
    for key in ("lower", "upper"):
        if key in values:
            values[key] = float(values[key])
    return Feature(**values)


def _constraint_to_dict(constraint: Constraint) -> dict[str, Any]:
    if isinstance(constraint, LinearRelation):
        terms = [[name, float(c)] for name, c in constraint.terms]
        return {"kind": "relation", "terms": terms, "bound": float(constraint.bound)}
    return {
        "kind": "implication",
        "feature": constraint.feature,
        "values": _plain(constraint.values),
        "then_feature": constraint.then_feature,
        "then_values": _plain(constraint.then_values),
    }


def _constraint_from_dict(data: Mapping[str, Any]) -> Constraint:
    if data["kind"] == "relation":
        return LinearRelation(tuple((n, float(c)) for n, c in data["terms"]), data["bound"])
    if data["kind"] == "implication":
        return Implication(
            data["feature"],
            tuple(data["values"]),
            data["then_feature"],
            tuple(data["then_values"]),
        )
    raise ConfigError(f"unknown constraint kind {data['kind']!r}; use relation or implication")
