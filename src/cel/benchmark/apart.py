"""Method code runs apart: in a process forked from a worker that never runs any itself.

What a method does to training rows, to the model, to modules, settings or the working directory
ends with its process. The worker loads rows and models once, forks for every method, and scores
the stored result itself; forking shares all memory, so it costs milliseconds. The worker must
neither train nor touch CUDA before it forks, so training runs apart, too.

Where the system cannot fork safely (`CEL_NO_FORK=1`, or not Linux) the job runs in the worker; it
says what it altered, and the worker then makes way for a fresh one.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from cel.benchmark.processes import (
    Lines,
    die_with,
    end_tree,
    ending,
    event_of,
    keep_memory,
)
from cel.errors import MissingInputError, UnsupportedError

__all__ = ["FORKS", "Emit", "Ending", "Job", "apart", "failure", "shortened"]

Emit = Callable[[dict[str, Any]], None]
Job = Callable[[Emit], None]

FORKS = sys.platform == "linux" and os.environ.get("CEL_NO_FORK", "") in ("", "0")
MAX_REASON, MAX_TRACE = 2_000, 20_000
_ENDS = {"ok": (), "skip": ("reason",), "fail": ("reason", "traceback")}
_SAYS = {"start": ("seconds",), "stage": ("stage",), "deadline": ("seconds",),
         "altered": ("what",), "stacked": ("label",)}  # fmt: skip


@dataclass(frozen=True)
class Ending:
    """How a job ended.

    Attributes:
        event: its last word: `ok`, `skip` with a reason, or `fail` with a reason and a traceback.
        killed: it was ended by a signal, so that another attempt may do better.
        altered: it changed something that others use.
    """

    event: dict[str, Any]
    killed: bool = False
    altered: bool = False


def shortened(text: str, limit: int) -> str:
    """Return a text of at most about `limit` characters, with its beginning and its end.

    >>> shortened("abcdefghij", 4)
    'ab ... (6 characters left out) ... ij'
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]} ... ({left_out} characters left out) ... {text[-half:]}"


def failure(error: BaseException) -> dict[str, Any]:
    """Return the event of an error: one line, and the traceback."""
    try:
        reason = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the text of a stranger's error may itself raise
        reason = type(error).__name__
    trace = shortened("".join(traceback.format_exception(error)), MAX_TRACE)
    return {"event": "fail", "reason": shortened(reason, MAX_REASON), "traceback": trace}


def apart(job: Job, listen: Emit, close: Sequence[int] = ()) -> Ending:
    """Run a job in a process of its own and wait for it; what it says is passed to `listen`.

    Args:
        job: called with a function that says things.
        listen: receives what the job says while it runs.
        close: descriptors that the job has no business with.
    """
    if not FORKS:
        return _here(job, listen)
    reader, writer = os.pipe()
    parent = os.getpid()
    gc.freeze()  # the job's collector would look through, and so copy, all that is here already
    pid = os.fork()
    if pid == 0:
        _forked(job, writer, (reader, *close), parent)
    gc.unfreeze()
    os.close(writer)
    try:
        return _follow(pid, reader, listen)
    finally:
        os.close(reader)
        end_tree(os.getpid(), itself=False)


def _here(job: Job, listen: Emit) -> Ending:
    altered = []

    def say(event: dict[str, Any]) -> None:
        if event["event"] == "altered":
            altered.append(event)
        listen(event)

    return Ending(_done(job, say), altered=bool(altered))


def _done(job: Job, say: Emit) -> dict[str, Any]:
    try:
        job(say)
    except (UnsupportedError, MissingInputError) as refusal:
        return {"event": "skip", "reason": shortened(str(refusal), MAX_REASON)}
    except BaseException as error:  # noqa: BLE001 - any failure of a method becomes a row, exits too
        return failure(error)
    return {"event": "ok"}


def _forked(job: Job, writer: int, close: Sequence[int], parent: int) -> NoReturn:
    """Do the job and end; nothing of the worker's own code may run after it."""
    code = 1
    try:
        die_with(parent)
        keep_memory()
        for descriptor in close:
            os.close(descriptor)

        def say(event: dict[str, Any]) -> None:
            data = json.dumps(event, default=str).encode() + b"\n"
            while data:
                data = data[os.write(writer, data) :]

        say(_done(job, say))
        sys.stdout.flush()
        sys.stderr.flush()
        code = 0
    finally:
        os._exit(code)


def _follow(pid: int, reader: int, listen: Emit) -> Ending:
    lines, last, status = Lines(reader), None, None
    while not lines.ended:
        for line in lines.ready(0.2):
            event = event_of(line, _ENDS | _SAYS)
            if event is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return Ending(_garbled(line))
            if event["event"] in _ENDS:
                last = event
            else:
                listen(event)
        if status is None and (found := os.waitpid(pid, os.WNOHANG))[0]:
            status = found[1]
        elif status is not None:  # it is gone, but a child of it holds the pipe
            break
    if status is None:
        status = os.waitpid(pid, 0)[1]
    if last is not None:
        return Ending(last)
    code = os.waitstatus_to_exitcode(status)
    reason = f"its process ended without a word ({ending(code)})"
    event = {"event": "fail", "reason": reason, "traceback": ""}
    if code >= 0:
        return Ending(event)
    event |= {"status": "died", "reason": f"{reason[:-1]}; perhaps the memory ran out)"}
    return Ending(event, killed=True)


def _garbled(line: bytes) -> dict[str, Any]:
    shown = line[:80].decode("utf8", "backslashreplace")
    reason = f"something wrote into the channel of its worker: {shown!r}"
    return {"event": "fail", "reason": reason, "traceback": ""}
