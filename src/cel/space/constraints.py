"""Constraints that join features: linear relations and implications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cel.errors import ConfigError

__all__ = ["ChangeLimit", "Constraint", "Implication", "LinearRelation"]


@dataclass(frozen=True)
class LinearRelation:
    """The relation `sum(coefficient * feature) <= bound` between numeric features.

    >>> str(LinearRelation.of({"used": 1, "total": -1}, 0))
    '1*used + -1*total <= 0'
    """

    terms: tuple[tuple[str, float], ...]
    bound: float = 0.0

    @classmethod
    def of(cls, terms: Mapping[str, float], bound: float = 0.0) -> LinearRelation:
        """Build a relation from a mapping of feature names to coefficients."""
        if not terms:
            raise ConfigError("a linear relation needs at least one feature")
        return cls(tuple((name, float(c)) for name, c in terms.items()), float(bound))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that take part."""
        return tuple(name for name, _ in self.terms)

    def __str__(self) -> str:
        return " + ".join(f"{c:g}*{n}" for n, c in self.terms) + f" <= {self.bound:g}"


@dataclass(frozen=True)
class Implication:
    """If `feature` has one of `values`, then `then_feature` has one of `then_values`.

    >>> str(Implication("relationship", ("Wife",), "sex", ("Female",)))
    'relationship in {Wife} -> sex in {Female}'
    """

    feature: str
    values: tuple[Any, ...]
    then_feature: str
    then_values: tuple[Any, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that take part."""
        return (self.feature, self.then_feature)

    def __str__(self) -> str:
        left = ", ".join(map(str, self.values))
        right = ", ".join(map(str, self.then_values))
        return f"{self.feature} in {{{left}}} -> {self.then_feature} in {{{right}}}"


@dataclass(frozen=True)
class ChangeLimit:
    """At most so many things change at once.

    Attributes:
        most: how many.
        units: (p,) the thing that each feature belongs to, such as a number and the flag of its
            gaps to one column; () if every feature is one.
    """

    most: int
    units: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ConfigError(f"at most {self.most} changes leave nothing to change")


Constraint = LinearRelation | Implication
