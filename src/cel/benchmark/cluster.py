"""Blocks on a dask cluster; every dask task supervises one worker process of its own.

These are forked from a process that has imported everything, which a dask worker keeps from one
block to the next (`cel.benchmark.nursery`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cel.benchmark.apart import MAX_REASON, shortened
from cel.benchmark.gpu_places import stack_place
from cel.benchmark.hatched import HATCHES, Nursery
from cel.benchmark.supervisor import Supervisor
from cel.benchmark.tasks import WorkItem
from cel.errors import ClusterError, MissingDependencyError

__all__ = ["run_on_dask", "run_task"]


def run_task(task: dict[str, Any], store: str, device: str) -> list[dict[str, Any]]:
    """Do one block on this machine and return its events; runs inside a dask worker.

    Few stacks train on a device at once, as on one machine without dask; the others wait here.
    """
    events: list[dict[str, Any]] = []
    root, item = Path(store), WorkItem(**task)
    memory = task["suite"]["limits"]["memory_mb"]
    crowded = item.is_stack and device != "cpu"
    with stack_place(root / "gpu", device) if crowded else nullcontext():
        Supervisor(
            root, memory_mb=memory, device=device, report=events.append,
            log=root / "workers.log", nursery=_nursery(root, device), lent=True,
        ).run([item])  # fmt: skip
    return events


_kept: list[tuple[tuple[Path, str], Nursery]] = []  # at most one, of this process
_lock = threading.Lock()


def _nursery(root: Path, device: str) -> Nursery | None:
    """Return the nursery of this process for a run; it ends with the process, or the next run."""
    if not HATCHES:
        return None
    with _lock:
        if _kept and (_kept[0][0] != (root, device) or _kept[0][1].ended):
            _kept.pop()[1].close()
        if not _kept:
            _kept.append(((root, device), Nursery(device)))
        return _kept[0][1]


def run_on_dask(
    tasks: list[WorkItem],
    store: Path,
    address: str | None,
    jobs: int,
    device: str,
    report: Callable[[dict[str, Any]], None],
) -> None:
    """Send every block to the cluster; the store must be a folder that all machines share.

    A block whose dask worker dies is sent again by dask; what it had finished is in the store.
    """
    try:
        from distributed import LocalCluster
    except ImportError:
        raise MissingDependencyError("dask.distributed", "dask") from None
    cluster = None
    if address is None:
        make: Any = LocalCluster
        cluster = make(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
    try:
        _send(tasks, store, address or cluster, device, report)
    finally:
        if cluster is not None:
            cluster.close()


def _send(
    tasks: list[WorkItem],
    store: Path,
    where: Any,
    device: str,
    report: Callable[[dict[str, Any]], None],
) -> None:
    from distributed import Client

    try:
        client = Client(where)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no dask scheduler answers at {where} ({shortened(str(error), 200)}); start one, or "
            "leave --address out"
        ) from None
    try:
        with client:
            _gather(client, tasks, store, device, report)
    except _ReportError as failed:
        raise failed.error from None
    except (OSError, CancelledError) as error:  # CommClosedError is an OSError
        raise ClusterError(
            f"the dask scheduler at {where} was lost ({type(error).__name__}); what was finished "
            "is kept: start the same command again"
        ) from None


class _ReportError(Exception):
    """What `report` raised (a full disk): no matter of the cluster."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _gather(
    client: Any,
    tasks: list[WorkItem],
    store: Path,
    device: str,
    report: Callable[[dict[str, Any]], None],
) -> None:
    from distributed import as_completed

    def tell(event: dict[str, Any]) -> None:
        try:
            report(event)
        except Exception as error:
            raise _ReportError(error) from error

    where = str(store.resolve())
    futures = [
        client.submit(run_task, t.plain(), where, device, pure=False, retries=2) for t in tasks
    ]
    for future in as_completed(futures, raise_errors=False):
        if future.status == "error":
            task = tasks[futures.index(future)]
            reason = f"dask gave up: {shortened(str(future.exception()), MAX_REASON)}"
            for key in task.cells:
                tell({"event": "fail", "key": key, "label": task.label, "reason": reason})
            if task.is_stack:
                tell({"event": "stack_failed", "label": task.label, "reason": reason})
            continue
        for event in future.result():
            tell(event)
