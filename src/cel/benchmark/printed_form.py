"""Datasets as the paper's runs saw them: one column per category, and nothing forbidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cel.datasets.cards import load_card
from cel.space import FeatureSpace

if TYPE_CHECKING:
    from cel.benchmark.spec import Suite
    from cel.datasets.specs import DatasetCard, FeatureSpec

__all__ = ["card_of", "free_space", "is_constrained", "one_hot_card"]


def card_of(suite: Suite, name: str) -> DatasetCard:
    """Return the card of a dataset in the encoding of a suite."""
    card = load_card(name)
    return one_hot_card(card) if suite.encoding == "onehot" else card


def one_hot_card(card: DatasetCard) -> DatasetCard:
    """Return the card with ordered categories as plain ones, which get a column each.

    >>> before = load_card("german_credit")
    >>> after = one_hot_card(before)
    >>> [f.name for f in before.features if f.kind == "ordinal"]
    ['present_emp_since']
    >>> [f.name for f in after.features if f.kind == "ordinal"]
    []
    """
    return card.model_copy(update={"features": tuple(_plain(f) for f in card.features)})


def _plain(feature: FeatureSpec) -> FeatureSpec:
    if feature.kind != "ordinal":
        return feature
    return feature.model_copy(update={"kind": "categorical", "direction": "any"})


def is_constrained(card: DatasetCard) -> bool:
    """Tell whether a card forbids anything that `free_space` allows.

    >>> is_constrained(load_card("moons")), is_constrained(load_card("law"))
    (False, True)
    """
    return bool(card.relations or card.implications) or any(
        not f.mutable or f.direction != "any" or f.allowed is not None or f.kind == "integer"
        for f in card.features
    )


def free_space(space: FeatureSpace) -> FeatureSpace:
    """Return a space in which every feature may take any value of its range.

    Nothing is immutable, one-sided, excluded or tied to another feature, and whole numbers are
    plain numbers. Ranges and categories stay: they say where a feature lives, not what is allowed.
    """
    changes: dict[str, dict[str, Any]] = {}
    for feature in space:
        changes[feature.name] = {"mutable": True, "direction": "any", "allowed": None}
        if feature.kind == "integer":
            changes[feature.name] |= {"kind": "continuous", "step": None}
    return FeatureSpace(space.with_changes(**changes).features)
