"""Blocks on a dask cluster; every dask task supervises one worker process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cel.benchmark.supervisor import Supervisor
from cel.benchmark.tasks import Task
from cel.errors import MissingDependencyError

__all__ = ["run_on_dask", "run_task"]


def run_task(task: dict[str, Any], store: str, device: str) -> list[dict[str, Any]]:
    """Do one block on this machine and return its events; runs inside a dask worker."""
    events: list[dict[str, Any]] = []
    root = Path(store)
    memory = task["suite"]["limits"]["memory_mb"]
    Supervisor(
        root, memory_mb=memory, device=device, report=events.append, log=root / "workers.log"
    ).run([Task(**task)])
    return events


def run_on_dask(
    tasks: list[Task],
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
        from distributed import Client, LocalCluster, as_completed
    except ImportError:
        raise MissingDependencyError("dask.distributed", "dask") from None
    cluster = None
    if address is None:
        make: Any = LocalCluster
        cluster = make(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
    with Client(address or cluster) as client:
        where = str(store.resolve())
        futures = [
            client.submit(run_task, t.plain(), where, device, pure=False, retries=2) for t in tasks
        ]
        for future in as_completed(futures, raise_errors=False):
            if future.status == "error":
                task = tasks[futures.index(future)]
                reason = f"dask gave up: {future.exception()}"
                for key in task.cells:
                    report({"event": "fail", "key": key, "label": task.label, "reason": reason})
                if task.model is None:
                    report({"event": "stack_failed", "label": task.label, "reason": reason})
                continue
            for event in future.result():
                report(event)
    if cluster is not None:
        cluster.close()
