"""A worker process: blocks come in as JSON lines, events go out as JSON lines.

Run as `python -P -m cel.benchmark.worker STORE DEVICE`, so that no file of the current folder is
imported: what a task names as `module:attribute` is looked for in the folders that it names too.
Whatever libraries print goes to stderr; the real standard output carries events only. The worker
ends when its input ends, so it never outlives the run that started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from cel.errors import MissingInputError, UnsupportedError

__all__ = ["main", "work"]

Emit = Callable[[dict[str, Any]], None]


def work(task: dict[str, Any], store_path: str, device: str, emit: Emit) -> None:
    """Do the cells of one block and tell about each."""
    from cel.benchmark.named import import_folders
    from cel.benchmark.plan import make_plan
    from cel.benchmark.spec import Suite
    from cel.benchmark.stacked import train_together
    from cel.benchmark.stages import Workbench
    from cel.benchmark.store import Store
    from cel.registry import look_in

    for folder in task["folders"]:
        look_in(folder)
    suite = Suite.from_dict(task["suite"])
    import_folders(suite)
    if task["fold"] is None:
        place = Store(store_path), device, emit
        train_together(suite, task["dataset"], task["densities"], *place)
        return
    part = suite.narrowed(datasets=[task["dataset"]], models=[task["model"]], folds=[task["fold"]])
    (block,) = make_plan(part).blocks
    bench = Workbench(suite, block, Store(store_path), device)
    wanted = set(task["cells"])
    limits = suite.limits
    train_s = limits.train_s * 2 + limits.grace_s
    cell_s = limits.time_s + limits.grace_s + limits.train_s  # some methods train a model too
    emit({"event": "start", "kind": "train", "label": block.label, "seconds": train_s})
    for stage, model in (("predictor", bench.predictor), ("density", bench.density)):
        model()
        emit({"event": "stage", "stage": stage, "label": block.label})
    for cell in block.cells:
        if cell.score_key not in wanted:
            continue
        _attempt_cell(bench, cell, cell_s, emit)


def _attempt_cell(bench: Any, cell: Any, seconds: float, emit: Emit) -> None:
    about = {"kind": "cell", "label": cell.label, "key": cell.score_key}
    emit({"event": "start", "seconds": seconds, **about})
    started = time.perf_counter()
    try:
        bench.explain(cell)
        emit({"event": "stage", "stage": "explain", "label": cell.label})
        bench.score(cell)
    except (UnsupportedError, MissingInputError) as refusal:
        emit({"event": "skip", "reason": str(refusal), **about})
    except Exception as failure:  # noqa: BLE001 - the one place where any failure becomes a row
        reason = f"{type(failure).__name__}: {failure}"
        emit({"event": "fail", "reason": reason, "traceback": traceback.format_exc(), **about})
    else:
        emit({"event": "done", "wall_s": time.perf_counter() - started, **about})


def main(arguments: list[str]) -> int:
    """Serve blocks until the input ends."""
    store_path, device = arguments
    channel = os.fdopen(os.dup(1), "w", encoding="utf8")
    os.dup2(2, 1)
    _limit_threads()
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()

    def emit(event: dict[str, Any]) -> None:
        channel.write(json.dumps(event, default=str) + "\n")
        channel.flush()

    emit({"event": "ready", "pid": os.getpid()})
    for line in sys.stdin:
        task = json.loads(line)
        try:
            work(task, store_path, device, emit)
        except Exception as failure:  # noqa: BLE001 - a block that cannot start fails all its cells
            reason = f"{type(failure).__name__}: {failure}"
            trace = traceback.format_exc()
            emit({"event": "block_failed", "reason": reason, "traceback": trace})
        emit({"event": "idle"})
    return 0


def _limit_threads() -> None:
    import torch

    torch.set_num_threads(1)


def _die_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
