"""Settings that make no sense, refused in the words of who gave them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.cf_methods.variants import method_names
from cel.door.portfolio import Portfolio
from cel.errors import ConfigError, DataError
from cel.registry import did_you_mean

__all__ = ["check_call", "check_settings"]

KEYWORDS = (
    "target", "method", "constraints", "immutable", "increasing", "decreasing", "ranges",
    "allowed", "relations", "implications", "max_changes", "weights", "space", "start_outside",
    "task", "classes", "columns", "on_error", "n", "time_limit",
)  # fmt: skip
ELSEWHERE = {
    "directions": "use increasing=[...] and decreasing=[...]",
    "bounds": "use ranges={column: (lower, upper)}",
    "permitted_range": "use ranges= for numbers and allowed= for labels",
    "features_to_vary": "name the others in immutable=[...]",
    "desired_class": "use target=",
    "n_cfs": "use n=",
    "total_cfs": "use n=, or total_CFs= for DiCE",
    "samples": "it belongs to DiCE; add method='dice'",
    "timeout": "use time_limit=",
    "seed": "use random_state=",
}  # what other libraries call it


def check_settings(
    model: Any,
    background: Any,
    start_outside: str,
    on_error: str,
    method: str | None,
    settings: dict[str, Any],
) -> None:
    """Raise for settings of an explainer that cannot be meant."""
    _one_of("start_outside", start_outside, ("inside", "widen"))
    _one_of("on_error", on_error, ("keep", "raise"))
    if isinstance(model, str | Path):
        raise ConfigError(
            f"the model is a path, {str(model)!r}; load it first, such as with joblib or skops"
        )
    if isinstance(model, type):
        raise ConfigError(f"the model is the class {model.__name__}; give a fitted instance")
    if method is not None and (lower := str(method).lower()) != method and lower in method_names():
        raise ConfigError(f"unknown method {method!r}; did you mean {lower!r}?")
    if isinstance(method, str) and f"dice_{method}" in method_names():
        raise ConfigError(f"unknown method {method!r}; did you mean 'dice_{method}'?")
    for name in ("total_CFs", "batch_size", "max_queries"):
        value = settings.get(name, 1)
        if value is not None and not _whole(value):
            raise ConfigError(f"{name} is {value!r}; give a whole number, 1 or more")
    seed = settings.get("random_state", 0)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ConfigError(f"random_state is {seed!r}; give a whole number")
    _check_time(settings.get("time_limit"))
    if method in (None, "auto") and "total_CFs" not in settings:
        _check_names(settings)
    if isinstance(background, pd.DataFrame) and not len(background):
        raise DataError("the background table has no rows; give the training rows of the model")


def _check_names(settings: dict[str, Any]) -> None:
    known = [*Portfolio.param_names(), *KEYWORDS]
    for name in settings:
        if name not in known or name in ("model", "n", "dummies", "space"):
            hint = ELSEWHERE.get(name) or did_you_mean(name, known)
            raise ConfigError(f"unknown keyword {name!r}; {hint}")


def check_call(n: Any, time_limit: Any) -> None:
    """Raise for settings of a call that cannot be meant."""
    if not _whole(n):
        raise ConfigError(f"n is {n!r}; give the number of answers per row, 1 or more")
    _check_time(time_limit)


def _check_time(seconds: Any) -> None:
    if seconds is None:
        return
    number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if not number or math.isnan(seconds) or seconds < 0:
        raise ConfigError(f"time_limit is {seconds!r}; give seconds, such as 10, or None")


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}; use {' or '.join(map(repr, choices))}")
