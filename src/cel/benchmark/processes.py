"""Pipes, process trees and their memory: what the supervisor and its workers share."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = [
    "Lines",
    "adopt_orphans",
    "descendants",
    "die_with",
    "end_tree",
    "ending",
    "event_of",
    "keep_memory",
    "tree_mb",
    "usable_cores",
]

MAX_LINE = 1 << 20  # bytes of one event; texts are cut long before
_SUBREAPER, _DEATH_SIGNAL = 36, 1  # of Linux' prctl
_MAPPED_BLOCKS, _TRIM_ABOVE = -4, -1  # M_MMAP_MAX and M_TRIM_THRESHOLD of glibc's mallopt


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return how many processes can compute at once: cores of this process, less in a container.

    Args:
        quota: file in which Linux keeps the share of a container: "max", or time per period.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError, IndexError, ZeroDivisionError):
        share, period = quota.read_text().split()[:2]
        cores = min(cores, math.ceil(int(share) / int(period)))
    return max(cores, 1)


class Lines:
    """Complete lines from a descriptor, without ever waiting longer than asked.

    It reads the descriptor itself: a buffered `readline` may hold back lines that `select` cannot
    see. A line of more than `MAX_LINE` bytes is given in pieces, which no reader takes for events.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._parts, self._size, self.ended = descriptor, [b""], 0, False

    def ready(self, seconds: float) -> list[bytes]:
        """Return the lines that arrived, waiting at most `seconds` for the first."""
        readable, _, _ = select.select([self._descriptor], [], [], seconds)
        if not readable:
            return []
        data = os.read(self._descriptor, 2**16)
        self.ended = not data
        self._parts.append(data)
        self._size += len(data)
        if b"\n" not in data and self._size <= MAX_LINE:
            return []
        *lines, rest = b"".join(self._parts).split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], b""
        self._parts, self._size = [rest], len(rest)
        return lines


def event_of(line: bytes, kinds: dict[str, tuple[str, ...]]) -> dict[str, Any] | None:
    """Return the event on a line, or None if it is none of `kinds` with the fields they need."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("event") not in kinds:
        return None
    return event if all(name in event for name in kinds[event["event"]]) else None


def ending(code: int) -> str:
    """Return in words how a process ended, given its exit code (negative: a signal).

    >>> ending(-9), ending(3)
    ('killed by SIGKILL', 'exit code 3')
    """
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Let processes whose parents ended become children of this one, so that they are found."""
    _prctl(_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """End this process as soon as its parent ends."""
    _prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_memory() -> None:
    """Let this process keep what it frees, as far as the C library can be told.

    Searches make and drop large tables in every step. Those of 32 MB and more would come from the
    system each time, which clears them page by page.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        for option, value in ((_MAPPED_BLOCKS, 0), (_TRIM_ABOVE, -1)):
            library.mallopt(option, value)


def descendants(pid: int) -> list[int]:
    """Return the processes below one, children before grandchildren; none where unknown."""
    below: list[int] = []
    waiting = [pid]
    while waiting:
        found = list(_children(waiting.pop()))
        below += found
        waiting += found
    return below


def _children(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            yield from map(int, path.read_text().split())


def end_tree(pid: int, *, itself: bool = True) -> None:
    """Kill a process and all that it started; `itself=False` spares the process."""
    while True:
        below = descendants(pid)
        for number in ([pid] if itself else []) + below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        if itself or not below:
            return
        _reap()


def _reap() -> None:
    """Take leave of the children that ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def tree_mb(pid: int, enough: float) -> float:
    """Return the memory of a process and all that it started; 0 where the system does not tell.

    Pages that processes share are counted once. That is slow to find out, so it is done only where
    the plain sum is above `enough`.
    """
    pids = [pid, *descendants(pid)]
    plain = sum(map(_resident_mb, pids))
    return plain if plain <= enough else sum(map(_proportional_mb, pids))


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _proportional_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, IndexError, ValueError, StopIteration):
        return _resident_mb(pid)
