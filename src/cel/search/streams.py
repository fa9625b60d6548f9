"""Random numbers per row: a row's draws depend on the row and the seed, never on its batch-mates.

A counter-based generator: each draw is a hash of (row key, draw number, position), so it needs no
state per row, is the same on every device, and any subset of rows sees the same numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["RowStreams", "content_keys", "row_keys"]

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_A = 0xBF58476D1CE4E5B9
_MIX_B = 0x94D049BB133111EB
_WORD = 2**64
_CACHE = 2**15  # numbers that are scrambled together: they stay in the cache of a core
Words = npt.NDArray[np.uint64]


def _signed(z: int) -> int:
    """Return a number below 2^64 as torch writes its bits.

    >>> _signed(2**64 - 1)
    -1
    """
    return z - _WORD if z >= _WORD // 2 else z


def _mix_number(z: int) -> int:
    """Scramble a 64-bit integer (the finaliser of SplitMix64; Steele, Lea and Flood, 2014)."""
    z %= _WORD
    z = (z ^ z >> 30) * _MIX_A % _WORD
    z = (z ^ z >> 27) * _MIX_B % _WORD
    return z ^ z >> 31


def _mix_words(z: Words) -> Words:
    """Scramble an array in place; on small batches NumPy takes half the time of torch."""
    part = z >> np.uint64(30)
    z ^= part
    z *= np.uint64(_MIX_A)
    np.right_shift(z, np.uint64(27), out=part)
    z ^= part
    z *= np.uint64(_MIX_B)
    np.right_shift(z, np.uint64(31), out=part)
    z ^= part
    return z


def _shift(z: Tensor, bits: int) -> Tensor:
    """Shift right without sign extension."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    """Scramble a tensor in place, on any device."""
    z.bitwise_xor_(_shift(z, 30)).mul_(_signed(_MIX_A))
    z.bitwise_xor_(_shift(z, 27)).mul_(_signed(_MIX_B))
    return z.bitwise_xor_(_shift(z, 31))


def row_keys(x: Any, seed: int) -> Tensor:
    """Return one 64-bit key per row of `x` (n, d), from its float32 content and the seed."""
    rows = torch.as_tensor(x).detach().to(torch.float32) + 0.0  # makes -0.0 and 0.0 one number
    bits = rows.contiguous().view(torch.int32)
    n, d = bits.shape
    salt = seed * _signed(_GOLDEN) % 2**62
    if bits.device.type != "cpu":
        place = _mix(torch.arange(1, d + 1, device=bits.device) * _signed(_GOLDEN))
        return _mix(_mix(bits.long() + place).sum(1) + salt)
    where = _mix_words(np.arange(1, d + 1, dtype=np.uint64) * np.uint64(_GOLDEN))
    sums, tall = np.empty(n, dtype=np.uint64), max(1, _CACHE // max(d, 1))
    for low in range(0, n, tall):
        some = bits[low : low + tall].numpy().astype(np.int64).view(np.uint64)
        some += where
        _mix_words(some).sum(1, out=sums[low : low + tall])
    sums += np.uint64(salt)
    return torch.from_numpy(_mix_words(sums).view(np.int64))


def content_keys(x: Tensor) -> Tensor:
    """Return one 64-bit key per row of `x` (n, d), to tell which rows are equal in float32.

    Half the work of `row_keys`: two numbers are scrambled at a time.

    >>> a, b = content_keys(torch.tensor([[0.0, 1.0, 2.0], [-0.0, 1.0, 2.0]])).tolist()
    >>> a == b
    True
    """
    if x.device.type != "cpu":
        return row_keys(x, 0)
    (n, d), sums = x.shape, np.empty(len(x), dtype=np.uint64)
    pairs, tall = (d + 1) // 2, max(1, 2 * _CACHE // max(d, 1))
    where = _mix_words(np.arange(1, pairs + 1, dtype=np.uint64) * np.uint64(_GOLDEN))
    held = np.zeros((min(n, tall), 2 * pairs), dtype=np.float32)
    for low in range(0, n, tall):
        part = x[low : low + tall].detach().numpy()
        some = held[: len(part)]
        np.add(part, np.float32(0), out=some[:, :d], casting="same_kind")  # -0.0 becomes 0.0
        _mix_words(some.view(np.uint64) + where).sum(1, out=sums[low : low + tall])
    return torch.from_numpy(sums.view(np.int64))


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
        n, size = len(self.keys), math.prod(shape)
        salt = _mix_number((self.draw + 1) * _GOLDEN)
        self.draw += 1
        out = torch.empty(n, size, dtype=torch.float32, device=self.keys.device)
        if self.keys.device.type == "cpu":
            _fill(out.numpy(), self.keys.numpy().view(np.uint64), salt)
        else:
            place = torch.arange(size, device=out.device) * _signed(_GOLDEN)
            bits = _mix(_mix(self.keys + _signed(salt))[:, None] + place)
            out.copy_(_shift(bits, 40))
        return out.mul_(2.0**-24).reshape(n, *shape)

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normal numbers of shape (n, *shape), float32 (Box-Muller)."""
        u, v = self.uniform(*shape), self.uniform(*shape)
        return (-2 * torch.log1p(-u)).sqrt() * torch.cos(2 * math.pi * v)

    def integers(self, high: int, *shape: int) -> Tensor:
        """Draw integers in 0..high-1 of shape (n, *shape)."""
        return (self.uniform(*shape) * high).long().clamp(max=high - 1)


def _fill(out: npt.NDArray[np.float32], keys: Words, salt: int) -> None:
    """Write the upper 24 bits of the draws of keys (n,) into `out` (n, size)."""
    start = _mix_words(keys + np.uint64(salt))[:, None]
    n, size = out.shape
    wide = max(1, min(size, _CACHE))
    tall = max(1, _CACHE // wide)
    for first in range(0, size, wide):
        place = np.arange(first, min(first + wide, size), dtype=np.uint64) * np.uint64(_GOLDEN)
        for low in range(0, n, tall):
            bits = _mix_words(start[low : low + tall] + place)
            bits >>= np.uint64(40)
            out[low : low + tall, first : first + wide] = bits.view(np.int64)
