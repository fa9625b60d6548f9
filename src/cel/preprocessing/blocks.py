"""One-hot blocks of different sizes as one padded table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["Blocks"]


class Blocks(nn.Module):
    """Turns b columns that form g blocks into (g, k) tables, k being the widest block, and back.

    Args:
        sizes: number of columns of each block; blocks follow one another.

    >>> blocks = Blocks((2, 1))
    >>> table = blocks.split(torch.tensor([[1.0, 2.0, 3.0]]), fill=0.0)
    >>> table.tolist()
    [[[1.0, 2.0], [3.0, 0.0]]]
    >>> blocks.flat(table).tolist()
    [[1.0, 2.0, 3.0]]
    """

    table: Tensor
    real: Tensor
    place: Tensor
    owner: Tensor

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        counts = torch.tensor(self.sizes, dtype=torch.long)
        widest = max(self.sizes, default=1)
        start = (counts.cumsum(0) - counts)[:, None]
        rank = torch.arange(widest)[None, :]
        real = rank < counts[:, None]
        self.register_buffer("table", torch.where(real, start + rank, start))
        self.register_buffer("real", real)
        self.register_buffer("place", real.flatten().nonzero()[:, 0])
        self.register_buffer("owner", torch.repeat_interleave(torch.arange(len(counts)), counts))

    def __len__(self) -> int:
        return len(self.sizes)

    def split(self, columns: Tensor, *, fill: float) -> Tensor:
        """Return columns (..., b) as (..., g, k), with `fill` in places beyond a block."""
        return torch.where(self.real, columns[..., self.table], fill)

    def flat(self, values: Tensor) -> Tensor:
        """Return (..., g, k) as columns (..., b)."""
        return values.flatten(-2)[..., self.place]
