"""The constructor is the configuration: read, set, copy and check its arguments."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from cel.errors import ConfigError
from cel.registry import did_you_mean

__all__ = [
    "Parameters",
    "at_least",
    "check_choices",
    "check_positive",
    "check_shares",
    "parameter_hints",
]


class Parameters:
    """Reads and sets what the constructor stored; works with `sklearn.base.clone`."""

    _options: ClassVar[type | None] = None  # TypedDict of what `**options` may hold

    @classmethod
    def param_names(cls) -> list[str]:
        """Return the names of all constructor arguments, including those handed on to bases."""
        names: list[str] = []
        for base in cls.__mro__:
            if "__init__" not in vars(base) or base is object:
                continue
            given = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            names += [p.name for p in given if p.kind in plain]
            if not any(p.kind is p.VAR_KEYWORD for p in given):
                break
        names += [] if cls._options is None else list(cls._options.__annotations__)
        return list(dict.fromkeys(names))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor arguments by name; `deep` is there for scikit-learn."""
        return {name: getattr(self, name) for name in self.param_names()}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; they take effect at the next `fit`."""
        known = self.param_names()
        for name, value in params.items():
            if name not in known:
                hint = did_you_mean(name, known)
                raise ConfigError(f"{type(self).__name__} has no setting {name!r}; {hint}")
            setattr(self, name, value)
        return self

    def clone(self) -> Self:
        """Return an unfitted copy with the same settings."""
        return type(self)(**self.get_params(deep=False))

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items())
        return f"{type(self).__name__}({given})"


@cache
def parameter_hints(cls: type) -> dict[str, Any]:
    """Return the types of all constructor arguments, also of those that are handed on to bases.

    >>> class Kettle:
    ...     def __init__(self, litres: "float" = 1.0, *, lid=None) -> None: ...
    >>> parameter_hints(Kettle)
    {'litres': <class 'float'>, 'lid': typing.Any}
    """
    out: dict[str, Any] = {}
    for base in cls.__mro__:
        init = vars(base).get("__init__")
        if base is object or not inspect.isfunction(init):
            continue
        for p in list(inspect.signature(init).parameters.values())[1:]:
            hint = _resolved(p.annotation, base.__module__)
            if p.kind is p.VAR_KEYWORD:
                handed_on = get_args(hint)  # of Unpack[SomeDict]
                fields = handed_on[0] if handed_on and is_typeddict(handed_on[0]) else None
                out = get_type_hints(fields) | out if fields else out
            elif p.kind is not p.VAR_POSITIONAL:
                out.setdefault(p.name, hint)
    options = getattr(cls, "_options", None)
    return out if options is None else get_type_hints(options) | out


@cache
def _choices(cls: type) -> dict[str, tuple[Any, ...]]:
    """Return the values of all constructor arguments that are declared as `Literal`."""
    found = {name: _literals(hint) for name, hint in parameter_hints(cls).items()}
    return {name: values for name, values in found.items() if values}


def _resolved(annotation: Any, module: str) -> Any:
    """Return what an annotation stands for, Any where its names exist for type checkers only."""
    if annotation is inspect.Parameter.empty:
        return Any
    holder = type("_Holder", (), {"__annotations__": {"it": annotation}, "__module__": module})
    try:
        return get_type_hints(holder, vars(sys.modules[module]))["it"]
    except NameError:
        return Any


def _literals(hint: Any) -> tuple[Any, ...]:
    """Return the values that a hint admits, () if it admits anything but literals and None."""
    if get_origin(hint) is Literal:
        return tuple(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        parts = [p for p in get_args(hint) if p is not NoneType]
        values = tuple(v for p in parts for v in _literals(p))
        return (*values, None) if all(_literals(p) for p in parts) else ()
    return ()


def check_choices(owner: object) -> None:
    """Refuse settings that are not among the literals of the constructor.

    >>> class Kettle:
    ...     def __init__(self, whistle: Literal["low", "high"] = "low") -> None:
    ...         self.whistle = whistle
    >>> check_choices(Kettle("hihg"))
    Traceback (most recent call last):
    cel.errors.ConfigError: Kettle: whistle='hihg' is unknown; did you mean 'high'?
    """
    cls: Any = type(owner)
    for name, known in _choices(cls).items():
        value = getattr(owner, name, known[0])
        if isinstance(value, list | dict | set) or value not in known:
            texts = [v for v in known if isinstance(v, str)]
            hint = did_you_mean(str(value), texts) if len(texts) == len(known) else f"use {known}"
            raise ConfigError(f"{type(owner).__name__}: {name}={value!r} is unknown; {hint}")


def check_positive(owner: object, *names: str, zero: bool = False) -> None:
    """Refuse settings that are not positive numbers; `zero` admits 0."""
    for name in names:
        value = getattr(owner, name)
        good = isinstance(value, int | float) and (value > 0 or (zero and value == 0))
        if not good:
            wanted = "at least 0" if zero else "positive"
            raise ConfigError(f"{type(owner).__name__}: {name} must be {wanted}, got {value!r}")


def at_least(owner: object, lowest: float, *names: str) -> None:
    """Refuse settings below the lowest sensible value; None means no limit."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and not (isinstance(value, int | float) and value >= lowest):
            raise ConfigError(
                f"{type(owner).__name__}: {name} must be at least {lowest:g}, got {value!r}"
            )


def check_shares(owner: object, names: Sequence[str], *, closed: bool = False) -> None:
    """Refuse settings outside of [0, 1), or of [0, 1] when `closed`."""
    for name in names:
        value = getattr(owner, name)
        inside = isinstance(value, int | float) and value >= 0 and (value < 1 or value == closed)
        if not inside:
            bracket = "]" if closed else ")"
            raise ConfigError(
                f"{type(owner).__name__}: {name} must lie in [0, 1{bracket}, got {value!r}"
            )
