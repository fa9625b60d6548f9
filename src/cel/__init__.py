"""Counterfactual explanations: datasets, models, methods, metrics and one controlled benchmark.

>>> import cel
>>> cel.load_dataset("moons").name
'moons'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cel.lazy_names import lazy_names

if TYPE_CHECKING:
    from cel.api import explain
    from cel.benchmark import run
    from cel.cf_methods import METHODS, BaseCounterfactualMethod
    from cel.datasets import DATASETS, FileDataset, load_dataset
    from cel.door import Explainer
    from cel.door import WantedOutcome as Target
    from cel.errors import CelError
    from cel.metrics import METRICS, MetricsOrchestrator
    from cel.models import MODELS, wrap
    from cel.people import audit, explain_global, explain_group
    from cel.result import ExplanationResult
    from cel.space import Feature, FeatureSpace, Implication, LinearRelation

__version__ = "0.1.0"

# Public names and the modules that define them; nothing is imported before it is used.
_WHERE = {
    "BaseCounterfactualMethod": "cel.cf_methods",
    "CelError": "cel.errors",
    "DATASETS": "cel.datasets",
    "Explainer": "cel.door",
    "ExplanationResult": "cel.result",
    "Feature": "cel.space",
    "FeatureSpace": "cel.space",
    "FileDataset": "cel.datasets",
    "Implication": "cel.space",
    "LinearRelation": "cel.space",
    "METHODS": "cel.cf_methods",
    "METRICS": "cel.metrics",
    "MODELS": "cel.models",
    "MetricsOrchestrator": "cel.metrics",
    "Target": "cel.door:WantedOutcome",
    "audit": "cel.people",
    "explain": "cel.api",
    "explain_global": "cel.people",
    "explain_group": "cel.people",
    "load_dataset": "cel.datasets",
    "run": "cel.benchmark",
    "wrap": "cel.models",
}

__all__ = [
    "DATASETS",
    "METHODS",
    "METRICS",
    "MODELS",
    "BaseCounterfactualMethod",
    "CelError",
    "Explainer",
    "ExplanationResult",
    "Feature",
    "FeatureSpace",
    "FileDataset",
    "Implication",
    "LinearRelation",
    "MetricsOrchestrator",
    "Target",
    "__version__",
    "audit",
    "explain",
    "explain_global",
    "explain_group",
    "load_dataset",
    "run",
    "wrap",
]


__getattr__ = lazy_names(__name__, _WHERE)


def __dir__() -> list[str]:
    return __all__
