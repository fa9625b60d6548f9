"""What a method is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.view import ModelView
from cel.protocols import Proof
from cel.search import Budget, LastOf, RowStreams
from cel.search.gradient import Accept, RowFunction
from cel.space.region import Region

__all__ = ["Answer", "Query", "TrainRows", "proof_of"]

MARGIN = 1e-4  # of a score; keeps answers clear of rounding between batch sizes


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainRows:
    """Training rows, labelled by the model that is explained.

    Attributes:
        x: (m, d) encoded rows.
        y: (m,) predicted class positions or (m, o) predicted values.
        labels: the recorded outcomes, in the same form, or None.
        reserve: (v, d) training rows kept for validation, or None; nothing is learnt from them
            but where thresholds lie.
    """

    x: Tensor
    y: Tensor
    labels: Tensor | None = None
    reserve: Tensor | None = None

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
        seen = self.snap(x, rows)
        return seen, self.model.margin(seen, self.target[rows]) >= MARGIN

    def accept_if(self, also: RowFunction) -> Accept:
        """Return `accept` with a further test (a,) of the snapped points that pass it."""

        def accept(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            seen, ok = self.accept(x, rows)
            at = ok.nonzero()[:, 0]
            if len(at):
                ok[at] = also(seen[at], rows[at])
            return seen, ok

        return accept

    def snap(self, x: Tensor, rows: Tensor) -> Tensor:
        """Move points (a, d) of some rows (a,) to the nearest that the model may be shown."""
        seen: Tensor = self._last_region(rows).snap(x)
        return seen

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
        bound: (n,) proved lower bound of the cost, NaN for none, or None; like every cost it
            counts from the rows of the query, which lie inside hard ranges.
        proof: (n,) `Proof` values of the rows, see `proof_of`, or None.
        logs: anything worth telling.
        row_logs: the same with one entry per row, such as the path to an answer, or None.
    """

    x: Tensor
    infeasible: Tensor | None = None
    sets: Tensor | None = None
    groups: Tensor | None = None
    bound: Tensor | None = None
    proof: np.ndarray | None = None
    logs: dict[str, Any] | None = None
    row_logs: dict[str, list[Any]] | None = None


def proof_of(cost: Tensor, bound: Tensor, gap: float = 0.0) -> np.ndarray:
    """Return the `Proof` value of each row, shape (n,).

    Args:
        cost: (n,) costs of the snapped, re-scored answers; NaN or infinite where there is none.
        bound: (n,) proved lower bounds of the cost; NaN where nothing is proved.
        gap: share of the bound that a cost may lie above it and still count as `within_gap`.

    >>> proof_of(torch.tensor([1.0, 1.04, 2.0]), torch.tensor([1.0, 1.0, 1.0]), 0.05).tolist()
    ['optimal', 'within_gap', 'none']
    """
    c, b = cost.detach().cpu().double().numpy(), bound.detach().cpu().double().numpy()
    out = np.full(len(c), Proof.NONE.value, dtype=object)
    known = np.isfinite(c) & np.isfinite(b)
    out[known & (c <= b * (1 + gap))] = Proof.WITHIN_GAP.value
    out[known & (c <= b * (1 + 1e-6) + 1e-9)] = Proof.OPTIMAL.value
    return out
