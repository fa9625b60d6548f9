"""Metrics of counterfactuals: a registry, an orchestrator, comparisons and the Pareto front."""

from __future__ import annotations

from cel.metrics import (
    density,
    diversity,
    fairness,
    minimality,
    neighbours,
    outcome,
    outliers,
    proximity,
    retraining,
    robustness,
    timing,
    units,
    weights,
)
from cel.metrics.base import METRICS, Cell, Metric, Score, metric
from cel.metrics.compare import compare, pareto
from cel.metrics.evaluation import Evaluation
from cel.metrics.orchestrator import MetricsOrchestrator
from cel.metrics.references import References
from cel.metrics.scores import Scores
from cel.metrics.suites import packaged_suites

_REGISTERED = (
    density,
    diversity,
    fairness,
    minimality,
    neighbours,
    outcome,
    outliers,
    proximity,
    retraining,
    robustness,
    timing,
    units,
    weights,
)  # imported so that their metrics are known by name

__all__ = [
    "METRICS",
    "Cell",
    "Evaluation",
    "Metric",
    "MetricsOrchestrator",
    "References",
    "Score",
    "Scores",
    "compare",
    "metric",
    "packaged_suites",
    "pareto",
]
