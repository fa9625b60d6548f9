"""Worker processes on one machine: fed, watched, and killed when a cell goes over its limits."""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from cel.benchmark.tasks import Task

__all__ = ["Supervisor"]

POLL_S = 0.2
MAX_DEATHS = 2  # a cell that has seen this many workers die is given up


@dataclass
class _Watch:
    """What a worker is doing right now."""

    key: str | None = None
    label: str = ""
    kind: str = ""
    deadline: float = field(default=float("inf"))


class _Lines:
    """Complete lines from a pipe, without ever waiting longer than asked.

    It reads the descriptor itself: a buffered `readline` may hold back lines that `select` cannot
    see.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._descriptor, self._rest, self.ended = pipe.fileno(), b"", False

    def ready(self, seconds: float) -> list[bytes]:
        """Return the lines that arrived, waiting at most `seconds` for the first."""
        readable, _, _ = select.select([self._descriptor], [], [], seconds)
        if not readable:
            return []
        data = os.read(self._descriptor, 2**16)
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class Supervisor:
    """Runs tasks in `jobs` worker processes and reports events.

    Every worker is a process of its own that can be killed, which no thread or pool allows. A
    killed cell is reported as `timeout` or `memory`, the rest of its block goes to a fresh worker.

    Args:
        store: folder of the store.
        jobs: number of processes.
        memory_mb: resident memory beyond which a worker is killed.
        device: handed to the workers.
        report: called with every event, from one thread at a time.
        log: file that receives what workers print.
    """

    def __init__(
        self,
        store: Path,
        *,
        jobs: int = 1,
        memory_mb: int = 8000,
        device: str = "cpu",
        report: Callable[[dict[str, Any]], None],
        log: Path,
    ) -> None:
        self.store, self.jobs, self.memory_mb = store, jobs, memory_mb
        self.device, self.log = device, log
        self._report, self._lock = report, threading.Lock()
        self._queue: queue.Queue[Task] = queue.Queue()
        self._open = 0
        self._stop = threading.Event()

    def run(self, tasks: list[Task]) -> None:
        """Do all tasks; a KeyboardInterrupt ends the workers and is passed on."""
        for task in tasks:
            self._put(task)
        count = min(self.jobs, max(len(tasks), 1))
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            while any(t.is_alive() for t in threads):
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            self._stop.set()
            for thread in threads:
                thread.join(timeout=10)
            raise

    def _put(self, task: Task) -> None:
        with self._lock:
            self._open += 1
        self._queue.put(task)

    def _tell(self, event: dict[str, Any]) -> None:
        with self._lock:
            self._report(event)

    def _serve(self) -> None:
        worker: subprocess.Popen[bytes] | None = None
        try:
            while not self._stop.is_set():
                try:
                    task = self._queue.get(timeout=POLL_S)
                except queue.Empty:
                    if self._open == 0:
                        return
                    continue
                worker = worker if worker is not None and worker.poll() is None else self._start()
                if not self._feed(worker, task):
                    worker = None
                with self._lock:
                    self._open -= 1
        finally:
            if worker is not None:
                _end(worker)

    def _start(self) -> subprocess.Popen[bytes]:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        threads = dict.fromkeys(names, "1")
        command = [
            sys.executable,
            "-P",
            "-m",
            "cel.benchmark.worker",
            str(self.store),
            self.device,
        ]
        with open(self.log, "a", encoding="utf8") as errors:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env=os.environ | threads,
            )  # fmt: skip

    def _feed(self, worker: subprocess.Popen[bytes], task: Task) -> bool:
        """Give a task to a worker and follow it; return whether the worker can take another."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        watch = _Watch()
        try:
            worker.stdin.write(task.line().encode())
            worker.stdin.flush()
        except BrokenPipeError:
            _end(worker)
            self._after_death(task, watch, "died")
            return False
        lines = _Lines(worker.stdout)
        while not self._stop.is_set():
            for line in lines.ready(POLL_S):
                if self._follow(json.loads(line), task, watch):
                    return True
            if lines.ended:
                _end(worker)
                self._after_death(task, watch, "died")
                return False
            reason = self._over_limit(worker, watch)
            if reason:
                _end(worker)
                self._after_death(task, watch, reason)
                return False
        _end(worker)
        return False

    def _follow(self, event: dict[str, Any], task: Task, watch: _Watch) -> bool:
        """Note what the worker says; return True when it is idle again."""
        kind = event["event"]
        if kind == "start":
            watch.key, watch.label, watch.kind = event.get("key"), event["label"], event["kind"]
            watch.deadline = time.monotonic() + event["seconds"]
        elif kind in ("done", "skip", "fail"):
            task.cells = [c for c in task.cells if c != event["key"]]
            watch.key, watch.deadline = None, float("inf")
        elif kind == "block_failed":
            self._lose(task, task.cells, event)
        if kind not in ("ready", "idle", "block_failed"):
            self._tell(event)
        return bool(kind == "idle")

    def _over_limit(self, worker: subprocess.Popen[bytes], watch: _Watch) -> str | None:
        if time.monotonic() > watch.deadline:
            return "timeout"
        if _resident_mb(worker.pid) > self.memory_mb:
            return "memory"
        return None

    def _after_death(self, task: Task, watch: _Watch, reason: str) -> None:
        task.deaths[watch.key or ""] += 1
        deaths = task.deaths[watch.key or ""]
        give_up = reason in ("timeout", "memory") or deaths >= MAX_DEATHS
        what = {
            "timeout": "killed: over its time limit",
            "memory": f"killed: more than {self.memory_mb} MB",
            "died": "the worker process died twice (killed, or out of memory)",
        }[reason]
        label = watch.label or task.label
        if give_up:
            lost = [watch.key] if watch.key is not None else task.cells
            self._lose(task, lost, {"label": label, "status": reason, "reason": what})
        else:
            self._tell({"event": "worker_died", "label": label})
        if (task.cells or (task.model is None and not give_up)) and not self._stop.is_set():
            self._put(task)

    def _lose(self, task: Task, keys: list[str], about: dict[str, Any]) -> None:
        """Report cells as failed; a stack that fails leaves its models to the blocks."""
        about = {"label": task.label, **about}
        for key in keys:
            self._tell({**about, "event": "fail", "key": key})
        if task.model is None:
            self._tell({**about, "event": "stack_failed"})
        task.cells = [c for c in task.cells if c not in keys]


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue


def _resident_mb(pid: int) -> float:
    """Return the resident memory of a process; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
