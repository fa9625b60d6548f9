"""Random numbers per row: a row's draws depend on the row and the seed, never on its batch-mates.

A counter-based generator: each draw is a hash of (row key, draw number, position), so it needs no
state per row, is the same on every device, and any subset of rows sees the same numbers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

__all__ = ["RowStreams", "row_keys"]

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_A = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_B = -7723592293110705685  # 0x94D049BB133111EB
_CACHE = 2**15  # numbers that are scrambled together: they stay in the cache of a core


def _shift(z: Tensor, bits: int) -> Tensor:
    """Shift right without sign extension."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    """Scramble 64-bit integers (the finaliser of SplitMix64; Steele, Lea and Flood, 2014)."""
    return _mix_in_place(z.clone())


def _mix_in_place(z: Tensor) -> Tensor:
    z.bitwise_xor_(_shift(z, 30)).mul_(_MIX_A)
    z.bitwise_xor_(_shift(z, 27)).mul_(_MIX_B)
    return z.bitwise_xor_(_shift(z, 31))


def row_keys(x: Any, seed: int) -> Tensor:
    """Return one 64-bit key per row of `x` (n, d), from its float32 content and the seed."""
    rows = torch.as_tensor(x).detach().to(torch.float32) + 0.0  # makes -0.0 and 0.0 one number
    bits = rows.contiguous().view(torch.int32)
    n, d = bits.shape
    place = _mix(torch.arange(1, d + 1, device=bits.device) * _GOLDEN)
    tall = max(1, _CACHE // max(d, 1)) if bits.device.type == "cpu" else max(n, 1)
    sums = [_mix_in_place(part + place).sum(1) for part in torch.split(bits.long(), tall)]
    return _mix(torch.cat(sums) + seed * _GOLDEN % 2**62)


class RowStreams:
    """Random streams for n rows; equal rows get equal draws.

    >>> x = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    >>> both, second = RowStreams.of(x, seed=0), RowStreams.of(x[1:], seed=0)
    >>> bool((both.uniform(3)[1] == second.uniform(3)[0]).all())
    True
    """

    def __init__(self, keys: Tensor, draw: int = 0) -> None:
        self.keys, self.draw = keys, draw

    @classmethod
    def of(cls, x: Tensor, seed: int) -> RowStreams:
        """Make streams for the rows of `x` (n, d)."""
        return cls(row_keys(x, seed).to(x.device))

    def __len__(self) -> int:
        return len(self.keys)

    def select(self, rows: Tensor) -> RowStreams:
        """Return the streams of some rows, at the same draw number."""
        return RowStreams(self.keys[rows], self.draw)

    def uniform(self, *shape: int) -> Tensor:
        """Draw numbers in [0, 1) of shape (n, *shape), float32."""
        n, size, device = len(self.keys), math.prod(shape), self.keys.device
        start = _mix(self.keys + _mix(torch.tensor(self.draw + 1) * _GOLDEN).to(device))
        self.draw += 1
        out = torch.empty(n, size, dtype=torch.float32, device=device)
        most = _CACHE if device.type == "cpu" else n * size
        wide = max(1, min(size, most))
        tall = max(1, most // wide)
        for first in range(0, size, wide):
            place = torch.arange(first, min(first + wide, size), device=device) * _GOLDEN
            for low in range(0, n, tall):
                bits = _mix_in_place(start[low : low + tall, None] + place)
                out[low : low + tall, first : first + wide] = _shift(bits, 40)
        return out.mul_(2.0**-24).reshape(n, *shape)

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normal numbers of shape (n, *shape), float32 (Box-Muller)."""
        u, v = self.uniform(*shape), self.uniform(*shape)
        return (-2 * torch.log1p(-u)).sqrt() * torch.cos(2 * math.pi * v)

    def integers(self, high: int, *shape: int) -> Tensor:
        """Draw integers in 0..high-1 of shape (n, *shape)."""
        return (self.uniform(*shape) * high).long().clamp(max=high - 1)
