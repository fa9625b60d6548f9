"""Worker processes on one machine: fed, watched, and killed when a cell goes over its limits."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cel.benchmark.gpu_places import STACKS
from cel.benchmark.hatched import HATCHES, Hatched, Nursery, worker_environment
from cel.benchmark.processes import Lines, end_tree, ending, event_of, tree_mb, usable_cores
from cel.benchmark.tasks import Fold, WorkItem, next_block

__all__ = ["Supervisor"]

POLL_S = 0.2
MAX_DEATHS = 2  # a cell that has seen this many workers die is given up
MAX_LOG = 16 * 2**20  # bytes of workers.log; what is printed beyond is not kept

# What a worker may say, and the fields that each event needs.
EVENTS: dict[str, tuple[str, ...]] = {
    "ready": (), "idle": (), "retire": (), "block_failed": ("reason",),
    "start": ("kind", "label", "seconds"), "deadline": ("seconds",), "stage": ("stage", "label"),
    "done": ("key", "label"), "skip": ("key", "label", "reason"),
    "fail": ("key", "label", "reason"), "altered": ("label", "what"), "stacked": ("label",),
}  # fmt: skip
Worker = subprocess.Popen[bytes] | Hatched
SILENT = ("ready", "idle", "retire", "deadline", "block_failed")


@dataclass
class _Watch:
    """What a worker is doing right now."""

    key: str | None = None
    label: str = ""
    kind: str = ""
    deadline: float = field(default=float("inf"))


class _StoppedError(Exception):
    """The run ends; no worker is wanted any more."""


class Supervisor:
    """Runs tasks in `jobs` worker processes and reports events.

    Every worker is a process of its own that can be killed, which no thread or pool allows. A
    killed cell is reported as `timeout` or `memory`, the rest of its block goes to a fresh worker.

    Args:
        store: folder of the store.
        jobs: number of processes; never more than cores, because every worker spends some seconds
            of computing on its start, and more of them only take turns.
        memory_mb: memory of a worker and all that it started beyond which it is killed.
        device: handed to the workers.
        report: called with every event, from one thread at a time.
        log: file that receives what workers print, up to 16 MB.
        nursery: one that was begun for this run already, which is then used also for one worker;
            it is closed at the end.
        lent: leave this nursery as it is at the end.
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
        nursery: Nursery | None = None,
        lent: bool = False,
    ) -> None:
        self.store, self.jobs, self.memory_mb = store, jobs, memory_mb
        self.device, self.log = device, log
        self._report, self._lock = report, threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._line: list[tuple[int, int, WorkItem]] = []  # what may begin, in turn
        self._ranks: dict[int, int] = {}  # of tasks, by identity: the order they were given in
        self._turn = itertools.count()
        self._open = 0
        self._training: Counter[str] = Counter()  # stacks under way, by dataset
        self._places = 0  # of the device, in use by stacks
        self._folds: Counter[Fold] = Counter()  # with a block under way
        self._waiting: dict[str, list[WorkItem]] = {}  # blocks that need such a stack
        self._error: Exception | None = None
        self._stop = threading.Event()
        self._nursery, self._lent = nursery, nursery if lent else None
        self._methods: list[str] | None = None  # of workers that are forked; None starts each

    def run(self, tasks: Sequence[WorkItem], stacks: Sequence[WorkItem] = ()) -> None:
        """Do all tasks; a KeyboardInterrupt ends the workers and is passed on.

        Stacks go first, then tasks in the order given. The blocks of a dataset wait for its stack
        and for no other, so that models of one dataset are trained while another is explained. Few
        stacks train on a device at once; where it is full, small ones train on a core, and
        workers go on with blocks.

        An error in a serving thread (a full disk, a bug) also ends the workers and is raised here:
        no cell is ever dropped in silence.
        """
        if self.log.exists() and self.log.stat().st_size >= MAX_LOG:
            self.log.unlink()  # of an earlier run
        self._ranks = {id(task): rank for rank, task in enumerate([*stacks, *tasks])}
        for stack in stacks:
            self._put(stack)
        for task in tasks:
            if task.dataset in self._training:
                self._waiting.setdefault(task.dataset, []).append(task)
            else:
                self._put(task)
        count = min(self.jobs, max(len(tasks) + len(stacks), 1), usable_cores())
        if HATCHES and (count > 1 or self._nursery is not None):
            lines = [m for task in tasks[:1] for m in task.suite.get("methods", {}).values()]
            self._methods = sorted({str(line["method"]) for line in lines})
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
        finally:
            if self._nursery is not None and self._nursery is not self._lent:
                self._nursery.close()
        if self._error is not None:
            raise self._error

    def _put(self, task: WorkItem) -> None:
        with self._lock:
            self._open += 1
            if task.is_stack:
                self._training[task.dataset] += 1
            bisect.insort(self._line, (self._ranks[id(task)], next(self._turn), task))
            self._changed.notify_all()

    def _take(self, last: Fold | None = None) -> tuple[WorkItem, int] | None:
        """Return the first task that may begin, and how many places it has on the device.

        None if none may begin for a while. Of blocks, those of the fold that the worker did last
        go first, since it has their rows and references; then those of folds that nobody is at.
        """
        with self._changed:
            for number, (_, _, task) in enumerate(self._line):
                if not task.is_stack:  # only blocks follow
                    blocks = [block for _, _, block in self._line[number:]]
                    chosen = next_block(blocks, last, self._folds)
                    del self._line[number + chosen]
                    self._folds[blocks[chosen].of_fold] += 1
                    return blocks[chosen], 0
                wanted = int(self.device != "cpu")
                free = self._places + wanted <= STACKS
                if free or task.small:
                    del self._line[number]
                    places = wanted if free else 0
                    self._places += places
                    task.device = "" if free else "cpu"
                    return task, places
            self._changed.wait(POLL_S)
        return None

    def _ended(self, task: WorkItem, places: int) -> None:
        """Count a task that left its worker; a dataset's blocks follow its last stack."""
        released: list[WorkItem] = []
        if task.is_stack:
            with self._lock:
                self._training[task.dataset] -= 1
                if self._training[task.dataset] == 0:
                    released = self._waiting.pop(task.dataset, [])
        for block in released:
            self._put(block)
        with self._lock:
            self._open -= 1
            self._places -= places
            if not task.is_stack:
                self._folds[task.of_fold] -= 1
            self._changed.notify_all()

    def _tell(self, event: dict[str, Any]) -> None:
        with self._lock:
            self._report(event)

    def _serve(self) -> None:
        worker: Worker | None = None
        last: Fold | None = None
        try:
            while not self._stop.is_set():
                taken = self._take(last)
                if taken is None:
                    if self._open == 0:
                        return
                    continue
                task, places = taken
                worker = worker if worker is not None and worker.poll() is None else self._start()
                if not self._feed(worker, task):
                    worker = None
                last = None if task.is_stack or worker is None else task.of_fold
                self._ended(task, places)
        except _StoppedError:
            return
        except Exception as error:  # noqa: BLE001 - raised again by `run`, in the caller's thread
            self._error = error
            self._stop.set()
        finally:
            if worker is not None:
                self._end(worker)

    def _start(self) -> Worker:
        """Return a worker that is ready to be fed, forked from a nursery if there is to be one."""
        methods = self._methods
        if methods is None:
            return self._started()
        with self._lock:
            if self._nursery is None or self._nursery.ended:
                self._nursery = Nursery(self.device)
            self._nursery.serve(self.store, methods, self.log)
            nursery = self._nursery
        found = nursery.hatch(self._stop.is_set)
        if found is None and self._stop.is_set():
            raise _StoppedError
        if found is None:
            self._methods = None  # every further worker imports for itself
        return found or self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        module = ["-P", "-m", "cel.benchmark.worker"]
        return subprocess.Popen(
            [sys.executable, *module, str(self.store), self.device],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=worker_environment(self.device),
            process_group=0,  # killed as a whole; a session of its own would get a smaller share
        )  # fmt: skip

    def _feed(self, worker: Worker, task: WorkItem) -> bool:
        """Give a task to a worker and follow it; return whether the worker can take another."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        watch = _Watch()
        try:
            worker.stdin.write(task.line().encode())
            worker.stdin.flush()
        except BrokenPipeError:
            return self._lost(worker, task, watch, "died")
        lines = Lines(worker.stdout.fileno())
        while not self._stop.is_set():
            gone = worker.poll() is not None  # asked first: what it said before is still read
            self._wait(worker)
            for line in lines.ready(0):
                event = event_of(line, EVENTS)
                if event is None or not self._possible(event, task):
                    shown = line[:80].decode("utf8", "backslashreplace")
                    return self._lost(worker, task, watch, "garbled", repr(shown))
                if event["event"] == "retire":
                    self._end(worker)
                    self._put(task)
                    return False
                if self._follow(event, task, watch):
                    return True
            if lines.ended or (gone and not self._readable(worker)):
                return self._lost(worker, task, watch, "died")
            reason = self._over_limit(worker, watch)
            if reason:
                return self._lost(worker, task, watch, reason)
        self._end(worker)
        return False

    def _wait(self, worker: Worker) -> None:
        """Wait for a word of the worker; keep what it prints, up to a limit."""
        assert worker.stdout is not None
        assert worker.stderr is not None
        pipes = [worker.stdout.fileno(), worker.stderr.fileno()]
        readable, _, _ = select.select(pipes, [], [], POLL_S)
        if pipes[1] in readable:
            self._keep(os.read(pipes[1], 2**16))
            if readable == [pipes[1]] and worker.poll() is not None:
                time.sleep(0.01)  # a closed pipe is always readable

    def _readable(self, worker: Worker) -> bool:
        assert worker.stdout is not None
        return bool(select.select([worker.stdout.fileno()], [], [], 0)[0])

    def _keep(self, printed: bytes) -> None:
        with self._lock, open(self.log, "ab") as file:
            file.write(printed[: max(MAX_LOG - file.tell(), 0)])

    def _possible(self, event: dict[str, Any], task: WorkItem) -> bool:
        """Tell whether an event can be true of the task."""
        seconds = event.get("seconds", 0)
        if not isinstance(seconds, int | float):
            return False
        return event["event"] not in ("done", "skip", "fail") or event["key"] in task.cells

    def _follow(self, event: dict[str, Any], task: WorkItem, watch: _Watch) -> bool:
        """Note what the worker says; return True when it is idle again."""
        kind = event["event"]
        if kind == "start":
            watch.key, watch.label, watch.kind = event.get("key"), event["label"], event["kind"]
        if kind in ("start", "deadline"):
            watch.deadline = time.monotonic() + event["seconds"]
        elif kind in ("done", "skip", "fail"):
            task.cells = [c for c in task.cells if c != event["key"]]
            watch.key, watch.deadline = None, float("inf")
        elif kind == "block_failed":
            self._lose(task, task.cells, event)
        elif kind == "idle" and task.cells:
            about = {"status": "error", "reason": "its worker had nothing to say about it"}
            self._lose(task, task.cells, about)
        if kind not in SILENT:
            self._tell(event)
        return bool(kind == "idle")

    def _over_limit(self, worker: Worker, watch: _Watch) -> str | None:
        if time.monotonic() > watch.deadline:
            return "timeout"
        if tree_mb(worker.pid, self.memory_mb) > self.memory_mb:
            return "memory"
        return None

    def _lost(
        self,
        worker: Worker,
        task: WorkItem,
        watch: _Watch,
        reason: str,
        how: str = "",
    ) -> bool:
        """End a worker that is dead, over a limit or talking nonsense; see to its task."""
        self._end(worker)
        how = how or ending(worker.returncode)
        task.deaths[watch.key or ""] += 1
        deaths = task.deaths[watch.key or ""]
        give_up = reason != "died" or deaths >= MAX_DEATHS
        what = {
            "timeout": "killed: over its time limit",
            "memory": f"killed: more than {self.memory_mb} MB",
            "garbled": f"something wrote into the event channel of its worker: {how}",
            "died": f"the worker process ended twice ({how}; perhaps the memory ran out)",
        }[reason]
        label = watch.label or task.label
        status = "error" if reason == "garbled" else reason
        if give_up:
            lost = [watch.key] if watch.key is not None else task.cells
            self._lose(task, lost, {"label": label, "status": status, "reason": what})
        else:
            self._tell({"event": "worker_died", "label": label, "reason": how})
        if (task.cells or (task.is_stack and not give_up)) and not self._stop.is_set():
            self._put(task)
        return False

    def _lose(self, task: WorkItem, keys: list[str], about: dict[str, Any]) -> None:
        """Report cells as failed; a stack that fails leaves its models to the blocks."""
        about = {"label": task.label, **about}
        for key in keys:
            self._tell({**about, "event": "fail", "key": key})
        if task.is_stack:
            self._tell({**about, "event": "stack_failed"})
        task.cells = [c for c in task.cells if c not in keys]

    def _end(self, worker: Worker) -> None:
        """Kill a worker with all that it started, and keep what it printed last."""
        if worker.poll() is None:
            end_tree(worker.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker.pid, 9)  # it leads a group of its own
        worker.wait()
        assert worker.stderr is not None
        while select.select([worker.stderr.fileno()], [], [], 0)[0]:
            printed = os.read(worker.stderr.fileno(), 2**16)
            self._keep(printed)
            if not printed:
                break
        for pipe in (worker.stdin, worker.stdout, worker.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
