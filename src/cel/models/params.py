"""Constructor arguments as data: get, set, clone."""

from __future__ import annotations

import inspect
from typing import Any, Self

from cel.errors import ConfigError
from cel.registry import did_you_mean

__all__ = ["ParamsMixin"]


class ParamsMixin:
    """Reads and sets what the constructor stored; works with `sklearn.base.clone`."""

    @classmethod
    def param_names(cls) -> list[str]:
        """Return the names of all constructor arguments, including those handed on to bases."""
        names: list[str] = []
        for base in cls.__mro__:
            if "__init__" not in vars(base) or base is object:
                continue
            parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            names += [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
        return list(dict.fromkeys(names))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor arguments; `deep` is there for scikit-learn."""
        return {name: getattr(self, name) for name in self.param_names()}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; they take effect at the next `fit`."""
        known = self.param_names()
        for name, value in params.items():
            if name not in known:
                hint = did_you_mean(name, known)
                raise ConfigError(f"{type(self).__name__} has no parameter {name!r}; {hint}")
            setattr(self, name, value)
        return self

    def clone(self) -> Self:
        """Return an unfitted copy with the same constructor arguments."""
        return type(self)(**self.get_params(deep=False))

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items())
        return f"{type(self).__name__}({given})"
