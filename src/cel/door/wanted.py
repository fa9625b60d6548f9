"""What a row should become: `cel.Target`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cel.cf_methods.goals import Goal
from cel.cf_methods.goals import at_least as goal_at_least
from cel.cf_methods.goals import at_most as goal_at_most
from cel.cf_methods.goals import between as goal_between
from cel.cf_methods.goals import change as goal_change
from cel.cf_methods.goals import near as goal_near
from cel.errors import ConfigError, DataError
from cel.space import Target as Outcome

__all__ = ["Aim", "WantedOutcome", "read_aims", "regression_wish"]


@dataclass(frozen=True)
class WantedOutcome:
    """What a row should become; exported as `cel.Target`.

    A class: `Target("approved")`. One of several: `Target.one_of("approved", "review")`. Sure
    enough: `Target.probability("approved", 0.8)`. Numbers: `Target.at_least(200)`,
    `Target.at_most(200)`, `Target.between(100, 200)`, `Target.near(150, within=5)`,
    `Target.change(+10)`, `Target.change(percent=-5)`. A list holds one per row.

    Attributes:
        labels: wanted classes.
        at_least_p: smallest probability of the class, or None for the predicted class.
        goal: what a predicted number should become, or None.

    >>> WantedOutcome.probability("approved", 0.8)
    Target.probability('approved', 0.8)
    """

    labels: tuple[Any, ...] = ()
    at_least_p: float | None = None
    goal: Goal | None = None

    def __init__(
        self, *labels: Any, at_least_p: float | None = None, goal: Goal | None = None
    ) -> None:
        if not labels and goal is None:
            raise ConfigError("a target names a class: Target('approved')")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "at_least_p", at_least_p)
        object.__setattr__(self, "goal", goal)

    @classmethod
    def one_of(cls, *labels: Any) -> WantedOutcome:
        """Return the target of any of some classes."""
        return cls(*labels)

    @classmethod
    def probability(cls, label: Any, at_least: float) -> WantedOutcome:
        """Return the target of a class with a probability of so much or more."""
        number = isinstance(at_least, int | float | np.number) and not isinstance(at_least, bool)
        if not number or not 0 < at_least < 1:
            raise ConfigError(
                f"the probability of {label!r} is to be at least {at_least!r}; give a number "
                "between 0 and 1, such as 0.8"
            )
        return cls(label, at_least_p=float(at_least))

    @classmethod
    def at_least(cls, value: float) -> WantedOutcome:
        """Return the target of a prediction of this value or more."""
        return cls(goal=goal_at_least(value))

    @classmethod
    def at_most(cls, value: float) -> WantedOutcome:
        """Return the target of a prediction of this value or less."""
        return cls(goal=goal_at_most(value))

    @classmethod
    def between(cls, lower: float, upper: float) -> WantedOutcome:
        """Return the target of a prediction in an interval."""
        return cls(goal=goal_between(lower, upper))

    @classmethod
    def near(cls, value: float, within: float | None = None) -> WantedOutcome:
        """Return the target of a value, reached within an amount; by default 5 % of the range."""
        return cls(goal=goal_near(value, within))

    @classmethod
    def change(cls, by: float | None = None, *, percent: float | None = None) -> WantedOutcome:
        """Return the target of a prediction that rises (+) or falls (-) by at least so much."""
        return cls(goal=goal_change(by, percent=percent))

    def __repr__(self) -> str:
        if self.goal is not None:
            return f"Target({self.goal})"
        shown = ", ".join(map(repr, self.labels))
        if self.at_least_p is not None:
            return f"Target.probability({shown}, {self.at_least_p:g})"
        return f"Target({shown})" if len(self.labels) == 1 else f"Target.one_of({shown})"


@dataclass(frozen=True)
class Aim:
    """A wish about classes, by their positions.

    Attributes:
        classes: wanted positions.
        at_least: smallest probability of the one class, or None.
        label: whether a class is wanted, and `at_least` is just where the model begins with it.
    """

    classes: tuple[int, ...]
    at_least: float | None = None
    label: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is just one class."""
        return self.at_least is None and len(self.classes) == 1

    def from_threshold(self, threshold: float) -> Aim:
        """Return the aim at a class of two of which the second is predicted from a probability on.

        Aims at a probability stay what they are.
        """
        if not self.plain:
            return self
        (wanted,) = self.classes
        least = threshold if wanted else float(np.nextafter(1 - threshold, 1))
        return replace(self, at_least=least, label=True)

    def met(self, proba: np.ndarray) -> np.ndarray:
        """(n,) bool: whether probabilities (n, K) are as wanted."""
        if self.at_least is not None:
            return np.asarray(proba[:, self.classes[0]] >= self.at_least)
        return np.isin(proba.argmax(1), self.classes)

    def margin(self, proba: np.ndarray) -> np.ndarray:
        """(n,) how far probabilities (n, K) are inside (+) or outside (-), in log-odds."""
        log = np.log(np.clip(proba, 1e-12, None))
        inside = np.isin(np.arange(proba.shape[1]), self.classes)
        if self.at_least is None:
            return np.asarray(log[:, inside].max(1) - log[:, ~inside].max(1))
        p = proba[:, self.classes[0]]
        odds = log[:, self.classes[0]] - np.log(np.clip(1 - p, 1e-12, None))
        return np.asarray(odds - math.log(self.at_least / (1 - self.at_least)))

    def best(self, proba: np.ndarray) -> np.ndarray:
        """(n,) the wanted class that is the likeliest."""
        places = np.array(self.classes)
        return np.asarray(places[proba[:, places].argmax(1)])

    def words(self, classes: Any) -> str:
        """Return the aim in words."""
        names = " or ".join(str(classes[k]) for k in self.classes)
        if self.at_least is None:
            return names
        return f"{names} with a probability of at least {self.at_least:g}"


