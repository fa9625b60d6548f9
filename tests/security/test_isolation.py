"""Methods cannot touch each other, and every cell is accounted for."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import cel.benchmark.worker as worker_module
from cel.benchmark import Store, collect, make_plan, open_run, run
from cel.benchmark.runner import RunSummary, pending_tasks
from cel.benchmark.spec import Suite
from cel.benchmark.supervisor import MAX_LOG, Supervisor
from cel.benchmark.tasks import WorkItem

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def _named(*names, **params):
    """Offenders first, then the honest method, then a packaged one."""
    out = {n.lower(): {"method": f"hostile_methods:{n}"} for n in names}
    return out | {"honest": {"method": "hostile_methods:Honest"}, "cadex": None}


def _scores(folder):
    table = collect(*open_run(folder), times=False)
    kept = table[table["method"].isin(["honest", "cadex"])].reset_index(drop=True)
    return kept.to_csv(index=False)


@pytest.fixture(scope="module")
def calm(suite, tmp_path_factory):
    """The scores of the honest methods when they are alone."""
    sys.path.insert(0, str(Path(__file__).parent))
    folder = tmp_path_factory.mktemp("calm") / "r"
    with pytest.MonkeyPatch.context() as patch:
        here = str(Path(__file__).parent)
        patch.setenv(
            "PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        )
        summary = run(suite | {"methods": _named()}, folder)
    assert summary.done == summary.total == 2
    return _scores(folder)


def _run(suite, folder, *names, **limits):
    events = []
    changed = suite | {"methods": _named(*names), "limits": suite["limits"] | limits}
    summary = run(changed, folder, watch=events.append)
    assert summary.done + summary.failed + summary.skipped + summary.missing == summary.total
    counted = Counter(e["event"] for e in events if e.get("key"))
    assert counted["done"] + counted["fail"] + counted["skip"] == summary.ran
    store, plan = open_run(folder)
    reasons = {c.method.label: store.failure(c.score_key) for c in plan.cells}
    return summary, {k: v for k, v in reasons.items() if v is not None}, events


MEDDLERS = ("ChangesRows", "ChangesModel", "Patches", "LowRecursion", "MovesAway", "MutatesQuery")


def test_what_one_method_changes_no_other_sees(suite, calm, tmp_path, monkeypatch):
    """D2 and D3, in one process tree: rows, model, modules, settings, working directory."""
    monkeypatch.chdir(tmp_path)
    summary, _, events = _run(suite, "r", *MEDDLERS)
    assert _scores(tmp_path / "r") == calm
    assert summary.missing == 0
    said = {e["label"].rpartition("/")[2]: e["what"] for e in events if e["event"] == "altered"}
    assert said["changesrows"] == ["the rows"]
    assert said["changesmodel"] == ["the model"]
    assert said["movesaway"] == ["the working directory"]
    assert said["lowrecursion"] == ["sys.setrecursionlimit"]
    assert "cel.space.region.Region.contains" in said["patches"]
    assert "honest" not in said
    assert "mutatesquery" not in said


@pytest.mark.slow
def test_without_fork_a_fresh_worker_goes_on(suite, calm, tmp_path, monkeypatch):
    """Where the system cannot fork, the check after each method ends the worker."""
    monkeypatch.setenv("CEL_NO_FORK", "1")
    summary, reasons, events = _run(suite, tmp_path / "r", *MEDDLERS)
    assert summary.missing == 0
    assert set(reasons) <= {"patches", "lowrecursion", "changesmodel"}
    assert _scores(tmp_path / "r") == calm
    assert {e["label"].rpartition("/")[2] for e in events if e["event"] == "altered"} >= {
        "changesrows", "changesmodel", "movesaway",
    }  # fmt: skip


@pytest.mark.slow
def test_nonsense_ends_and_silence_are_failures_by_name(suite, calm, tmp_path):
    """D5 and the low ones: one failure per offender, with the true reason; others unharmed."""
    names = ("Garbage", "Liar", "Exits", "SystemExits", "Interrupts", "Talks", "Mute", "Prints")
    summary, reasons, _ = _run(suite, tmp_path / "r", *names)
    assert (summary.done, summary.failed, summary.missing) == (3, 7, 0)
    assert "wrote into the channel" in reasons["garbage"]["reason"]
    assert "wrote into the channel" in reasons["liar"]["reason"]
    assert "exit code 3" in reasons["exits"]["reason"]
    assert reasons["systemexits"]["reason"] == "SystemExit: 4"
    assert reasons["interrupts"]["reason"].startswith("KeyboardInterrupt")
    assert reasons["talks"]["status"] == "error"
    assert len(reasons["talks"]["reason"]) < 3_000
    assert len(reasons["talks"]["traceback"]) < 30_000
    assert reasons["mute"]["reason"] == "Unspeakable"
    assert (tmp_path / "r" / "workers.log").stat().st_size <= MAX_LOG
    assert _scores(tmp_path / "r") == calm
    assert not summary.complete


def _sleepers():
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if line.startswith("sleep 271")]


@pytest.mark.slow
def test_children_count_and_end_with_their_method(suite, calm, tmp_path):
    """D19: the memory of children counts, none survives, and none holds the worker up."""
    names = ("HogChild", "LeavesChild", "DiesWithChild")
    summary, reasons, _ = _run(suite, tmp_path / "r", *names, memory_mb=1500)
    assert reasons["hogchild"]["status"] == "memory"
    assert "exit code 5" in reasons["dieswithchild"]["reason"]
    assert (summary.done, summary.failed) == (3, 2)
    assert _scores(tmp_path / "r") == calm
    assert _sleepers() == []


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "limit"), [("fit_s", "train_s"), ("search_s", "time_s")])
def test_the_deadline_is_the_documented_one(suite, tmp_path, phase, limit):
    """Learning may take train_s, searching time_s, each with grace_s before the blow falls."""
    slow = {"slow": {"method": "hostile_methods:Slow", "params": {phase: 60}}}
    generous = {"time_s": 900, "train_s": 900, "grace_s": 1.5}
    limits = suite["limits"] | generous | {limit: 1.5}
    events = []
    summary = run(suite | {"methods": slow, "limits": limits}, tmp_path / "r", watch=events.append)
    assert summary.failed == 1
    (lost,) = [e for e in events if e["event"] == "fail"]
    assert lost["status"] == "timeout"
    assert summary.seconds < 55


# -- accounting ------------------------------------------------------------------------------


def test_a_summary_that_does_not_add_up_is_impossible():
    with pytest.raises(AssertionError, match="accounted"):
        RunSummary(total=3, ran=3, done=1, skipped=0, failed=1, seconds=0.0, missing=0)


def _tasks(suite, store):
    plan = make_plan(Suite.from_dict(suite | {"methods": ["wachter", "cadex"]}))
    tasks = pending_tasks(plan, store)
    for task in tasks:
        task.facts = {name: fact.to_dict() for name, fact in plan.facts.items()}
    return tasks


def test_a_dead_thread_ends_the_run_with_its_error(suite, tmp_path):
    """D5: an exception while reporting ended a thread, and the run said 0 failed."""
    store = Store(tmp_path / "s")

    def report(event):
        raise OSError(28, "No space left on device")

    supervisor = Supervisor(store.root, report=report, log=store.root / "workers.log")
    with pytest.raises(OSError, match="No space"):
        supervisor.run(_tasks(suite, store))


def _work(task, store):
    events = []
    worker_module.work(task, str(store.root), "cpu", events.append)
    return events


def test_a_worker_of_another_version_fails_its_cells_by_name(suite, tmp_path, monkeypatch):
    """D13: nothing was done, nothing failed, and the cells stayed missing."""
    store = Store(tmp_path / "s")
    (task,) = _tasks(suite, store)
    task.version = "0.0.1"
    events = []
    supervisor = Supervisor(store.root, report=events.append, log=store.root / "workers.log")
    supervisor.run([task])
    failed = [e for e in events if e["event"] == "fail"]
    assert len(failed) == 2
    assert all("0.0.1" in e["reason"] for e in failed)


def test_a_worker_with_other_stages_fails_its_cells_by_name(suite, tmp_path, monkeypatch):
    store = Store(tmp_path / "s")
    (task,) = _tasks(suite, store)
    monkeypatch.setitem(sys.modules["cel.benchmark.plan"].STAGE_VERSION, "explain", 99)
    events = _work(json.loads(task.line()), store)
    failed = [e for e in events if e["event"] == "fail"]
    assert {e["key"] for e in failed} == set(task.cells)
    assert all("other stages" in e["reason"] for e in failed)


def test_another_version_of_a_method_is_refused(suite, tmp_path):
    """Cells of a method that is another one here fail by name, whatever key they get."""
    store = Store(tmp_path / "s")
    (task,) = _tasks(suite, store)
    task.facts["cadex"] = task.facts["cadex"] | {"version": 0}
    events = _work(json.loads(task.line()), store)
    failed = [e for e in events if e["event"] == "fail"]
    assert len(failed) == 1
    assert "version" in failed[0]["reason"]


def test_workers_are_never_more_than_cores(tmp_path, monkeypatch):
    """`-j 8` on two cores took five times as long as `-j 1`: every start costs seconds."""
    import cel.benchmark.supervisor as supervisor_module
    from cel.benchmark.processes import usable_cores

    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert usable_cores(tmp_path / "cpu.max") == min(2, usable_cores(tmp_path / "none"))
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cores(tmp_path / "cpu.max") == usable_cores(tmp_path / "none")
    monkeypatch.setattr(supervisor_module, "usable_cores", lambda: 2)
    served = []
    monkeypatch.setattr(Supervisor, "_serve", lambda self: served.append(1))
    supervisor = Supervisor(tmp_path, jobs=8, report=print, log=tmp_path / "log")
    supervisor.run([WorkItem({}, "moons", 0, "mlp", [])] * 8)
    assert len(served) == 2


def test_an_unreachable_scheduler_is_one_error(tmp_path):
    """It was a traceback of distributed."""
    from cel.benchmark.cluster import run_on_dask
    from cel.errors import ClusterError

    pytest.importorskip("distributed", reason="dask is not installed")
    import dask

    quick = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with quick, pytest.raises(ClusterError, match="no dask scheduler answers"):
        run_on_dask([], tmp_path, "tcp://127.0.0.1:9", 1, "cpu", print)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("ChangesRows", "the training rows"),
        ("MovesAway", "the working directory"),
        ("LowRecursion", "sys.setrecursionlimit"),
    ],
)
def test_the_contract_tells_the_author(name, what, monkeypatch):
    import hostile_methods

    from cel.testing.contract import untouched
    from cel.testing.problems import PROBLEMS

    monkeypatch.chdir(Path(__file__).parent)
    limit = sys.getrecursionlimit()
    try:
        with pytest.raises(AssertionError, match=what):
            untouched(getattr(hostile_methods, name), PROBLEMS["binary_numeric"]())
    finally:
        sys.setrecursionlimit(limit)
    untouched(hostile_methods.Honest, PROBLEMS["binary_numeric"]())


FRESH = """
from cel.cf_methods import METHODS
from cel.testing.problems import PROBLEMS
from cel.testing.untouched import Witness

problem = PROBLEMS["binary_numeric"]()
witness = Witness({"the rows": problem.x_train})
method = METHODS.get(NAME)
problem.explain(problem.fitted(method))
print(witness.changes())
"""


@pytest.mark.parametrize("name", ["cchvae"])
def test_the_first_training_of_a_process_is_nobodys_deed(name):
    """torch imports its compiler at the first optimizer; the method is not told off for it."""
    code = FRESH.replace("NAME", repr(name))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr[-500:]
