"""Checks of settings that say what is wrong and what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cel.errors import ConfigError

__all__ = ["check_choice", "check_positive"]


def check_choice(method: Any, **choices: Sequence[Any]) -> None:
    """Refuse settings that are not among the known ones."""
    for name, known in choices.items():
        value = getattr(method, name)
        if value not in known:
            raise ConfigError(
                f"{type(method).__name__}: {name}={value!r} is unknown; use one of {list(known)}"
            )


def check_positive(method: Any, *names: str, zero: bool = False) -> None:
    """Refuse settings that are not positive numbers; `zero` admits 0."""
    for name in names:
        value = getattr(method, name)
        good = isinstance(value, int | float) and (value > 0 or (zero and value == 0))
        if not good:
            wanted = "at least 0" if zero else "positive"
            raise ConfigError(f"{type(method).__name__}: {name} must be {wanted}, got {value!r}")
