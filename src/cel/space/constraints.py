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
    'used <= total'
    >>> str(LinearRelation.of({"rent": 12, "income": -0.5}, -100))
    '12*rent <= 0.5*income - 100'
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
        left, right = (
            " + ".join(n if abs(c) == 1 else f"{abs(c):g}*{n}" for n, c in self.terms if c * s > 0)
            for s in (1, -1)
        )
        if not (left and right):
            return f"{left or f'{-self.bound:g}'} <= {right or f'{self.bound:g}'}"
        more = f" {'+' if self.bound > 0 else '-'} {abs(self.bound):g}" if self.bound else ""
        return f"{left} <= {right}{more}"


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
