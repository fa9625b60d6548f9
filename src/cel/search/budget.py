"""Time and query limits that a search looks at while it runs."""

from __future__ import annotations

import math
import time

__all__ = ["Budget"]


class Budget:
    """A deadline and a number of model evaluations; both may be unlimited.

    >>> budget = Budget(max_queries=10)
    >>> budget.spend(10)
    >>> budget.expired
    True
    """

    def __init__(self, seconds: float | None = None, max_queries: float | None = None) -> None:
        self.deadline = math.inf if seconds is None else time.monotonic() + seconds
        self.max_queries = math.inf if max_queries is None else max_queries
        self.queries = 0

    def spend(self, rows: int) -> None:
        """Count `rows` model evaluations."""
        self.queries += rows

    @property
    def late(self) -> bool:
        """Whether the time is over, however many evaluations are left."""
        return time.monotonic() >= self.deadline

    @property
    def expired(self) -> bool:
        """Whether a limit has been reached."""
        return self.queries >= self.max_queries or self.late
