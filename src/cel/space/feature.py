"""One variable of a table, in raw or in encoded coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from cel.errors import ConfigError

__all__ = ["Direction", "Feature", "Kind"]

Kind = Literal["continuous", "integer", "ordinal", "categorical"]
Direction = Literal["any", "up", "down"]


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One variable: where it lives, which values it may take, and how it may change.

    Attributes:
        name: column name in the raw table.
        kind: continuous; integer (a grid of width `step`); ordinal (ordered `categories`, stored
            as one number); categorical (unordered `categories`, one column each when encoded).
        columns: positions in the matrix; more than one means one-hot.
        lower: smallest reachable value, in the coordinates of the matrix.
        upper: largest reachable value.
        step: grid width of integers and ordinals; None for continuous features.
        anchor: a value on the grid, so that the grid is `anchor + step * k`.
        mutable: whether the feature may change at all.
        direction: "up" and "down" allow changes to one side only.
        categories: labels of a categorical or ordinal feature, in column or rank order.
        allowed: categories that may be *reached*, None for all; the present one may always stay.
        weight: relative cost of changing the feature.
        protected: whether the feature is a protected attribute (for fairness reports).
        hard: whether answers must lie inside the bounds even if their row does not; otherwise the
            bounds are widened so that the row itself is inside.
        actionable: whether somebody can change the feature itself; None for every mutable one. One
            that is mutable but not actionable changes as a consequence of others only, which
            `cel.space.causal` knows of; to all else it is fixed.
        parents: names of the features that it follows from, for causal methods.

    >>> Feature(name="age", kind="integer", lower=18, upper=90, step=1).is_discrete
    True
    """

    name: str
    kind: Kind = "continuous"
    columns: tuple[int, ...] = (0,)
    lower: float = 0.0
    upper: float = 1.0
    step: float | None = None
    anchor: float = 0.0
    mutable: bool = True
    direction: Direction = "any"
    categories: tuple[Any, ...] = ()
    allowed: tuple[Any, ...] | None = None
    weight: float = 1.0
    protected: bool = False
    hard: bool = False
    actionable: bool | None = None
    parents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ConfigError(f"feature {self.name!r}: {problem}")

    @property
    def is_categorical(self) -> bool:
        """Whether the values are unordered labels."""
        return self.kind == "categorical"

    @property
    def is_discrete(self) -> bool:
        """Whether only certain values can be decoded."""
        return self.kind != "continuous"

    @property
    def can_act(self) -> bool:
        """Whether the feature may be changed by itself, and not as a consequence only."""
        return self.mutable and self.actionable is not False

    @property
    def one_hot(self) -> bool:
        """Whether the feature is a block of one-hot columns."""
        return self.is_categorical and len(self.columns) == len(self.categories)

    @property
    def allowed_mask(self) -> tuple[bool, ...]:
        """Which categories may be reached, in category order."""
        if self.allowed is None:
            return (True,) * len(self.categories)
        return tuple(c in self.allowed for c in self.categories)

    def at(self, columns: tuple[int, ...]) -> Feature:
        """Return the same feature at other columns."""
        return replace(self, columns=columns)

    def _problems(self) -> list[str]:
        found = []
        if self.kind not in ("continuous", "integer", "ordinal", "categorical"):
            found.append(
                f"unknown kind {self.kind!r}; use continuous, integer, ordinal or categorical"
            )
        if self.actionable and not self.mutable:
            found.append("it is actionable but not mutable; what can be acted on can change")
        if self.name in self.parents:
            found.append("it is its own parent")
        if self.direction not in ("any", "up", "down"):
            found.append(f"unknown direction {self.direction!r}; use any, up or down")
        if not (math.isfinite(self.weight) and self.weight > 0):
            found.append(f"weight must be positive, got {self.weight}")
        if not self.columns:
            found.append("it has no columns")
        if self.is_categorical or self.kind == "ordinal":
            found += self._category_problems()
        if not self.is_categorical:
            found += self._number_problems()
        elif self.direction != "any":
            found.append(f"direction {self.direction!r} needs ordered values; make it ordinal")
        return found

    def _category_problems(self) -> list[str]:
        found = []
        if not self.categories:
            found.append("it has no categories")
        if len(set(self.categories)) != len(self.categories):
            found.append("a category is listed twice")
        if self.is_categorical and len(self.columns) not in (1, len(self.categories)):
            found.append(f"{len(self.categories)} categories in {len(self.columns)} columns")
        unknown = [c for c in self.allowed or () if c not in self.categories]
        if unknown:
            found.append(f"allowed category {unknown[0]!r} is not one of its categories")
        return found

    def _number_problems(self) -> list[str]:
        found = []
        if len(self.columns) != 1:
            found.append(f"a {self.kind} feature has one column, got {len(self.columns)}")
        if math.isnan(self.lower) or math.isnan(self.upper):
            found.append("a bound is not a number")
        elif self.lower > self.upper:
            found.append(f"lower bound {self.lower} is above upper bound {self.upper}")
        if self.step is not None and not (math.isfinite(self.step) and self.step > 0):
            found.append(f"step must be positive, got {self.step}")
        if self.kind in ("integer", "ordinal") and self.step is None:
            found.append(f"a {self.kind} feature needs a step")
        return found
