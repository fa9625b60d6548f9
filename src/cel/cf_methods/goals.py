"""What a predicted number should become, in the units of its owner."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import ConfigError, DataError
from cel.space import Target

__all__ = [
    "Goal",
    "Goals",
    "Wish",
    "at_least",
    "at_most",
    "between",
    "change",
    "near",
    "read_goals",
]

_SIZE = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = rf"[-+]?{_SIZE}"
WITHIN = 0.05  # of the training range: how near a plain value must be reached


@dataclass(frozen=True)
class Goal:
    """An interval that a prediction should reach, fixed or relative to the present prediction.

    Made by `at_least`, `at_most`, `between`, `near` and `change`.

    Attributes:
        lower: smallest wanted value.
        upper: largest wanted value.
        by: amount to add to the present prediction, or None.
        percent: per cent of the present prediction to add, or None.
        within: half width around `value`; None for 5 % of the training range.
        value: a single wanted value, or None.
    """

    lower: float = -math.inf
    upper: float = math.inf
    by: float | None = None
    percent: float | None = None
    value: float | None = None
    within: float | None = None

    def interval(self, y: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends (n,) for rows with predictions `y` (n,), in original units.

        Args:
            y: present predictions.
            width: training range of the output.
        """
        if self.value is not None:
            reach = WITHIN * width if self.within is None else self.within
            return np.full(len(y), self.value - reach), np.full(len(y), self.value + reach)
        if self.by is None and self.percent is None:
            return np.full(len(y), self.lower), np.full(len(y), self.upper)
        step = self.by if self.by is not None else np.abs(y) * (self.percent or 0.0) / 100
        rises = (self.by if self.by is not None else self.percent or 0.0) > 0
        end = y + step
        wall = np.full(len(y), math.inf)
        return (end, wall) if rises else (-wall, end)


def at_least(value: float) -> Goal:
    """Return the goal of a prediction of this value or more.

    >>> at_least(200).interval(np.array([150.0]), 100.0)[0].tolist()
    [200.0]
    """
    return Goal(lower=_finite(value))


def at_most(value: float) -> Goal:
    """Return the goal of a prediction of this value or less."""
    return Goal(upper=_finite(value))


def between(lower: float, upper: float) -> Goal:
    """Return the goal of a prediction in an interval."""
    low, high = _finite(lower), _finite(upper)
    if low > high:
        raise ConfigError(f"between({lower}, {upper}): the lower end is above the upper one")
    return Goal(lower=low, upper=high)


def near(value: float, within: float | None = None) -> Goal:
    """Return the goal of a value, reached within an amount; by default 5 % of the range."""
    if within is not None and not within > 0:
        raise ConfigError(f"near({value}, within={within}): the amount must be positive")
    return Goal(value=_finite(value), within=within)


def change(by: float | None = None, *, percent: float | None = None) -> Goal:
    """Return the goal of a prediction that rises (+) or falls (-) by at least so much.

    >>> change(percent=-10).interval(np.array([200.0]), 1.0)[1].tolist()
    [180.0]
    """
    if (by is None) == (percent is None):
        raise ConfigError("change(...) takes an amount or percent=..., one of the two")
    size = _finite(by if by is not None else percent)
    if size == 0:
        raise ConfigError("a change of 0 asks for nothing")
    return Goal(by=by, percent=percent)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ConfigError(f"{value!r} is no number that can be reached")
    return number


@dataclass(frozen=True, eq=False)
class Wish:
    """A target in original units, as `read_goals` reads it; plain values are in encoded ones."""

    wish: Any


@dataclass(frozen=True, eq=False)
class Goals:
    """The intervals of all rows and outputs, in the units of the model's predictions.

    Attributes:
        lower: (n, o) ends.
        upper: (n, o) ends.
    """

    lower: np.ndarray
    upper: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        """(n, 2 o) lower and upper ends, as methods that know intervals take them."""
        return np.concatenate([self.lower, self.upper], axis=1)

    def aims(self, y: np.ndarray, tolerance: float) -> np.ndarray:
        """(n, o) single values inside, the nearest to `y`, for methods that know values only."""
        narrow = self.upper - self.lower < 2 * tolerance
        middle = np.where(np.isfinite(self.lower + self.upper), (self.lower + self.upper) / 2, 0.0)
        low = np.where(narrow, middle, self.lower + tolerance)
        high = np.where(narrow, middle, self.upper - tolerance)
        return np.asarray(np.clip(y, low, high))


