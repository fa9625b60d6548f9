"""Training rows of several models in one place, each distinct table stored once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["RowPool"]


class RowPool:
    """Rows of `s` models on one device, taken out by index.

    Args:
        tables: for each model the tables of its rows; models that share tables share memory.
        stacked: whether batches have a leading axis of models.
    """

    def __init__(self, tables: Sequence[tuple[Tensor, ...]], stacked: bool) -> None:
        self.stacked = stacked
        self.counts = [len(t[0]) for t in tables]
        distinct: dict[tuple[int, ...], int] = {}
        self.offsets: list[int] = []
        parts: list[tuple[Tensor, ...]] = []
        end = 0
        for own in tables:
            key = (len(own[0]), *(t.data_ptr() for t in own))
            if key not in distinct:
                distinct[key], end = end, end + len(own[0])
                parts.append(own)
            self.offsets.append(distinct[key])
        single = len(parts) == 1
        columns = zip(*parts, strict=True)
        self.tensors = parts[0] if single else tuple(torch.cat(column) for column in columns)
        self.device = self.tensors[0].device

    def shuffled(self, generators: Sequence[torch.Generator], active: Sequence[int]) -> Tensor:
        """Return all rows' positions in random order, (n,) or (s, n); short models repeat rows."""
        orders = [torch.randperm(self.counts[i], generator=generators[i]) for i in active]
        return self._index(orders, active)

    def ordered(self, active: Sequence[int]) -> Tensor:
        """Return all rows' positions in their order, (n,) or (s, n); short models repeat rows."""
        return self._index([torch.arange(self.counts[i]) for i in active], active)

    def weight(self, active: Sequence[int], piece: slice) -> Tensor | None:
        """Return (s, n) ones for rows and zeros for repeated ones; None when all are rows."""
        own = [self.counts[i] for i in active]
        stop = min(piece.stop, max(own))
        if stop <= min(own):
            return None
        positions = torch.arange(piece.start, stop)
        return (positions < torch.tensor(own)[:, None]).float().to(self.device)

    def batch(self, index: Tensor) -> tuple[Tensor, ...]:
        """Return the rows at `index` of every table, (n, ...) or (s, n, ...)."""
        if index.dim() == 1:
            return tuple(t.index_select(0, index) for t in self.tensors)
        flat = index.reshape(-1)
        return tuple(
            t.index_select(0, flat).view(*index.shape, *t.shape[1:]) for t in self.tensors
        )

    def _index(self, orders: list[Tensor], active: Sequence[int]) -> Tensor:
        longest = max(len(o) for o in orders)
        rows = [
            (o if len(o) == longest else torch.cat([o, o[: longest - len(o)]])) + self.offsets[i]
            for o, i in zip(orders, active, strict=True)
        ]
        index = torch.stack(rows) if self.stacked else rows[0]
        return index.to(self.device)
