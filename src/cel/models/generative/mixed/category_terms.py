"""Log-probabilities of the categories that rows have, and of no others.

`CategoricalNet.log_probs` fills a padded table of all categories of all variables. A row has one
category of each (two neighbours, between points of a grid), so most of that table is multiplied
by zero afterwards. Here the softmax alone sees every category; what follows is computed for the
categories that count. Each number is made by the same operations in the same order as in the
table: on one thread of a CPU values and gradients are equal to the byte.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cel.preprocessing.blocks import Blocks

__all__ = ["CategoryTerms", "Terms"]

VECTOR = {"AVX512": 16, "AVX2": 8}  # floats that the units known here work on at once
LANES = max(VECTOR.values())  # tables of so many columns are summed in one order by all of them
ROUND = 2 * LANES  # a multiple of the floats in one round of torch's vectorised loops
FILL = torch.finfo(torch.float32).min  # the logit of a place without category


class CategoryTerms:
    """sum_i log[(1 - e) P(c_i) + e / k_i] of rows, from the logits of all categories.

    Args:
        blocks: the variables and their categories.
        log_uniform: (g, 1), -log k_i.
        floor: share e of the uniform law in each factor.
    """

    def __init__(self, blocks: Blocks, log_uniform: Tensor, floor: float) -> None:
        self.floor, self.widest, self.count = floor, blocks.table.shape[1], len(blocks)
        self.vector = VECTOR.get(torch.backends.cpu.get_cpu_capability(), 0)
        owner = blocks.owner
        self.rank = torch.arange(len(owner)) - blocks.table[:, 0].index_select(0, owner)
        self.cell = owner * self.widest + self.rank
        self.uniform = (log_uniform[:, 0] + math.log(floor or 1.0)).index_select(0, owner)
        narrow = self.widest < self.vector
        self.layout: _Layout = _Across(blocks, self.rank) if narrow else _Along(blocks, self.rank)

    def serves(self, onehot: Tensor) -> bool:
        """Tell whether these rows can be asked here, to the byte as in the table."""
        plain = onehot.device.type == "cpu" and onehot.dtype == torch.float32
        known = self.floor > 0 and self.vector > 0 and min(self.count, self.widest) > 1
        return plain and known and not onehot.requires_grad

    def __call__(self, logits: Tensor, onehot: Tensor) -> Tensor:
        """Return log P (..., n) of rows (..., n, D), differentiable once towards the logits."""
        rows: Tensor = _Terms.apply(  # type: ignore[no-untyped-call]
            logits.reshape(-1, logits.shape[-1]), onehot.reshape(-1, onehot.shape[-1]), self
        )
        return rows.view(onehot.shape[:-1])

    def table_shape(self, n: int) -> tuple[int, int, int]:
        """Return the shape of a table of all categories of `n` rows."""
        return n, self.count, self.widest

    def mixed(self, log_p: Tensor, uniform: Tensor, rank: Tensor) -> Tensor:
        """Return log(p + u) of (m,) numbers, rounded as for their places in a row of the table.

        Torch takes whole rounds of a row by vectors and what is left one by one, with other
        functions, which round otherwise.
        """
        whole = self.widest // (2 * self.vector) * (2 * self.vector)
        if not whole:
            return _one_by_one(log_p, uniform)
        spare = (0, -len(log_p) % ROUND)
        wide = torch.logaddexp(*(torch.nn.functional.pad(t, spare) for t in (log_p, uniform)))
        left = (rank >= whole).nonzero()[:, 0]
        out = wide[: len(log_p)]
        return out.index_copy_(0, left, _one_by_one(log_p[left], uniform[left]))


class _Terms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, onehot: Tensor, terms: CategoryTerms) -> Tensor:
        table = logits.new_zeros(terms.table_shape(len(logits)))
        ctx.terms = own = Terms(terms, logits, onehot, table)
        return own.rows.clone()  # `rows` itself would hold its node, which holds `rows`

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor, None, None]:
        return ctx.terms.backward(by), None, None


class Terms:
    """The log-probabilities `rows` (n,) of rows, and what their gradient needs.

    Args:
        terms: how they are computed.
        logits: (n, D) of all categories.
        onehot: (n, D) rows.
        table: zeros of shape `table_shape(n)`, which are given back as zeros.
    """

    def __init__(
        self, terms: CategoryTerms, logits: Tensor, onehot: Tensor, table: Tensor
    ) -> None:
        n, log_p = len(logits), terms.layout.log_softmax(logits)
        held = torch.from_numpy(np.flatnonzero((onehot != 0).numpy()))
        row = held.div(onehot.shape[1], rounding_mode="floor")
        column = held - row * onehot.shape[1]
        weight = onehot.reshape(-1).index_select(0, held)
        place = terms.layout.places(row, column, n)
        uniform = terms.uniform.index_select(0, column)
        inner = log_p.index_select(0, place).add_(math.log1p(-terms.floor))
        value = terms.mixed(inner, uniform, terms.rank.index_select(0, column))
        cell = terms.cell.index_select(0, column).add_(row * (terms.count * terms.widest))
        table.view(-1).index_copy_(0, cell, weight * value)
        self.layout, self.rows = terms.layout, table.sum((-2, -1))
        table.view(-1).index_fill_(0, cell, 0)
        self.saved = log_p, row, place, weight, uniform.sub_(inner)

    def backward(self, by: Tensor) -> Tensor:
        """Return the gradient (n, D) of the logits from that of the rows (n,)."""
        log_p, row, place, weight, gap = self.saved
        by_value = by.index_select(0, row).mul_(weight).div_(gap.exp().add_(1))
        flat = torch.zeros_like(log_p).index_copy_(0, place, by_value)
        return self.layout.slope(flat, log_p, len(by))


class _Layout(Protocol):
    """Where the softmax has the categories of n rows: a flat table."""

    def places(self, row: Tensor, column: Tensor, n: int) -> Tensor:
        """Return where the category in a column (m,) of a row (m,) is."""

    def log_softmax(self, logits: Tensor) -> Tensor:
        """Return the log-probabilities of the categories of logits (n, D)."""

    def slope(self, by: Tensor, log_p: Tensor, n: int) -> Tensor:
        """Return the gradient (n, D) of the logits from that of the log-probabilities."""


class _Along:
    """Blocks as rows of tables, one table for each width, padded to whole vectors.

    A softmax over such a row adds in the same order as over a row of the widest block, of which
    the rest adds zeros.
    """

    def __init__(self, blocks: Blocks, rank: Tensor) -> None:
        widest, sizes = blocks.table.shape[1], blocks.sizes
        starts = blocks.table[:, 0].tolist()
        widths = [min(widest, -(-size // LANES) * LANES) for size in sizes]
        self.groups: list[tuple[int, list[tuple[int, int]]]] = []
        base, step, shift = (torch.zeros(len(sizes), dtype=torch.long) for _ in range(3))
        self.width = 0
        for width in sorted(set(widths)):
            own = [i for i, w in enumerate(widths) if w == width]
            self.groups.append((width, [(starts[i], sizes[i]) for i in own]))
            base[own], step[own] = self.width, width * len(own)
            shift[own] = width * torch.arange(len(own))
            self.width += width * len(own)
        self.base, self.step, self.shift = (t[blocks.owner] for t in (base, step, shift))
        self.shift += rank

    def places(self, row: Tensor, column: Tensor, n: int) -> Tensor:
        base, step = (t.index_select(0, column) for t in (self.base, self.step))
        return self.shift.index_select(0, column).add_(base.mul_(n)).add_(step.mul_(row))

    def log_softmax(self, logits: Tensor) -> Tensor:
        n = len(logits)
        filled = logits.new_full((n * self.width,), FILL)
        out = torch.empty_like(filled)
        tables = zip(self._tables(filled, n), self._tables(out, n), self.groups, strict=True)
        for table, result, (_, own) in tables:
            for k, (start, size) in enumerate(own):
                table[:, k, :size] = logits[:, start : start + size]
            torch.log_softmax(table, -1, out=result)
        return out

    def slope(self, by: Tensor, log_p: Tensor, n: int) -> Tensor:
        out = by.new_empty(n, len(self.base))
        tables = zip(self._tables(by, n), self._tables(log_p, n), self.groups, strict=True)
        for grad, result, (_, own) in tables:
            slope = torch._log_softmax_backward_data(grad, result, -1, torch.float32)
            for k, (start, size) in enumerate(own):
                out[:, start : start + size] = slope[:, k, :size]
        return out

    def _tables(self, flat: Tensor, n: int) -> list[Tensor]:
        out, start = [], 0
        for width, own in self.groups:
            size = n * width * len(own)
            out.append(flat[start : start + size].view(n, len(own), width))
            start += size
        return out


class _Across:
    """Blocks as columns of one table, side by side, padded to whole rounds.

    A row that is shorter than a vector is summed one by one, and so are columns, but many at once.
    """

    def __init__(self, blocks: Blocks, rank: Tensor) -> None:
        self.sizes, self.starts = blocks.sizes, blocks.table[:, 0].tolist()
        self.widest, self.owner, self.rank = blocks.table.shape[1], blocks.owner.clone(), rank

    def places(self, row: Tensor, column: Tensor, n: int) -> Tensor:
        place = self.rank.index_select(0, column).mul_(self._columns(n))
        return place.add_(self.owner.index_select(0, column).mul_(n)).add_(row)

    def log_softmax(self, logits: Tensor) -> Tensor:
        n = len(logits)
        table = logits.new_full((self.widest, self._columns(n)), FILL)
        for i, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True)):
            table[:size, i * n : (i + 1) * n] = logits[:, start : start + size].T
        return torch.log_softmax(table, 0).view(-1)

    def slope(self, by: Tensor, log_p: Tensor, n: int) -> Tensor:
        shape = (self.widest, self._columns(n))
        slope = torch._log_softmax_backward_data(
            by.view(shape), log_p.view(shape), 0, torch.float32
        )
        out = by.new_empty(n, len(self.rank))
        for i, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True)):
            out[:, start : start + size] = slope[:size, i * n : (i + 1) * n].T
        return out

    def _columns(self, n: int) -> int:
        return -(-n * len(self.sizes) // ROUND) * ROUND


def _one_by_one(a: Tensor, b: Tensor) -> Tensor:
    """Return logaddexp(a, b) of (m,) numbers by the loop for numbers that do not lie in a row."""
    pair = torch.stack((a, b), 1)
    return torch.logaddexp(pair[:, 0], pair[:, 1])
