"""Few processes share a GPU at once; the others stay on the CPU, so that no worker waits."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["FASTER", "PLACES", "STACKS", "gpu_place", "stack_place"]

PLACES = 4  # processes that explain on a device at once; more of them only take turns
STACKS = 4
POLL_S = 0.2
"""Stacks that train on a device at once. Ten flows of HELOC take 45 s alone on an H200, and took
189 s beside fifteen other stacks: about four fill the device. With more of them all end late, and
the cores have nothing to explain meanwhile."""
FASTER: Mapping[str, float] = {"cchvae": 10.8, "dice": 3.3, "dice_closest": 3.3}
"""Time of one core over that of an H200 for 250 rows, by name of a line; the two DiCE lines are
one search. Searches of many small steps are slower there (0.56 to 0.87) and are not listed."""


@contextmanager
def gpu_place(folder: Path, device: str) -> Iterator[bool]:
    """Hold one of the places of this machine on a device; tell whether one was free.

    Args:
        folder: where processes of the run leave their marks; a place is free again when its
            process ends, however it ends.
        device: such as "cuda" or "cuda:1".
    """
    held = _one_of(folder, device, PLACES)
    try:
        yield held is not None
    finally:
        if held is not None:
            os.close(held)


@contextmanager
def stack_place(folder: Path, device: str) -> Iterator[None]:
    """Wait for one of the places of this machine for stacks on a device, and hold it.

    Args:
        folder: where processes of the run leave their marks.
        device: such as "cuda" or "cuda:1".
    """
    while (held := _one_of(folder, f"{device}.stack", STACKS)) is None:
        time.sleep(POLL_S)
    try:
        yield
    finally:
        os.close(held)


def _one_of(folder: Path, kind: str, count: int) -> int | None:
    """Hold the first free one of some places of this machine; None if all are taken."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{platform.node()}.{kind.replace(':', '.')}"
    paths = (folder / f"{stem}.{number}" for number in range(count))
    return next((held for path in paths if (held := _held(path)) is not None), None)


def _held(path: Path) -> int | None:
    """Open and lock a file; None if another process has it."""
    import fcntl  # not on every system; neither are forked workers, which alone come here

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
