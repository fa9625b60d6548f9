"""Sets of rows as packed bits, so that covering millions of rows is a few machine words."""

from __future__ import annotations

import numpy as np

__all__ = ["count", "pack", "unpack"]

_BYTES = np.array([bin(i).count("1") for i in range(256)], dtype=np.uint8)


def pack(rows: np.ndarray) -> np.ndarray:
    """Pack (..., n) bool into (..., w) uint64, padded with zeros.

    >>> pack(np.array([True, False, True]))
    array([5], dtype=uint64)
    """
    n = rows.shape[-1]
    words = max(1, -(-n // 64))
    padded = np.zeros((*rows.shape[:-1], words * 64), dtype=bool)
    padded[..., :n] = rows
    return np.packbits(padded, axis=-1, bitorder="little").view("<u8").astype(np.uint64)


def unpack(bits: np.ndarray, n: int) -> np.ndarray:
    """Undo `pack`: (..., w) uint64 to (..., n) bool."""
    as_bytes = np.ascontiguousarray(bits.astype("<u8")).view(np.uint8)
    return np.unpackbits(as_bytes, axis=-1, count=n, bitorder="little").astype(bool)


def count(bits: np.ndarray) -> np.ndarray:
    """Return the number of rows in each set, (..., w) to (...,).

    >>> int(count(pack(np.array([True, False, True]))))
    2
    """
    if hasattr(np, "bitwise_count"):
        return np.asarray(np.bitwise_count(bits).sum(-1, dtype=np.int64))
    return np.asarray(_BYTES[np.ascontiguousarray(bits).view(np.uint8)].sum(-1, dtype=np.int64))
