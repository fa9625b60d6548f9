"""Every error that CEL raises on purpose."""

from __future__ import annotations

import sys

__all__ = [
    "BudgetExceeded",
    "CelError",
    "ClusterError",
    "ConfigError",
    "DataError",
    "MissingDependencyError",
    "MissingInputError",
    "NotFittedError",
    "StoreError",
    "TrainingError",
    "UnsupportedError",
    "foreign_errors",
]


class CelError(Exception):
    """Base of all CEL errors; its message says what was wrong and what to do."""


class ConfigError(CelError, ValueError):
    """A setting, a name or a configuration file is wrong."""


class DataError(CelError, ValueError):
    """A file, a table, a column or a value is wrong."""


class UnsupportedError(CelError, TypeError):
    """The combination asked for cannot work, and the reason is known beforehand."""


class NotFittedError(CelError, RuntimeError):
    """Something was used before `fit`."""


class MissingInputError(CelError, ValueError):
    """A computation needs an input (density, training rows, ...) that was not given."""


class MissingDependencyError(CelError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; install it with: pip install 'ce-library[{extra}]'"
        )


class TrainingError(CelError, RuntimeError):
    """A training diverged; the message names the epoch."""


class StoreError(CelError, OSError):
    """A saved file is not ours, is damaged, or comes from a newer version."""


class ClusterError(CelError, ConnectionError):
    """A cluster cannot be reached, or was lost; what was finished is kept."""


class BudgetExceeded(CelError, TimeoutError):  # noqa: N818 - it ends a search, it is no mistake
    """A time limit was reached in the middle of a search."""


def foreign_errors() -> tuple[type[Exception], ...]:
    """Return what models from outside raise about a row that they do not take."""
    known: list[type[Exception]] = [
        ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, CelError
    ]  # fmt: skip
    for module, name in (("catboost", "CatBoostError"), ("lightgbm.basic", "LightGBMError")):
        if module in sys.modules:
            known.append(getattr(sys.modules[module], name))
    return tuple(known)
