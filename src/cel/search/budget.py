"""Time and query limits that a search looks at while it runs."""

from __future__ import annotations

import math
import time

from cel.errors import BudgetExceeded

__all__ = ["Budget"]

GRACE = 0.1  # of the time: how late a search may ask the model once more
SHARE = 0.05  # of the time: what one call of the model may take
FIRST_ROWS = 64  # asked about before it is known how slow a model is


class Budget:
    """A deadline and a number of model evaluations; both may be unlimited.

    Searches look at `expired` and end by themselves. Where the limit is `strict`, models are asked
    about so few rows at once that it can be kept, and a search that goes on is ended by `spend`.

    >>> budget = Budget(max_queries=10)
    >>> budget.spend(10)
    >>> budget.expired
    True
    """

    def __init__(
        self,
        seconds: float | None = None,
        max_queries: float | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self.seconds = math.inf if seconds is None else seconds
        self.strict = strict and seconds is not None
        self.started = time.monotonic()
        self.deadline = math.inf if seconds is None else self.started + seconds
        self.max_queries = math.inf if max_queries is None else max_queries
        self.queries = 0
        self.rate: float | None = None  # rows per second of the model, as last seen

    def spend(self, rows: int) -> None:
        """Count `rows` model evaluations, of a search that still has the time for them."""
        self.queries += rows
        if self.strict and time.monotonic() > self.deadline + GRACE * self.seconds:
            raise BudgetExceeded(f"the {self.seconds:g} seconds are over")

    def set_aside(self, seconds: float) -> None:
        """Let the search end earlier, as what comes after it takes so long; at most by half."""
        if self.strict:
            self.deadline -= min(seconds, self.seconds / 2)

    def elapsed(self) -> float:
        """Return the seconds since the budget was made."""
        return time.monotonic() - self.started

    def rows_at_once(self, rate: float | None) -> float:
        """Return how many rows a model may be asked about in one call, given rows per second."""
        return FIRST_ROWS if rate is None else max(1.0, rate * SHARE * self.seconds)

    @property
    def late(self) -> bool:
        """Whether the time is over, however many evaluations are left."""
        return time.monotonic() >= self.deadline

    @property
    def expired(self) -> bool:
        """Whether a limit has been reached."""
        return self.queries >= self.max_queries or self.late
