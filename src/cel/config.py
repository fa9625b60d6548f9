"""YAML files become checked, frozen specifications here; nothing else reads YAML."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from cel.errors import ConfigError, StoreError
from cel.paths import read_bytes
from cel.registry import did_you_mean

__all__ = ["Label", "StrictModel", "load_yaml_model", "read_yaml", "unkeyed", "write_yaml"]

M = TypeVar("M", bound="StrictModel")
Label = str | int | float | bool

MAX_YAML = 2 * 2**20  # bytes of a card or a suite
MAX_DEPTH = 40
MAX_VALUES = 200_000


class StrictModel(BaseModel):
    """Base of all specifications: typed, frozen, and unknown keys are errors with a hint.

    Subclasses declare fields with types and defaults; what types cannot say goes into `check`,
    which raises ValueError.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    _later: ClassVar[tuple[str, ...]] = ()  # fields that older files lack; unset ones have no key

    @model_serializer(mode="wrap")
    def _plain(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        out: dict[str, Any] = handler(self)
        for name in self._later:
            if getattr(self, name) == type(self).model_fields[name].default:
                out.pop(name, None)
        return out

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, Mapping) else ():
            if key not in cls.model_fields:
                hint = did_you_mean(str(key), cls.model_fields)
                raise ValueError(f"unknown key {key!r}; {hint}")
        return data

    @model_validator(mode="after")
    def _checked(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""


def unkeyed(default: Any) -> Any:
    """Return the default of a field that says nothing about results: it is left out of keys."""
    return Field(default=default, exclude=True)


def load_yaml_model(path: str | os.PathLike[str], model: type[M]) -> M:
    """Read a YAML file and check it against `model`; problems name the file and the key."""
    data = read_yaml(path)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = [_problem(e["loc"], e["msg"]) for e in error.errors()[:3]]
        raise ConfigError(f"{os.fspath(path)}: {'; '.join(problems)}") from None


def _problem(location: tuple[int | str, ...], message: str) -> str:
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location).lstrip(".")
    text = message.removeprefix("Value error, ")
    return f"{key}: {text}" if key else text


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses duplicate keys, which YAML forbids and PyYAML accepts.

    It also refuses what would take more memory or time than a file of settings can need: deep
    nesting, and aliases that multiply. Nothing is built before the whole size is known.
    """

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            text = f"nested more than {MAX_DEPTH} deep"
            raise yaml.composer.ComposerError(None, None, text, mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _expanded(node, {}) > MAX_VALUES:
            text = f"holds more than {MAX_VALUES:,} values once its aliases are expanded"
            raise yaml.composer.ComposerError(None, None, text, node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                text = "a key must be a word, not a list or a mapping"
                raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
            if key.value in seen:
                text = f"key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _expanded(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node stands for; one that holds itself stands for too many."""
    if id(node) in known:
        return known[id(node)]
    if isinstance(node, yaml.ScalarNode):
        return 1
    known[id(node)] = MAX_VALUES + 1  # until it is known: what it would be if met inside itself
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        parts = [n for pair in node.value for n in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    size = 1
    for part in parts:
        size = min(size + _expanded(part, known), MAX_VALUES + 1)
    known[id(node)] = size
    return size


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the mapping in a YAML file; problems name the file and the line."""
    name = os.fspath(path)
    try:
        text = read_bytes(Path(path), MAX_YAML, follow=True).decode("utf-8")
        data = yaml.load(text, _Loader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 text ({error.reason}); save it as UTF-8") from None
    except StoreError as error:
        raise ConfigError(str(error)) from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{name}{line}: {error.problem or 'not valid YAML'}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # dates and numbers that are none
        raise ConfigError(f"{name}: not valid YAML ({str(error)[:200]})") from None
    if not isinstance(data, dict):
        kind = "is empty" if data is None else f"holds a {type(data).__name__}"
        raise ConfigError(f"{name}: {kind}; expected `key: value` lines")
    return data


def write_yaml(
    path: str | os.PathLike[str], data: Mapping[str, Any], *, comment: str = ""
) -> None:
    """Write a mapping as YAML, all or nothing; an existing file is never replaced."""
    target = Path(path)
    if target.exists():
        raise ConfigError(f"{target}: exists already; delete it or choose another name")
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    body = yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=99)
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=target.parent, suffix=".part", delete=False, encoding="utf-8"
        ) as part:
            part.write(head + body)
        os.replace(part.name, target)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written ({error.strerror})") from None
