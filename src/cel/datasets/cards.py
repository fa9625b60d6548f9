"""Cards: where they are, and the feature space and target that they describe."""

from __future__ import annotations

import math
import os
from pathlib import Path

from cel.config import Label, load_yaml_model
from cel.datasets.specs import DatasetCard, FeatureSpec
from cel.errors import CelError, ConfigError
from cel.registry import did_you_mean
from cel.space import Constraint, Feature, FeatureSpace, Implication, LinearRelation, Target

__all__ = ["CARDS", "card_names", "card_path", "load_card", "space_of", "target_of"]

CARDS = Path(__file__).parent / "cards"


def card_names() -> list[str]:
    """Return the names of the cards that come with CEL, sorted."""
    return sorted(path.stem for path in CARDS.glob("*.yaml"))


def card_path(name_or_path: str | os.PathLike[str]) -> Path:
    """Return the file of a card, given its path or the name of one that comes with CEL.

    >>> card_path("adult").name
    'adult.yaml'
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        return path
    name = os.fspath(name_or_path)
    if name not in card_names():
        hint = did_you_mean(name, card_names())
        raise ConfigError(f"unknown dataset {name!r}; {hint} (or give the path of a .yaml card)")
    return CARDS / f"{name}.yaml"


def load_card(name_or_path: str | os.PathLike[str]) -> DatasetCard:
    """Read and check a card, including the space and the target that it describes.

    >>> load_card("moons").target.labels
    (0, 1)
    """
    path = card_path(name_or_path)
    card = load_yaml_model(path, DatasetCard)
    try:
        space_of(card)
    except CelError as error:
        raise ConfigError(f"{path}: {error}") from None
    return card


def space_of(card: DatasetCard) -> FeatureSpace:
    """Return the raw feature space: one column per feature, in table units.

    Bounds that the card leaves open are infinite; each fold closes them with its training rows.
    """
    features = tuple(_feature(spec, i) for i, spec in enumerate(card.features))
    relations = [LinearRelation.of(r.terms, r.bound) for r in card.relations]
    rules = [Implication(*_side(i.given), *_side(i.then)) for i in card.implications]
    constraints: tuple[Constraint, ...] = (*relations, *rules)
    space = FeatureSpace(features, constraints)
    for relation in relations:
        _check_possible(relation, space)
    return space


def target_of(card: DatasetCard, classes: tuple[Label, ...] = ()) -> Target:
    """Return the target, of all classes or of some; the range of numbers is left to the folds."""
    labels = classes or card.target.labels
    desired = card.target.desired if card.target.desired in labels else None
    return Target(names=card.target.columns, task=card.task, classes=labels, desired=desired)


def _side(rule: dict[str, tuple[Label, ...]]) -> tuple[str, tuple[Label, ...]]:
    return next(iter(rule.items()))


def _feature(spec: FeatureSpec, column: int) -> Feature:
    lower = -math.inf if spec.lower is None else spec.lower
    upper = math.inf if spec.upper is None else spec.upper
    if spec.is_label:
        lower, upper = 0.0, float(len(spec.categories) - 1)
    return Feature(
        name=spec.name,
        kind=spec.kind,
        columns=(column,),
        lower=lower,
        upper=upper,
        step=1.0 if spec.kind in ("integer", "ordinal") else None,
        mutable=spec.mutable,
        direction=spec.direction,
        categories=spec.categories,
        allowed=spec.allowed,
        weight=spec.weight,
        protected=spec.protected,
        actionable=spec.actionable,
        parents=spec.parents,
    )


def _check_possible(relation: LinearRelation, space: FeatureSpace) -> None:
    least = sum(min(c * space[n].lower, c * space[n].upper) for n, c in relation.terms if c)
    if least > relation.bound:
        raise ConfigError(
            f"relation {relation} contradicts the bounds of its features: the left side is at "
            f"least {least:g}; widen a bound or drop the relation"
        )
