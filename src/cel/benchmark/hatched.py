"""The runner's side of a nursery: workers that were forked, used like those that were started.

Light to import: the command line starts a nursery before it imports what it plans a run with.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from cel.benchmark.apart import FORKS

__all__ = ["HATCHES", "Hatched", "Nursery", "worker_environment"]

POLL_S = 0.2
KILLED = -9  # exit code of a worker whose nursery could not tell it


def _hatches() -> bool:
    """Tell whether this system has what it takes; some sandboxes lack a call."""
    if not (FORKS and hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
        for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET):
            end.close()
    except OSError:
        return False
    return True


HATCHES = _hatches()


def worker_environment(device: str) -> dict[str, str]:
    """Return the environment of workers: one thread, and a GPU only for those that train on it."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    threads = dict.fromkeys(names, "1")
    # A process that has computed gradients beside a GPU, as metrics that train models do,
    # cannot give autograd to processes that it forks for methods: on cores no GPU is seen.
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    return os.environ | threads | hidden


class Hatched:
    """A forked worker, with the attributes of `subprocess.Popen` that a supervisor uses.

    Args:
        pid: of the process.
        pipes: its input, its output and its errors.
        told: descriptor on which the nursery tells how it ended.
        rest: what was told already.
    """

    def __init__(
        self, pid: int, pipes: tuple[BinaryIO, BinaryIO, BinaryIO], told: int, rest: bytes
    ) -> None:
        self.pid, self.returncode = pid, 0
        self.stdin, self.stdout, self.stderr = pipes
        self._told, self._rest, self._over = told, rest, False
        try:
            self._alive: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._alive = None

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if not self._over and (self._rest or select.select([self._told], [], [], 0)[0]):
            said = self._rest or os.read(self._told, 32)
            if said:
                self._end(int(said))
            elif not self._runs():  # the nursery is gone
                self._end(KILLED)
        return self.returncode if self._over else None

    def wait(self) -> int:
        """Wait for its end and return the exit code."""
        while self.poll() is None:
            known = [self._told] if self._alive is None else [self._told, self._alive]
            select.select(known, [], [], POLL_S)
            time.sleep(0.001)
        return self.returncode

    def _runs(self) -> bool:
        return self._alive is not None and not select.select([self._alive], [], [], 0)[0]

    def _end(self, code: int) -> None:
        self.returncode, self._over = code, True
        os.close(self._told)
        if self._alive is not None:
            os.close(self._alive)


class Nursery:
    """A process that forks workers for a run; see `cel.benchmark.nursery`.

    It begins to import as soon as it is made, and forks once it was told what for (`serve`).

    Args:
        device: of the workers.
    """

    def __init__(self, device: str) -> None:
        self.device, self._told_what_for = device, False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        module = ["-P", "-m", "cel.benchmark.nursery"]
        about = [device, str(theirs.fileno()), str(os.getpid())]
        with theirs, tempfile.TemporaryFile() as printed:
            self._process = subprocess.Popen(
                [sys.executable, *module, *about], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=printed, stderr=printed,
                env=worker_environment(device), process_group=0,
            )  # fmt: skip

    def serve(self, store: Path, methods: Iterable[str], log: Path) -> None:
        """Say what the workers are for; the first time counts.

        Args:
            store: folder of the store.
            methods: names of the methods whose libraries are imported.
            log: file that receives what the nursery itself prints, or has printed.
        """
        if self._told_what_for:
            return
        self._told_what_for = True
        about = json.dumps({"store": str(store), "methods": list(methods)}).encode()
        with open(log, "ab") as printed, contextlib.suppress(OSError):  # it is gone: `ended`
            socket.send_fds(self._socket, [about], [printed.fileno()])

    @property
    def ended(self) -> bool:
        """Whether it cannot fork any more."""
        return self._process.poll() is not None

    def hatch(self, stopped: Callable[[], bool]) -> Hatched | None:
        """Return a new worker of a nursery that was told what for.

        None if the nursery ended, or if nobody wants one any more.
        """
        theirs, ours = zip(*(_pipe(number) for number in range(4)), strict=True)
        try:
            socket.send_fds(self._socket, [b"worker"], theirs)
        except OSError:
            pass  # it is gone; nobody tells a number
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        told, said = ours[3], b""
        while b"\n" not in said and not stopped():
            if select.select([told], [], [], POLL_S)[0]:
                part = os.read(told, 32)
                if not part:
                    break
                said += part
        pid, line, rest = said.partition(b"\n")
        if not line:
            for descriptor in ours:
                os.close(descriptor)
            return None
        modes = ("wb", "rb", "rb")
        pipes = tuple(os.fdopen(d, m) for d, m in zip(ours, modes, strict=False))
        return Hatched(int(pid), pipes, told, rest)  # type: ignore[arg-type]

    def close(self) -> None:
        """Let it end; one that nobody used is not waited for."""
        self._socket.close()
        try:
            self._process.wait(timeout=1 if self._told_what_for else 0)
        except subprocess.TimeoutExpired:  # still importing
            self._process.kill()
            self._process.wait()


def _pipe(number: int) -> tuple[int, int]:
    """Return the worker's end and ours of its input (0) or of what it says."""
    reader, writer = os.pipe()
    return (reader, writer) if number == 0 else (writer, reader)
