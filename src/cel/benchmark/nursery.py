"""A process that imports everything once and then forks workers (`cel.benchmark.hatched`).

Run as `python -P -m cel.benchmark.nursery DEVICE SOCKET RUNNER`. Sixteen workers that import for
themselves keep all cores of a machine busy for many seconds; a fork takes milliseconds and shares
the memory of what was imported. Its first message says which store its workers are for, and where
it prints; what it imports before needs neither, so that it can begin while the run is planned. The
nursery trains nothing, runs no method and touches no GPU. It ends when its socket is closed; its
workers go on without it, and end with the runner.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

from cel.benchmark import worker
from cel.benchmark.early_imports import import_early

__all__ = ["main"]

MAX_MESSAGE = 2**16  # bytes


def main(arguments: list[str]) -> int:
    """Fork a worker for every message, and tell how each of them ended."""
    device, number, runner = arguments
    door = socket.socket(fileno=int(number))
    alive = os.pidfd_open(int(runner))
    _import()
    message, given, _, _ = socket.recv_fds(door, MAX_MESSAGE, 1)
    if not message:
        return 0
    _print_to(given[0])
    about = json.loads(message)
    _settle(about["methods"])
    bell, rope = os.pipe()
    os.set_blocking(rope, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(rope, warn_on_full_buffer=False)
    told: dict[int, int] = {}  # by process: where its end is told
    while True:
        ready = select.select([door.fileno(), bell], [], [])[0]
        if bell in ready:
            os.read(bell, 4096)
        _reap(told)
        if door.fileno() not in ready:
            continue
        message, given, _, _ = socket.recv_fds(door, 16, 4)
        if not message:
            return 0
        pid = os.fork()
        if pid == 0:
            close = [*given, *told.values(), door.fileno(), bell, rope]
            _become_worker(given[:3], close, [about["store"], device], alive)
        told[pid] = given[3]
        with contextlib.suppress(OSError):  # the worker itself is first as a rule
            os.setpgid(pid, pid)
        _tell(given[3], pid)
        for descriptor in given[:3]:
            os.close(descriptor)


def _import() -> None:
    """Import what all workers need."""
    from cel.benchmark import row_scores, shelf, stacked, stages  # noqa: F401
    from cel.metrics import MetricsOrchestrator  # noqa: F401
    from cel.models import fit_many, load_model  # noqa: F401

    import_early(())


def _settle(methods: Sequence[str]) -> None:
    """Import what these methods need, so that none of the workers does."""
    import_early(methods)
    gc.collect()
    gc.freeze()  # collectors of workers need not look through it, which would copy it


def _print_to(log: int) -> None:
    """Print to a log from now on; what was printed to a file before is put there first."""
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):  # a full disk; or it was no file
        os.write(log, os.pread(2, MAX_MESSAGE, 0))
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)


def _become_worker(
    pipes: Sequence[int], close: Sequence[int], arguments: list[str], runner: int
) -> NoReturn:
    """Be a worker from now on; nothing of the nursery's own code may run after it."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        for number, descriptor in enumerate(pipes):
            os.dup2(descriptor, number)
        for descriptor in close:
            os.close(descriptor)
        code = worker.main(arguments, runner)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _reap(told: dict[int, int]) -> None:
    """Tell about the workers that ended."""
    while told:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        where = told.pop(pid, None)
        if where is not None:
            _tell(where, os.waitstatus_to_exitcode(status))
            os.close(where)


def _tell(where: int, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(where, f"{number}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
