"""A worker process: blocks come in as JSON lines, events go out as JSON lines.

Run as `python -P -m cel.benchmark.worker STORE DEVICE`, so that no file of the current folder is
imported: what a task names as `module:attribute` is looked for in the folders that it names too.
Whatever libraries print goes to stderr; the real standard output carries events only. The worker
ends when its input ends, so it never outlives the run that started it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import cel
from cel.benchmark.apart import Ending, Job, apart, failure
from cel.benchmark.processes import adopt_orphans
from cel.errors import CelError, StoreError

__all__ = ["main", "work"]

Emit = Callable[[dict[str, Any]], None]


class _Bench:
    """One task: its limits, and jobs apart that may be tried twice."""

    def __init__(self, limits: Any, emit: Emit, channel: int | None) -> None:
        self.limits, self.emit = limits, emit
        self._close = () if channel is None else (channel, sys.stdin.fileno())

    def apart(self, job: Job, listen: Emit) -> Ending:
        """Run a job apart; one that was killed from outside gets a second chance."""
        found = apart(job, listen, self._close)
        return apart(job, listen, self._close) if found.killed else found

    def train(self, job: Job, label: str) -> None:
        """Run a training apart; its failure is the failure of all cells that wait for it."""
        found = self.apart(job, lambda event: self.emit({"label": label, **event}))
        if found.event["event"] != "ok":
            raise _TrainingFailedError({"traceback": "", **found.event})


class _TrainingFailedError(CelError):
    """A training failed; `event` says how."""

    def __init__(self, event: dict[str, Any]) -> None:
        super().__init__(str(event["reason"]))
        self.event = event


class _Retire(Exception):  # noqa: N818 - it ends a worker, it is no mistake
    """Something altered this process; a fresh one goes on."""


def work(
    task: dict[str, Any], store_path: str, device: str, emit: Emit, channel: int | None = None
) -> None:
    """Do the cells of one block and tell about each.

    Args:
        task: as made by `Task.plain`.
        store_path: folder of the store.
        device: "cpu" or "cuda", for training and for the searches that the task names.
        emit: called with every event.
        channel: descriptor of the event pipe, closed in the processes that run methods.
    """
    from cel.benchmark.early_imports import import_early
    from cel.benchmark.named import named_in
    from cel.benchmark.plan import MethodFacts, make_plan, method_class
    from cel.benchmark.row_scores import compare_finished
    from cel.benchmark.shelf import Shelf
    from cel.benchmark.spec import Suite
    from cel.benchmark.stacked import train_together
    from cel.benchmark.stages import Workbench, model_stages
    from cel.benchmark.store import Store
    from cel.registry import look_in

    _check_version(task)
    for folder in task["folders"]:
        look_in(folder)
    suite, store = Suite.from_dict(task["suite"]), Store(store_path)
    shelf = Shelf(task["shelf"], device) if task.get("shelf") else None
    for name, resolve in named_in(suite).items():
        if resolve is not method_class:  # methods are imported apart, where they run
            resolve(name)
    import_early(m.method for m in suite.methods)
    own = _Bench(suite.limits, emit, channel)
    if task["fold"] is None:
        dataset, keys = task["dataset"], task["densities"]
        where = task.get("device") or device
        own.train(
            lambda say: train_together(suite, dataset, keys, store, where, say, shelf), dataset
        )
        return
    facts = {name: MethodFacts.from_dict(f) for name, f in task["facts"].items()}
    part = suite.narrowed(datasets=[task["dataset"]], models=[task["model"]], folds=[task["fold"]])
    plan = make_plan(part, facts)
    (block,) = plan.blocks
    bench = Workbench(suite, block, store, device, facts, shelf, gpu=task.get("gpu", ()))
    seconds = suite.limits.train_s * len(model_stages(suite)) + suite.limits.grace_s
    emit({"event": "start", "kind": "train", "label": block.label, "seconds": seconds})
    for stage in model_stages(suite):
        _obtain(bench, stage, own)
    bench.prepare()
    _attempt_cells(bench, block.cells, task["cells"], own)
    compare_finished(store, plan)


def _obtain(bench: Any, stage: str, own: _Bench) -> None:
    """Load the model of a stage; train it apart first, or borrow it, if the run has none."""
    from cel.benchmark.stages import model_folder

    label = bench.block.label

    def train() -> None:
        own.train(lambda _: bench.train(stage), label)

    borrowed = bench.missing(stage) and bench.obtain(stage, train)
    bench.model(stage)
    about = {"stage": model_folder(stage), "label": label, "borrowed": borrowed}
    own.emit({"event": "stage", **about})


def _check_version(task: dict[str, Any]) -> None:
    if task["version"] != cel.__version__:
        raise StoreError(
            f"the run is made by CEL {task['version']}, this worker has {cel.__version__}; "
            "install the same version on all machines"
        )


def _attempt_cells(bench: Any, cells: Any, wanted: list[str], own: _Bench) -> None:
    known = {c.score_key: c for c in cells}
    for key in wanted:
        if key not in known:
            reason = (
                "this worker plans other stages or methods than the run; install the same version "
                "of CEL and of the method on all machines"
            )
            about = {"event": "fail", "key": key, "label": bench.block.label, "reason": reason}
            own.emit({**about, "traceback": ""})
    for cell in cells:
        if cell.score_key in wanted:
            _attempt_cell(bench, cell, own)


def _attempt_cell(bench: Any, cell: Any, own: _Bench) -> None:
    limits, about = own.limits, {"label": cell.label, "key": cell.score_key}
    learning = limits.train_s + limits.grace_s
    own.emit({"event": "start", "kind": "cell", "seconds": learning, **about})
    wanted = not bench.explained(cell)
    if wanted:
        stage = bench.autoencoder_stage(cell)
        if stage is not None and not bench.loaded(stage):
            try:
                _obtain(bench, stage, own)
            except _TrainingFailedError as failed:  # of the cells that wait for it, not of others
                own.emit({"kind": "cell", **failed.event, **about})
                return
            own.emit({"event": "deadline", "seconds": learning, **about})
    started = time.perf_counter()
    if wanted:
        found = own.apart(
            lambda say: bench.explain(cell, say), lambda event: own.emit({**event, **about})
        )
        if found.event["event"] != "ok":
            own.emit({"kind": "cell", **found.event, **about})
            if found.altered:
                raise _Retire
            return
        own.emit({"event": "stage", "stage": "explain", **about})
        if found.altered:
            raise _Retire
    own.emit({"event": "deadline", "seconds": learning, **about})
    try:
        bench.score(cell)
    except Exception as error:  # noqa: BLE001 - any failure of a metric becomes a row
        own.emit({"kind": "cell", **failure(error), **about})
    else:
        own.emit(
            {"event": "done", "kind": "cell", "wall_s": time.perf_counter() - started, **about}
        )


def main(arguments: list[str], runner: int | None = None) -> int:
    """Serve blocks until the input ends.

    Args:
        arguments: folder of the store, device.
        runner: descriptor of the process with which this one ends; by default its parent's.
    """
    store_path, device = arguments
    channel = os.dup(1)
    os.dup2(2, 1)
    _limit_threads()
    adopt_orphans()
    ends = (_die_with_parent, os.getppid()) if runner is None else (_die_with_runner, runner)
    threading.Thread(target=ends[0], args=ends[1:], daemon=True).start()

    def emit(event: dict[str, Any]) -> None:
        data = json.dumps(event, default=str).encode() + b"\n"
        while data:
            data = data[os.write(channel, data) :]

    emit({"event": "ready", "pid": os.getpid()})
    for line in sys.stdin:
        try:
            work(json.loads(line), store_path, device, emit, channel)
        except _Retire:
            emit({"event": "retire"})
            return 0
        except _TrainingFailedError as failed:
            emit({**failed.event, "event": "block_failed"})
        except Exception as error:  # noqa: BLE001 - a block that cannot start fails all its cells
            emit({**failure(error), "event": "block_failed"})
        emit({"event": "idle"})
    return 0


def _limit_threads() -> None:
    import torch

    torch.set_num_threads(1)


def _die_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    _die()


def _die_with_runner(runner: int) -> None:
    select.select([runner], [], [])
    _die()


def _die() -> None:
    if os.getpgrp() == os.getpid():  # with all that it started
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