def read_goals(wish: Any, y: np.ndarray, target: Target | None) -> Goals:
    """Turn what a user wishes into intervals.

    Args:
        wish: a number, a `Goal`, a text (">= 200", "<= 5", "100..200", "+10%", "-500"), a pair
            (lower, upper), a mapping from outputs to any of these, or a list with one per row.
        y: (n, o) present predictions, in units of the training range if `target` has one.
        target: what the outputs are called and which ranges they have.
    """
    n, o = y.shape
    scaled = target is not None and bool(target.lower)
    raw = target.decode(y) if scaled and target is not None else y
    widths = np.ones(o)
    if scaled and target is not None:
        widths = np.array(target.upper) - np.array(target.lower)
    names = list(target.names) if target is not None else [str(j) for j in range(o)]
    low, high = np.empty((n, o)), np.empty((n, o))
    for j, part in enumerate(_by_output(wish, names, o)):
        low[:, j], high[:, j] = _intervals(part, raw[:, j], float(widths[j]))
    if scaled and target is not None:
        low, high = target.encode(low), target.encode(high)
    return Goals(low, high)


def _by_output(wish: Any, names: list[str], o: int) -> list[Any]:
    if isinstance(wish, Mapping):
        unknown = [k for k in wish if k not in names]
        if unknown:
            raise ConfigError(f"unknown output {unknown[0]!r}; the outputs are {names}")
        return [wish.get(name, Goal()) for name in names]
    if o > 1 and isinstance(wish, np.ndarray) and wish.shape[-1:] == (o,):
        return [wish[..., j] for j in range(o)]
    if o > 1 and not isinstance(wish, Goal | str):
        raise ConfigError(f"there are {o} outputs; give target={{{names[0]!r}: ..., ...}}")
    return [wish] * o


def _intervals(wish: Any, y: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(wish, pd.Series):
        wish = wish.tolist()
    if isinstance(wish, list) or (isinstance(wish, np.ndarray) and wish.ndim == 1):
        if len(wish) != len(y):
            raise DataError(f"{len(wish)} targets for {len(y)} rows")
        ends = [_goal(w).interval(y[i : i + 1], width) for i, w in enumerate(wish)]
        low, high = zip(*ends, strict=True) if ends else ((np.zeros(0),), (np.zeros(0),))
        return np.concatenate(low), np.concatenate(high)
    return _goal(wish).interval(y, width)


def _goal(wish: Any) -> Goal:
    """Read one wish."""
    if isinstance(wish, Goal):
        return wish
    if isinstance(wish, tuple) and len(wish) == 2:
        return between(*wish)
    if isinstance(wish, int | float | np.number) and not isinstance(wish, bool):
        return near(float(wish))
    if isinstance(wish, str):
        return _from_text(wish)
    raise ConfigError(
        f"cannot read the target {wish!r}; give a number, (lower, upper), '>= 200', '<= 200', "
        "'100..200', '+10%' or '-500'"
    )


def _from_text(text: str) -> Goal:
    plain = text.strip()
    for pattern, make in _FORMS:
        found = re.fullmatch(pattern, plain)
        if found:
            return make(*(float(v) for v in found.groups()))
    raise ConfigError(
        f"cannot read the target {text!r}; write '>= 200', '<= 200', '100..200', '+10%' or '-500'"
    )


def _by_percent(size: float) -> Goal:
    return change(percent=size)


_FORMS: tuple[tuple[str, Callable[..., Goal]], ...] = (
    (rf"(?:>=|at least)\s*({_NUMBER})", at_least),
    (rf"(?:<=|at most)\s*({_NUMBER})", at_most),
    (rf"({_NUMBER})\s*\.\.\s*({_NUMBER})", between),
    (rf"([-+]{_SIZE})\s*%", _by_percent),
    (rf"([-+]{_SIZE})", change),
    (rf"({_SIZE})", near),
)
