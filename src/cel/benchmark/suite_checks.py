"""What the values of a suite may be, checked before anything is built from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from cel.errors import ConfigError

__all__ = ["check_limits", "check_values"]

MAX_FOLDS = 10_000
MAX_LABEL = 200  # characters; longer labels make tables that nobody can read

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        return False
    return not any("\ud800" <= c <= "\udfff" for c in value)  # half a character, from JSON


def _whole(least: int, most: float = math.inf) -> Check:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v <= most


def _list_of(check: Check) -> Check:
    return lambda v: isinstance(v, list | tuple) and bool(v) and all(map(check, v))


def _settings(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_text, value))


def _groups(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_text, value))
    return _settings(value) and all(v is None or _settings(v) for v in value.values())


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_text, value))


_CHECKS: dict[str, tuple[Check, str]] = {
    "datasets": (_list_of(_text), "a list of names, as in [moons, wine]"),
    "folds": (_list_of(_whole(0)), "a list of numbers, as in [0, 1]"),
    "n_folds": (_whole(2, MAX_FOLDS), f"a whole number from 2 to {MAX_FOLDS}"),
    "seed": (_whole(0, 2**32 - 1), "a whole number from 0 to 4294967295"),
    "classifiers": (_groups, "a list of models, or `model: {setting: value}`"),
    "regressors": (_groups, "a list of models, or `model: {setting: value}`"),
    "density": (_settings, "`setting: value` lines"),
    "metrics": (_text, "the name of a list of metrics"),
    "extra_metrics": (_texts, "a list of names"),
    "metric_params": (_groups, "`metric: {setting: value}`"),
    "target": (_text, "card or paper"),
    "binary": (lambda v: isinstance(v, bool), "true or false"),
    "max_rows": (lambda v: v is None or _whole(1)(v), "a whole number from 1, or nothing"),
}


def check_values(values: Mapping[str, Any], where: str) -> None:
    """Raise for the first value of a suite that cannot be what it says."""
    for name, (fits, expected) in _CHECKS.items():
        if name in values and not fits(values[name]):
            raise ConfigError(f"{where}: {name} is {_shown(values[name])}; it must be {expected}")
    if "methods" in values:
        _check_methods(values["methods"], where)


def _check_methods(given: Any, where: str) -> None:
    if not isinstance(given, Mapping | list | tuple) or not given:
        raise ConfigError(
            f"{where}: methods is {_shown(given)}; it must be a list of names, or "
            "`label: {method: name, params: {setting: value}}`"
        )
    if isinstance(given, Mapping):
        for label, value in given.items():
            _check_label(label, where)
            _check_method(label, value, where)
    else:
        for label in given:
            if not hasattr(label, "label"):
                _check_label(label, where)


def _check_label(label: Any, where: str) -> None:
    if not _text(label):
        raise ConfigError(f"{where}: the method label {_shown(label)} is no text; quote it")
    if len(label) > MAX_LABEL:
        raise ConfigError(
            f"{where}: the method label {_shown(label)} is longer than {MAX_LABEL} characters"
        )


def _check_method(label: str, value: Any, where: str) -> None:
    if value is None or hasattr(value, "label"):
        return
    fits = isinstance(value, Mapping)
    fits = fits and (value.get("method") is None or _text(value["method"]))
    fits = fits and (value.get("params") is None or _settings(value["params"]))
    if not fits:
        raise ConfigError(
            f"{where}: methods.{label} is {_shown(value)}; write "
            "{method: name, params: {setting: value}}"
        )


def check_limits(limits: Mapping[str, Any], where: str) -> None:
    """Raise unless all limits are positive numbers."""
    for name, value in limits.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        least = 0 if name == "grace_s" else 1e-9
        if not number or not least <= value <= 1e9:
            raise ConfigError(
                f"{where}: limits.{name} is {_shown(value)}; it must be a number above 0"
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."
