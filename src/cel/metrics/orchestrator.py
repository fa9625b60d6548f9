"""Compute many metrics of one result, sharing what is expensive."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from cel.metrics.evaluation import Evaluation
from cel.metrics.references import References
from cel.metrics.refusals import check
from cel.metrics.scores import Scores
from cel.metrics.suites import Choice, Entry, choose, read_suite
from cel.result import EvaluationContext, ExplanationResult

__all__ = ["MetricsOrchestrator"]


class MetricsOrchestrator:
    """Scores results with a suite of metrics.

    Outlier detectors, thresholds, retrained models and other references are fitted at the first
    use and shared by all results that were made with the same reference rows, so that one
    orchestrator serves all methods of a fold.

    Args:
        conf_path: a packaged suite ("default.yaml", "full.yaml", "density.yaml", "outliers.yaml",
            "fairness.yaml", "robustness.yaml") or a YAML file of your own.
        metrics: names or `{name: settings}`, instead of a file.
        references: a store to share with other orchestrators.
        check: whether to refuse results whose rows, space or predictions do not fit the context.

    >>> from cel.metrics.example import example
    >>> scores = MetricsOrchestrator(metrics=["coverage", "l2"]).compute(example())
    >>> round(scores["coverage"], 3)
    0.778
    """

    def __init__(
        self,
        conf_path: str | os.PathLike[str] = "default.yaml",
        *,
        metrics: Sequence[Entry] | None = None,
        references: References | None = None,
        check: bool = True,
    ) -> None:
        self.conf_path, self.metrics, self.check = conf_path, metrics, check
        self.references = References() if references is None else references

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """The metrics to compute; wrong names and settings are found here."""
        if self.metrics is not None:
            return choose(self.metrics)
        return read_suite(self.conf_path)

    def compute(
        self,
        result: ExplanationResult,
        context: EvaluationContext | None = None,
        *,
        method: Any = None,
        labels: Any = None,
    ) -> Scores:
        """Return one score per metric; what cannot be computed is NaN with a reason.

        Args:
            result: what a method answered.
            context: model, density and reference rows; by default those of the result.
            method: the fitted method, for metrics that ask it again.
            labels: recorded outcomes of the training rows, for metrics that retrain the model.
        """
        given = context or result.context or EvaluationContext()
        evaluation = Evaluation(
            result=result,
            context=given,
            references=self.references,
            method=method if method is not None else getattr(given, "method", None),
            labels=None if labels is None else np.asarray(labels),
        )
        choices = self.choices
        if self.check:
            check(evaluation)
        return Scores(
            scores=tuple(c.metric.score(evaluation, name=c.name, **c.params) for c in choices),
            source_ids=result.source_ids,
            status=result.status,
            method=result.method,
        )

    def __repr__(self) -> str:
        return f"MetricsOrchestrator({len(self.choices)} metrics)"
