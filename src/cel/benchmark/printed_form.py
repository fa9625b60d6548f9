"""Datasets as the paper's runs saw them: one column per category, and nothing forbidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cel.datasets.cards import load_card
from cel.space import FeatureSpace

if TYPE_CHECKING:
    from cel.benchmark.spec import Suite
    from cel.datasets.specs import DatasetCard, FeatureSpec

__all__ = [
    "card_of",
    "encoded_card",
    "free_space",
    "is_constrained",
    "one_hot_card",
    "spaced_card",
]

# Datasets whose file has stray spaces: the categories that occur with a space only.
SPACES: dict[str, dict[str, tuple[str, ...]]] = {
    "adult": {
        "workclass": ("Never-worked", "Without-pay"),
        "native-country": (
            "China", "Greece", "Guatemala", "Holand-Netherlands", "Hong", "Hungary", "Ireland",
            "Japan", "Nicaragua", "Outlying-US(Guam-USVI-etc)", "Peru", "Scotland",
            "Trinadad&Tobago", "Vietnam", "Yugoslavia",
        ),
    }
}  # fmt: skip


def card_of(suite: Suite, name: str) -> DatasetCard:
    """Return the card of a dataset in the encoding of a suite."""
    return encoded_card(load_card(name), suite.encoding)


def encoded_card(card: DatasetCard, encoding: str) -> DatasetCard:
    """Return the card in an encoding: as it is ("card"), "onehot", or "printed".

    "printed" is one-hot with the stray spaces that the printed runs left in Adult.
    """
    if encoding == "card":
        return card
    if encoding == "printed" and card.name in SPACES:
        return one_hot_card(spaced_card(card))
    return one_hot_card(card)


def spaced_card(card: DatasetCard) -> DatasetCard:
    """Return the card for a file whose words are read with the spaces before them.

    Most rows of Adult have a space behind every comma and the first ones have none: read as they
    are, nearly every category exists twice.

    >>> card = spaced_card(load_card("adult"))
    >>> [c for c in card.features[1].categories if "gov" in c]
    ['Federal-gov', ' Federal-gov', 'Local-gov', ' Local-gov', 'State-gov', ' State-gov']
    >>> sum(len(f.categories) for f in card.features)
    187
    """
    once = SPACES[card.name]
    features = tuple(
        f.model_copy(
            update={
                "categories": tuple(
                    word
                    for c in f.categories
                    for word in ((f" {c}",) if c in once.get(f.name, ()) else (c, f" {c}"))
                ),
                "allowed": None,
            }
        )
        if f.is_label
        else f
        for f in card.features
    )
    classes = tuple(
        c.model_copy(update={"values": (str(c.label), f" {c.label}")}) for c in card.target.classes
    )
    return card.model_copy(
        update={
            "features": features, "implications": (),
            "target": card.target.model_copy(update={"classes": classes}),
            "read": card.read.model_copy(update={"skipinitialspace": False}),
        }
    )  # fmt: skip


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
