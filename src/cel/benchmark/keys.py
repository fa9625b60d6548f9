"""Content-addressed names and the seeds that follow from them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

__all__ = ["canonical", "key_of", "seed_of"]


def canonical(value: Any) -> str:
    """Return JSON text that does not depend on the order of keys.

    >>> canonical({"b": 1, "a": (2, 3)})
    '{"a":[2,3],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def key_of(*parts: Any) -> str:
    """Return a 32-digit name of the given values.

    >>> key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    True
    """
    return hashlib.blake2b(canonical(parts).encode(), digest_size=16).hexdigest()


def seed_of(key: str, purpose: str) -> int:
    """Return a seed in 0..2**31-1 that depends on a key and on nothing else."""
    digest = hashlib.blake2b(f"{key}:{purpose}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1
