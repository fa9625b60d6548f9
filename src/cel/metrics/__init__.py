"""Metrics of counterfactuals: a registry, an orchestrator, comparisons and the Pareto front."""

from __future__ import annotations

from cel.lazy_names import lazy_names
from cel.metrics import (
    data_shift,
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
    rule_counts,
    timing,
    weight_changes,
)
from cel.metrics.base import METRICS, Metric, Noted, Score, metric
from cel.metrics.comparison import compare, pareto
from cel.metrics.evaluation import Evaluation
from cel.metrics.orchestrator import MetricsOrchestrator
from cel.metrics.references import References
from cel.metrics.scores import Scores
from cel.metrics.suites import packaged_suites

_REGISTERED = (
    data_shift,
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
    rule_counts,
    weight_changes,
)  # imported so that their metrics are known by name

__all__ = [
    "METRICS",
    "Evaluation",
    "Metric",
    "MetricsOrchestrator",
    "Noted",
    "References",
    "Score",
    "Scores",
    "compare",
    "metric",
    "packaged_suites",
    "pareto",
]


__getattr__ = lazy_names(__name__, {"Cell": "cel.metrics.base:Noted"})  # its earlier name
