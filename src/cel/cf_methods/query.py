"""What a method is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cel.cf_methods.view import ModelView
from cel.search import Budget, LastOf, RowStreams
from cel.space.region import Region

__all__ = ["Answer", "Query", "TrainRows"]

MARGIN = 1e-4  # of a score; keeps answers clear of rounding between batch sizes


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainRows:
    """Training rows, labelled by the model that is explained.

    Attributes:
        x: (m, d) encoded rows.
        y: (m,) predicted class positions or (m, o) predicted values.
        labels: the recorded outcomes, in the same form, or None.
    """

    x: Tensor
    y: Tensor
    labels: Tensor | None = None

    def of_class(self, position: int) -> Tensor:
        """Return the rows that the model puts into a class."""
        return self.x[self.y == position]


@dataclass(frozen=True, kw_only=True, eq=False)
class Query:
    """Rows to explain. Row numbers in `accept` and `project` are positions in this query.

    Attributes:
        x: (n, d) encoded rows.
        target: (n,) wanted class positions, or (n, o) wanted values.
        region: the feasible set of each row.
        model: the model that is explained.
        rng: one random stream per row.
        budget: time and query limits.
    """

    x: Tensor
    target: Tensor
    region: Region
    model: ModelView
    rng: RowStreams
    budget: Budget

    def __len__(self) -> int:
        return len(self.x)

    def rows(self) -> Tensor:
        """Return all row numbers."""
        return torch.arange(len(self.x), device=self.x.device)

    def select(self, rows: Tensor) -> Query:
        """Return the query of some rows; row numbers may repeat."""
        return replace(
            self,
            x=self.x[rows],
            target=self.target[rows],
            region=self.region.select(rows),
            rng=self.rng.select(rows),
        )

    def project(self, x: Tensor, rows: Tensor) -> Tensor:
        """Project points (a, d) onto the box and simplices of the given rows."""
        out: Tensor = self._last_region(rows).project(x)
        return out

    def accept(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Snap points (a, d) and tell whether they have the wanted outcome with a small margin."""
        seen: Tensor = self._last_region(rows).snap(x)
        return seen, self.model.margin(seen, self.target[rows]) >= MARGIN

    @cached_property
    def _last_region(self) -> LastOf[Region]:
        return LastOf(self._region)

    def _region(self, rows: Tensor) -> Region:
        whole = len(rows) == len(self.x) and bool((rows[1:] > rows[:-1]).all())
        return self.region if whole else self.region.select(rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """Candidates for the rows of a query.

    Attributes:
        x: (n, d), NaN where the method has none.
        infeasible: (n,) bool, rows for which it is *proved* that none exists, or None.
        sets: (n, k, d) several candidates per row, NaN padded, or None; `x` is one of them.
        groups: (n,) unit (rule, direction, action, box) that answered, -1 for none, or None.
        logs: anything worth telling.
    """

    x: Tensor
    infeasible: Tensor | None = None
    sets: Tensor | None = None
    groups: Tensor | None = None
    logs: dict[str, Any] | None = None
