"""Which metrics to compute: names, settings and the files that list them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from cel.config import read_yaml
from cel.errors import ConfigError
from cel.metrics.base import METRICS, Metric
from cel.registry import did_you_mean

__all__ = ["Choice", "choose", "packaged_suites", "read_entries", "read_suite"]

Entry = str | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One metric with its settings, and the name under which its score is filed."""

    name: str
    metric: Metric
    params: Mapping[str, Any] = field(default_factory=dict)


def choose(entries: Sequence[Entry]) -> tuple[Choice, ...]:
    """Turn entries, `name` or `{name: {setting: value, as: label}}`, into checked choices.

    >>> choose(["l2", {"prob_plausibility": {"quantile": 0.25, "as": "pp25"}}])[1].name
    'pp25'
    >>> choose(["coverge"])
    Traceback (most recent call last):
    cel.errors.ConfigError: unknown metric 'coverge'; did you mean 'coverage'?
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise ConfigError(f"metrics must be a list of names, got {entries!r}")
    choices = [_choice(entry) for entry in entries]
    names = [c.name for c in choices]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ConfigError(
            f"metric {twice[0]!r} is listed twice; give one of them another name with `as:`"
        )
    return tuple(choices)


def _choice(entry: Entry) -> Choice:
    if isinstance(entry, str):
        metric = _metric(entry)
        return Choice(name=metric.name if ":" in entry else entry, metric=metric)
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise ConfigError(f"expected `name` or `name: {{setting: value}}`, got {entry!r}")
    ((name, given),) = entry.items()
    metric = _metric(str(name))
    if not isinstance(given or {}, Mapping):
        raise ConfigError(f"metric {name!r}: settings must be `key: value`, got {given!r}")
    params = dict(given or {})
    label = str(params.pop("as", metric.name if ":" in str(name) else name))
    metric.check_parameters(params)
    return Choice(name=label, metric=metric, params=params)


def _metric(name: str) -> Metric:
    found = METRICS.named(name)
    if not isinstance(found, Metric):
        raise ConfigError(f"{name!r} is not a metric; write @metric(...) above the function")
    return found


def packaged_suites() -> list[str]:
    """Return the names of the suites inside the package."""
    folder = resources.files("cel.metrics") / "configs"
    return sorted(p.name for p in folder.iterdir() if p.name.endswith(".yaml"))


def read_suite(conf_path: str | os.PathLike[str]) -> tuple[Choice, ...]:
    """Read a suite: a packaged name such as "default.yaml" or "default", or a file of your own."""
    return choose(read_entries(conf_path))


def read_entries(conf_path: str | os.PathLike[str]) -> list[Entry]:
    """Read the entries of a suite as they are written: names, settings and `as:`."""
    path = Path(conf_path)
    if not path.is_file():
        name = path.name if path.suffix else f"{path.name}.yaml"
        if len(path.parts) != 1 or name not in packaged_suites():
            hint = did_you_mean(name, packaged_suites())
            raise ConfigError(f"no suite of metrics {str(conf_path)!r}; {hint}")
        path = Path(str(resources.files("cel.metrics") / "configs" / name))
    content = read_yaml(path)
    for key in content:
        if key != "metrics":
            raise ConfigError(f"{path.name}: unknown key {key!r}; did you mean 'metrics'?")
    entries = content.get("metrics") or []
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise ConfigError(f"{path.name}: metrics must be a list of names, got {entries!r}")
    return list(entries)
