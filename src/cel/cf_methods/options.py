"""Settings that every method has."""

from __future__ import annotations

from typing import TypedDict

from cel.space import FeatureSpace

__all__ = ["Options"]


class Options(TypedDict, total=False):
    """Settings that every method has.

    Attributes:
        space: the encoded features; by default those of the model or of the training data.
        random_state: seed of all random streams.
        time_limit: seconds for one call of `explain`; unanswered rows become `timeout`.
        max_queries: model evaluations per row.
        batch_size: rows solved together; by default as many as fit in memory.
        tolerance: largest |prediction - target| of a regression answer, in units of the range.
        progress: show a progress bar.
    """

    space: FeatureSpace | None
    random_state: int
    time_limit: float | None
    max_queries: int | None
    batch_size: int | None
    tolerance: float
    progress: bool
