"""Checks of constructor arguments, made when they are used."""

from __future__ import annotations

from collections.abc import Sequence

from cel.errors import ConfigError

__all__ = ["check_settings"]


def check_settings(
    owner: object, *, positive: Sequence[str] = (), shares: Sequence[str] = ()
) -> None:
    """Raise unless some attributes are above zero and others in [0, 1)."""
    name = type(owner).__name__
    for attribute in positive:
        value = getattr(owner, attribute)
        if not value > 0:
            raise ConfigError(f"{name}: {attribute} must be positive, got {value!r}")
    for attribute in shares:
        value = getattr(owner, attribute)
        if not 0 <= value < 1:
            raise ConfigError(f"{name}: {attribute} must lie in [0, 1), got {value!r}")
