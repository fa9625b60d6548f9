"""Settings that every method has, and what the template asks of a method."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypedDict

from cel.protocols import Predictor
from cel.space import FeatureSpace

__all__ = ["Asked", "Options"]


class Asked(Protocol):
    """What reading rows and verifying answers need to know about a method."""

    name: ClassVar[str]
    takes_intervals: ClassVar[bool]
    infeasible_means: ClassVar[str]
    model: Predictor
    space: FeatureSpace | None
    tolerance: float

    @property
    def keeps_class(self) -> bool:
        """Whether every row is to keep its predicted class."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name."""
        ...


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
