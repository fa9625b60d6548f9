"""Workers that are forked from one process which has imported everything."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cel.benchmark.plan
from cel.benchmark import Store, cluster, hatched, load_suite, make_plan
from cel.benchmark.hatched import HATCHES, Nursery
from cel.benchmark.named import import_folders
from cel.benchmark.processes import Lines
from cel.benchmark.runner import pending_tasks
from cel.benchmark.supervisor import Supervisor
from cel.cli.app import app

pytestmark = pytest.mark.skipif(not HATCHES, reason="needs Linux with pidfd and fork")


def _made(folder, methods=("wachter",)):
    nursery = Nursery("cpu")
    nursery.serve(folder, methods, folder / "log")
    return nursery


def _hatched(nursery):
    worker = nursery.hatch(lambda: False)
    assert worker is not None
    lines, said = Lines(worker.stdout.fileno()), []
    deadline = time.monotonic() + 30
    while not said and time.monotonic() < deadline:
        said = lines.ready(1.0)
    assert b'"ready"' in said[0]
    assert f'"pid": {worker.pid}'.encode() in said[0]
    return worker


def _gone(pid, seconds=10.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def _left(*workers):
    for worker in workers:
        for pipe in (worker.stdin, worker.stdout, worker.stderr):
            pipe.close()


def test_workers_of_a_nursery_end_each_for_itself_and_not_with_it(tmp_path):
    nursery = _made(tmp_path)
    one, two, three = (_hatched(nursery) for _ in range(3))
    assert len({one.pid, two.pid, three.pid}) == 3
    assert os.getpgid(one.pid) == one.pid
    assert [w.poll() for w in (one, two, three)] == [None] * 3
    os.kill(one.pid, signal.SIGTERM)
    assert one.wait() == one.poll() == -signal.SIGTERM
    two.stdin.close()  # a worker ends with its input
    assert two.wait() == 0
    assert three.poll() is None
    assert not nursery.ended
    nursery._process.kill()
    nursery._process.wait()
    assert nursery.ended
    assert nursery.hatch(lambda: False) is None
    time.sleep(0.7)
    assert three.poll() is None  # goes on without it
    three.stdin.close()
    assert three.wait() == -9  # nobody is left who knows better
    nursery.close()
    _left(one, two, three)


def test_nobody_waits_for_a_nursery_when_the_run_ends(tmp_path):
    nursery = _made(tmp_path)
    began = time.monotonic()
    assert nursery.hatch(lambda: True) is None  # it is still importing
    nursery.close()
    assert time.monotonic() - began < 3
    assert nursery.ended


def test_a_nursery_that_nobody_used_is_not_waited_for():
    nursery = Nursery("cpu")
    began = time.monotonic()
    nursery.close()
    assert nursery.ended
    assert time.monotonic() - began < 0.5
    nursery.close()  # the supervisor closes it, and so does who began it


def test_what_a_nursery_prints_before_it_has_a_log_is_kept(tmp_path, monkeypatch):
    """Also while it imports, and also what its own imports print."""
    (tmp_path / "sitecustomize.py").write_text("import sys; print('early', file=sys.stderr)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    nursery = Nursery("cpu")
    (tmp_path / "log").write_text("of an earlier run\n")
    nursery.serve(tmp_path, ["wachter"], tmp_path / "log")
    nursery.serve(tmp_path / "other", ["wachter"], tmp_path / "never")  # the first time counts
    worker = _hatched(nursery)
    nursery.close()
    assert (tmp_path / "log").read_text() == "of an earlier run\nearly\n"
    assert not (tmp_path / "never").exists()
    worker.stdin.close()
    worker.wait()
    _left(worker)


def test_a_nursery_that_died_before_it_was_asked_is_replaced(tmp_path):
    nursery = Nursery("cpu")
    nursery._process.kill()
    nursery._process.wait()
    nursery.serve(tmp_path, ["wachter"], tmp_path / "log")  # nobody is there; no error
    supervisor = Supervisor(tmp_path, jobs=2, report=print, log=tmp_path / "log", nursery=nursery)
    supervisor._methods = ["wachter"]
    worker = supervisor._start()
    assert supervisor._nursery is not nursery
    supervisor._nursery.close()
    worker.stdin.close()
    assert worker.wait() in (0, -9)
    _left(worker)


def test_the_command_begins_to_import_before_it_plans(tmp_path, monkeypatch):
    """One nursery, begun by the command, serves the run; none where a run is there already."""
    begun, planned = [], []
    monkeypatch.chdir(tmp_path)
    real = Nursery.__init__

    def noted(self, device):
        begun.append((device, len(planned)))
        real(self, device)

    monkeypatch.setattr(Nursery, "__init__", noted)
    monkeypatch.setattr("cel.benchmark.processes.usable_cores", lambda: 2)
    monkeypatch.setattr("cel.benchmark.supervisor.usable_cores", lambda: 2)
    plan = cel.benchmark.plan.make_plan
    monkeypatch.setattr(cel.benchmark.plan, "make_plan", lambda *a: planned.append(a) or plan(*a))
    monkeypatch.delattr(Supervisor, "_started")  # no worker imports for itself
    for jobs, more, count in (
        ("2", [], 1),
        ("2", [], 1),
        ("1", ["--out", "other", "--dry-run"], 1),
        ("1", ["--out", "other"], 2),
    ):
        asked = ["run", "smoke", "-d", "moons", "-m", "wachter", "-j", jobs, "--alone", *more]
        planned.clear()
        result = CliRunner().invoke(app, asked)
        assert result.exit_code == 0, result.output
        assert begun == [("cpu", 0)] * count
        assert planned


def test_without_a_nursery_workers_are_started(tmp_path, monkeypatch):
    """One that cannot fork is tried once."""
    tried, started = [], []

    class Barren:
        ended = False

        def __init__(self, _):
            tried.append(self)

        def serve(self, *_):
            pass

        def hatch(self, _):
            return None

    monkeypatch.setattr("cel.benchmark.supervisor.Nursery", Barren)
    monkeypatch.setattr(Supervisor, "_started", lambda self: started.append(self))
    supervisor = Supervisor(tmp_path, jobs=2, report=print, log=tmp_path / "log")
    supervisor._methods = ["wachter"]
    for _ in range(3):
        supervisor._start()
    assert (len(tried), len(started)) == (1, 3)


def test_a_system_without_descriptors_of_processes_hatches_nothing(monkeypatch):
    def refuse(_):
        raise OSError("not implemented")

    assert hatched._hatches()
    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert not hatched._hatches()


@pytest.mark.slow
def test_workers_end_with_the_runner(tmp_path):
    code = (
        "import time, pathlib; from cel.benchmark.hatched import Nursery\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "nursery = Nursery('cpu')\n"
        "nursery.serve(folder, ['wachter'], folder / 'log')\n"
        "worker = nursery.hatch(lambda: False)\n"
        "print(worker.pid, nursery._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    worker, nursery = map(int, runner.stdout.readline().split())
    assert not _gone(worker, 0.2)
    runner.kill()
    runner.communicate()
    assert _gone(worker)
    assert _gone(nursery)


def test_blocks_of_a_run_on_dask_are_forked_from_one_nursery(tiny, tmp_path, monkeypatch):
    plan = make_plan(load_suite(tiny))
    store = Store(tmp_path / "r")
    tasks = pending_tasks(plan, store)
    for task in tasks:
        task.facts = {name: fact.to_dict() for name, fact in plan.facts.items()}
        task.folders = import_folders(plan.suite)
    made = []
    usual = cluster.Nursery

    def begun(device):
        made.append(usual(device))
        return made[-1]

    monkeypatch.setattr(cluster, "Nursery", begun)
    monkeypatch.setattr(Supervisor, "_started", lambda self: pytest.fail("it imports for itself"))
    try:
        for task in tasks[:2]:
            events = cluster.run_task(task.plain(), str(store.root), "cpu")
            assert [e["event"] for e in events].count("done") == len(task.cells)
        assert len(made) == 1
        assert not made[0].ended
        assert cluster._nursery(tmp_path / "other", "cpu") is made[1]  # of another run
        assert made[0].ended
        made[1]._process.kill()
        made[1]._process.wait()
        assert cluster._nursery(tmp_path / "other", "cpu") is made[2]
    finally:
        for _, nursery in cluster._kept:
            nursery.close()
        cluster._kept.clear()
