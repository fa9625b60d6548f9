"""Run a suite: only what is missing, resumable at any moment."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cel
from cel.benchmark.estimate import block_costs, largest_first
from cel.benchmark.hatched import Nursery
from cel.benchmark.named import import_folders
from cel.benchmark.placement import worth_a_gpu
from cel.benchmark.plan import Cell, MethodFacts, Plan, make_plan
from cel.benchmark.preflight import preflight
from cel.benchmark.processes import usable_cores
from cel.benchmark.score_tables import state_of, write_scores
from cel.benchmark.shelf import Shelf
from cel.benchmark.spec import Suite, load_suite
from cel.benchmark.stack_placement import longest_first, stacks_in_turn
from cel.benchmark.stacked import stacks
from cel.benchmark.store import Store
from cel.benchmark.supervisor import Supervisor
from cel.benchmark.tasks import WorkItem
from cel.errors import CelError, ConfigError, StoreError

__all__ = ["RunSummary", "open_run", "pending_tasks", "run"]

Watcher = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class RunSummary:
    """How a run ended; every cell of the plan is counted exactly once.

    Attributes:
        total: cells of the plan.
        ran: cells started now.
        done: cells with scores.
        skipped: cells whose method refused, with a reason.
        failed: cells with an error, a timeout or too much memory.
        seconds: wall-clock time.
        missing: cells with neither scores nor a reason.
    """

    total: int
    ran: int
    done: int
    skipped: int
    failed: int
    seconds: float
    missing: int = 0

    def __post_init__(self) -> None:
        counted = self.done + self.skipped + self.failed + self.missing
        if counted != self.total or min(self.done, self.skipped, self.failed, self.missing) < 0:
            raise AssertionError(f"{counted} cells are accounted for, the plan has {self.total}")

    @property
    def complete(self) -> bool:
        """Whether every cell has scores or a method that refused it; decides the exit code."""
        return self.failed == 0 and self.missing == 0


def environment() -> dict[str, Any]:
    """Return what to cite: versions, machine, and the commit if it runs from a clone."""
    from importlib.metadata import version

    packages = ("torch", "numpy", "pandas", "scikit-learn", "scipy")
    return {
        "cel": cel.__version__,
        **({"commit": commit} if (commit := _commit()) else {}),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        **{p: version(p) for p in packages},
    }


def _cpu() -> str:
    """The name of the processor, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [x.partition(":")[2].strip() for x in lines if x.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None  # the system does not tell


def _commit() -> str:
    """The commit of the clone that CEL runs from; "" for an installed package."""
    root = Path(cel.__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip()


def open_run(out: str | Path) -> tuple[Store, Plan]:
    """Open the store of an earlier run together with its plan.

    Methods that are not installed here are known from the run itself. Nothing that the run names
    is imported: a run may be a stranger's.
    """
    if not (Path(out) / "store.json").exists():
        raise StoreError(f"{out} is not a run; start one with: cel run quick --out {out}")
    store = Store(out)
    suite = store.read_json("suite.json")
    if suite is None:
        raise StoreError(
            f"{out}/suite.json holds no suite; start one with: cel run quick --out {out}"
        )
    found, known = _stored_suite(store, suite), _known_facts(store)
    for method in found.methods:
        if ":" in method.method and method.method not in known:
            raise StoreError(
                f"{store.root}: methods.json does not describe {method.method!r}, and reading a "
                "run imports nothing; run its suite again with: cel run"
            )
    return store, make_plan(found, known)


def _stored_suite(store: Store, values: Any) -> Suite:
    try:
        return Suite.from_dict(values, where=str(store.root / "suite.json"))
    except ConfigError as error:
        raise StoreError(
            f"{error}; the run is damaged, or of another version: start it again with: cel run"
        ) from None


def _known_facts(store: Store) -> dict[str, MethodFacts]:
    """What the run knows of its methods; a damaged file is done without."""
    try:
        kept = store.read_json("methods.json") or {}
        return {name: MethodFacts.from_dict(f) for name, f in kept.items()}
    except (StoreError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def pending_tasks(plan: Plan, store: Store, *, retry_failed: bool = False) -> list[WorkItem]:
    """Return the blocks with open cells; damaged entries count as open."""
    tasks = []
    plain = plan.suite.to_dict()
    for block in plan.blocks:
        cells = []
        for cell in block.cells:
            if store.has("score", cell.score_key) and store.intact("score", cell.score_key):
                continue
            if store.failure(cell.score_key) is not None and not retry_failed:
                continue
            cells.append(cell.score_key)
        if cells:
            tasks.append(WorkItem(plain, block.dataset, block.fold, block.model, cells))
    return tasks


def run(
    suite: str | Path | Mapping[str, Any] | Suite,
    out: str | Path,
    *,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    shard: tuple[int, int] | None = None,
    retry_failed: bool = False,
    device: str = "cpu",
    stack: bool | None = None,
    gpu_search: bool = False,
    shelf: str | Path | None = None,
    watch: Watcher | None = None,
    nursery: Nursery | None = None,
) -> RunSummary:
    """Compute what is missing of a suite and write its score table.

    A folder gathers what is run into it: parts of one suite, and methods added later, stand in one
    table. A suite with other settings takes its place.

    Args:
        suite: packaged name, YAML file, dict or `Suite`.
        out: folder of the store; earlier results in it are used.
        jobs: worker processes on this machine.
        engine: "local" or "dask".
        address: of a dask scheduler; None starts a local cluster.
        shard: (i, n) to do every n-th block only.
        retry_failed: also try cells that failed or were skipped before.
        device: "cpu" or "cuda", for training.
        stack: train the models of all folds of a dataset together first; None does so on CUDA.
        gpu_search: explain on a CUDA device, too, where that is faster
            (`cel.benchmark.placement`). Times of such cells are those of the device, and say so;
            they cannot be compared with those of other cells.
        shelf: folder of trained models that runs share (`cel.benchmark.shelf`); None trains all.
        watch: called with every event.
        nursery: a process that forks workers, begun before the run was planned
            (`cel.benchmark.hatched`).
    """
    started = time.perf_counter()
    wanted = load_suite(suite)
    folders = import_folders(wanted)
    asked = make_plan(wanted)
    preflight(asked, out, jobs=jobs, engine=engine, address=address, shard=shard, device=device)
    plan = asked if shard is None else asked.shard(*shard)
    shared = None if shelf is None else str(Path(shelf).absolute())
    if shared is not None:
        Shelf(shared, device)  # one that cannot be used is refused before anything is trained
    store = Store(out)  # made last: what is refused leaves no folder behind
    earlier = _earlier(store)
    whole = _remember(store, asked, earlier)
    tasks = pending_tasks(plan, store, retry_failed=retry_failed)
    count = sum(len(t.cells) for t in tasks)
    store.log("run", suite=plan.suite.name, cells=len(plan.cells), open=count, argv=sys.argv[1:])
    record = _recorder(store, watch)
    record({"event": "plan", "total": len(plan.cells), "open": count, "blocks": len(tasks)})
    together = tasks and (device.startswith("cuda") if stack is None else stack)
    first = stacks(plan, store) if together else []
    there = worth_a_gpu(plan) if gpu_search and device != "cpu" else set()
    for task in [*first, *tasks]:
        task.gpu = [key for key in task.cells if key in there]
        task.folders, task.shelf = folders, shared
        task.facts = {name: fact.to_dict() for name, fact in plan.facts.items()}
    try:
        if engine == "local" and tasks:
            Supervisor(
                store.root, jobs=jobs, memory_mb=plan.suite.limits.memory_mb, device=device,
                report=record, log=store.root / "workers.log", nursery=nursery,
            ).run(*_in_turn(plan, store, tasks, first, jobs, device))  # fmt: skip
        elif tasks:
            from cel.benchmark.cluster import run_on_dask

            for part in filter(None, (first, tasks)):
                run_on_dask(part, store.root, address, jobs, device, record)
    finally:  # the table of what is finished is there after an interruption, too
        kept = keep_earlier(store, whole, earlier, plan)
        write_scores(store, kept)
    summary = _summary(store, plan, count, time.perf_counter() - started)
    store.log("finished", seconds=summary.seconds, done=summary.done, failed=summary.failed)
    return summary


def _in_turn(
    plan: Plan,
    store: Store,
    tasks: list[WorkItem],
    first: list[WorkItem],
    jobs: int,
    device: str,
) -> tuple[list[WorkItem], list[WorkItem]]:
    """Return blocks and stacks in the order in which they begin."""
    if not first or device == "cpu":
        return largest_first(tasks), largest_first(first)
    costs = block_costs(plan, store)
    workers = min(jobs, usable_cores())
    return longest_first(tasks, costs), stacks_in_turn(first, plan.suite, costs, workers)


def keep_earlier(store: Store, whole: Plan, earlier: Plan | None, asked: Plan) -> Plan:
    """Give methods whose new settings failed, or were not finished, their earlier settings back.

    That is, where those have scores. What the new settings computed stays in the store; `cel run`
    with them finds it again.

    Args:
        store: of the run.
        whole: what the folder is a run of now.
        earlier: what it was a run of.
        asked: the cells that this call was to compute.
    """
    if earlier is None or whole.suite.joined(earlier.suite) != whole.suite:
        return whole
    before = {m.label: m for m in earlier.suite.methods}
    changed = {m.label for m in whole.suite.methods if before.get(m.label, m) != m}
    scored = {c.method.label for c in earlier.cells if store.has("score", c.score_key)}
    failed = {c.method.label for c in whole.cells if store.failure(c.score_key) is not None}
    had = {_place(c) for c in earlier.cells if store.has("score", c.score_key)}
    lost = {
        c.method.label
        for c in asked.cells
        if _place(c) in had and not store.has("score", c.score_key)
    }
    back = changed & ((scored & failed) | lost)
    if not back:
        return whole
    methods = tuple(before[m.label] if m.label in back else m for m in whole.suite.methods)
    plan = make_plan(replace(whole.suite, methods=methods), {**whole.facts, **earlier.facts})
    store.write_json("suite.json", plan.suite.to_dict())
    store.log("kept_earlier", methods=sorted(back))
    return plan


def _place(cell: Cell) -> tuple[str, int, str, str]:
    return cell.dataset, cell.fold, cell.model, cell.method.label


def _earlier(store: Store) -> Plan | None:
    """Return what the folder was a run of, if it was one and can be read."""
    try:
        return None if store.read_json("suite.json") is None else open_run(store.root)[1]
    except CelError as error:  # what this run writes takes its place; finished stages are kept
        store.log("damaged", reason=str(error))
        return None


def _remember(store: Store, plan: Plan, earlier: Plan | None) -> Plan:
    """Note what this run is; return it together with what the folder had of the same suite."""
    store.sweep()
    if earlier is not None:
        plan = make_plan(plan.suite.joined(earlier.suite), {**earlier.facts, **plan.facts})
    store.write_json("methods.json", {name: f.to_dict() for name, f in plan.facts.items()})
    store.write_json("suite.json", plan.suite.to_dict())  # after what it takes to read it
    store.write_json("environment.json", environment())
    store.write_json("environments.json", _environments(store))
    return plan


def _environments(store: Store) -> dict[str, Any]:
    """Return every version that worked on the run, with the last environment of each."""
    try:
        known = store.read_json("environments.json")
    except StoreError:
        known = None
    now = environment()
    return {**(known if isinstance(known, dict) else {}), str(now["cel"]): now}


def _recorder(store: Store, watch: Watcher | None) -> Watcher:
    """Make the function that keeps failures and passes events on."""

    def record(event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind in ("fail", "skip"):
            status = event.get("status", "error") if kind == "fail" else "skip"
            names = ("label", "reason", "traceback")
            store.fail(event["key"], {"status": status, **{n: event.get(n, "") for n in names}})
        elif kind == "done":
            store.forgive(event["key"])
        store.log(**event)
        if watch is not None:
            watch(event)

    return record


def _summary(store: Store, plan: Plan, ran: int, seconds: float) -> RunSummary:
    states = Counter(state_of(store, cell) for cell in plan.cells)
    done, skipped, missing = (states.pop(name, 0) for name in ("done", "skip", "missing"))
    failed = sum(states.values())
    return RunSummary(len(plan.cells), ran, done, skipped, failed, seconds, missing)