def read_aims(
    target: Any, n: int, outcome: Outcome, *, hard: bool, threshold: float | None = None
) -> list[Aim] | None:
    """Return the aim of each row, one for all in a list of one; None for plain labels.

    Args:
        target: a label, a `WantedOutcome`, a set of labels, {label: probability}, or a list.
        n: number of rows.
        outcome: the classes of the model.
        hard: whether the model gives labels only.
        threshold: probability from which on the model predicts the second of two classes.
    """
    if isinstance(target, pd.Series | np.ndarray):
        target = list(target)
    each = isinstance(target, list)
    wishes = target if each else [target]
    if not any(isinstance(w, WantedOutcome | set | frozenset | Mapping | tuple) for w in wishes):
        _count(target, n, outcome) if each else None
        return None
    if each and len(wishes) != n:
        raise DataError(f"{len(wishes)} targets for {n} rows; a list holds one per row")
    aims = [_aim(w, outcome, hard=hard) for w in wishes]
    return aims if threshold is None else [a.from_threshold(threshold) for a in aims]


def _count(labels: list[Any], n: int, outcome: Outcome) -> None:
    if len(labels) not in (1, n):
        text = ", ".join(map(repr, labels[:3]))
        raise DataError(
            f"{len(labels)} targets for {n} rows; a list holds one per row. For any of several "
            f"classes give a set: target={{{text}}}"
        )


def _aim(wish: Any, outcome: Outcome, *, hard: bool) -> Aim:
    wanted = _wanted(wish)
    if wanted.goal is not None:
        raise ConfigError(
            f"{wanted!r} is about a predicted number; this model predicts the classes "
            f"{list(outcome.classes)}"
        )
    places = tuple(dict.fromkeys(outcome.place(v) for v in wanted.labels))
    if len(places) == len(outcome.classes):
        raise ConfigError(f"the target names all {len(places)} classes; every row is one of them")
    if wanted.at_least_p is not None and hard:
        raise ConfigError(
            "the model gives labels without probabilities; ask for the class itself, or give a "
            "model with predict_proba"
        )
    return Aim(places, wanted.at_least_p)


def _wanted(wish: Any) -> WantedOutcome:
    if isinstance(wish, WantedOutcome):
        return wish
    if isinstance(wish, set | frozenset):
        return WantedOutcome(*sorted(wish, key=str))
    if isinstance(wish, Mapping) and len(wish) == 1:
        return WantedOutcome.probability(*next(iter(wish.items())))
    if isinstance(wish, Mapping | tuple):
        raise ConfigError(
            f"cannot read the target {wish!r}; write {{'approved': 0.8}} for a probability of at "
            "least 0.8, a set {'approved', 'review'} for any of several classes, or a list with "
            "one target per row"
        )
    return WantedOutcome(wish)


def regression_wish(target: Any) -> Any:
    """Return a wish about numbers as `cel.cf_methods.goals.read_goals` takes it."""
    if isinstance(target, WantedOutcome):
        if target.goal is None:
            raise ConfigError(
                f"{target!r} names a class; this model predicts numbers: use Target.at_least(200)"
            )
        return target.goal
    if isinstance(target, list):
        return [regression_wish(t) for t in target]
    if isinstance(target, Mapping):
        return {k: regression_wish(t) for k, t in target.items()}
    return target
