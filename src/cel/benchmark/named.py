"""What a suite names as `module:attribute`: methods, models and metrics of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cel.benchmark.plan import method_class
from cel.benchmark.spec import Suite
from cel.errors import ConfigError
from cel.metrics.suites import choose

__all__ = ["import_folders", "model_class", "named_in"]


def named_in(suite: Suite) -> dict[str, Callable[[str], Any]]:
    """Return every `module:attribute` of a suite with the function that resolves it."""
    models = [*suite.classifiers, *suite.regressors, str(suite.density.get("model", ""))]
    kinds: list[tuple[Iterable[str], Callable[[str], Any]]] = [
        ([m.method for m in suite.methods], method_class),
        (models, model_class),
        (suite.extra_metrics, _metric),
    ]
    return {name: resolve for names, resolve in kinds for name in names if ":" in name}


def import_folders(suite: Suite) -> list[str]:
    """Import what a suite names; return the folders where another process finds the same files."""
    folders = []
    for name, resolve in named_in(suite).items():
        resolve(name)
        top = sys.modules[name.partition(":")[0].partition(".")[0]]
        places = [top.__file__] if top.__file__ else list(top.__path__)
        package = hasattr(top, "__path__") and top.__file__
        folders += [str(Path(p).resolve().parents[1 if package else 0]) for p in places]
    return list(dict.fromkeys(folders))


def model_class(name: str) -> Any:
    """Return a model by registry name or as `module:Class`."""
    from cel.models import MODELS, PytorchBase

    found = MODELS.named(name)
    if not (isinstance(found, type) and issubclass(found, PytorchBase)):
        raise ConfigError(f"{name!r} is not a PytorchBase")
    return found


def _metric(name: str) -> Any:
    (choice,) = choose([name])
    return choice.metric
