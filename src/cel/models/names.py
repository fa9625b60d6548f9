"""All model classes by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cel.registry import Registry

if TYPE_CHECKING:
    from cel.models.estimator import PytorchBase  # noqa: F401 - named in a string below

__all__ = ["MODELS"]

BUILT_IN = ("cel.models.classifiers", "cel.models.regressors", "cel.models.generative")


class _Models(Registry["type[PytorchBase]"]):
    """Imports the built-in models when it is first asked for one."""

    def _search(self) -> None:
        for package in BUILT_IN:
            import_module(package)
        super()._search()


MODELS = _Models("model", group="cel.models")
