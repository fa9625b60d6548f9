"""The metrics of a suite with their settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cel.benchmark.spec import Suite

__all__ = ["metric_entries"]


def metric_entries(suite: Suite) -> list[Any]:
    """Return the metrics of a suite with their settings, in the orchestrator's form."""
    from cel.metrics.suites import choose, read_entries

    listed, params = read_entries(suite.metrics), suite.metric_params
    labels = [c.name for c in choose(listed)]
    entries = [_with_params(e, params.get(n)) for e, n in zip(listed, labels, strict=True)]
    extra = [n for n in suite.extra_metrics if n not in labels]
    return entries + [_with_params(n, params.get(n)) for n in extra]


def _with_params(entry: Any, params: Any) -> Any:
    """Return an entry of a list of metrics with settings of the suite on top of its own."""
    if params is None:
        return entry
    ((name, own),) = entry.items() if isinstance(entry, Mapping) else ((entry, {}),)
    return {name: dict(own or {}) | dict(params)}
