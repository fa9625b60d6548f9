"""Workers that are forked from one process which has imported everything."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cel.benchmark import hatched
from cel.benchmark.hatched import HATCHES, Nursery
from cel.benchmark.processes import Lines
from cel.benchmark.supervisor import Supervisor

pytestmark = pytest.mark.skipif(not HATCHES, reason="needs Linux with pidfd and fork")


def _made(folder, methods=("wachter",)):
    return Nursery(folder, "cpu", methods, dict(os.environ), folder / "log")


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


def test_without_a_nursery_workers_are_started(tmp_path, monkeypatch):
    """One that cannot fork is tried once."""
    tried, started = [], []

    class Barren:
        ended = False

        def __init__(self, *_):
            tried.append(self)

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
        "import os, sys, time, pathlib; from cel.benchmark.hatched import Nursery\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "nursery = Nursery(folder, 'cpu', ['wachter'], dict(os.environ), folder / 'log')\n"
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
