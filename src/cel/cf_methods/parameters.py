"""Settings of methods: the constructor is the configuration."""

from __future__ import annotations

import inspect
from typing import Any, Self, TypedDict

from cel.errors import ConfigError
from cel.registry import did_you_mean
from cel.space import FeatureSpace

__all__ = ["Options", "Parameters"]


class Options(TypedDict, total=False):
    """Settings that every method has.

    Attributes:
        space: the encoded features; by default those of the model or of the training data.
        random_state: seed of all random streams.
        time_limit: seconds for one call of `explain`; unanswered rows become `timeout`.
        max_queries: model evaluations per row.
        batch_size: rows solved together; by default as many as fit in memory.
        tolerance: largest |prediction - target| of a regression answer, in units of the range.
        progress: show a progress bar.
    """

    space: FeatureSpace | None
    random_state: int
    time_limit: float | None
    max_queries: int | None
    batch_size: int | None
    tolerance: float
    progress: bool


class Parameters:
    """Reads settings off the constructors of a class and its bases."""

    model: Any

    @classmethod
    def _own_parameters(cls) -> list[str]:
        names: dict[str, None] = {}
        for base in reversed(cls.__mro__):
            init = base.__dict__.get("__init__")
            if init is None or base is object:
                continue
            for p in inspect.signature(init).parameters.values():
                if p.name != "self" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                    names[p.name] = None
        return list(names)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all settings by name, the model included."""
        names = [*self._own_parameters(), *Options.__annotations__]
        return {n: getattr(self, n) for n in dict.fromkeys(names)}

    def set_params(self, **params: Any) -> Self:
        """Change settings by name."""
        for name, value in params.items():
            if name not in self.get_params():
                hint = did_you_mean(name, self.get_params())
                raise ConfigError(f"{type(self).__name__} has no setting {name!r}; {hint}")
            setattr(self, name, value)
        return self

    def clone(self) -> Self:
        """Return an unfitted copy with the same settings."""
        return type(self)(**self.get_params())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.model).__name__})"
