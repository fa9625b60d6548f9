"""Kill drills: whatever is killed, the final scores equal those of an undisturbed run."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cel.benchmark import run
from cel.config import write_yaml

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find workers"),
]
CLI = [sys.executable, "-c", "from cel.cli import main; main()"]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The undisturbed scores, computed once."""
    return {}


def _undisturbed(cache, tiny, tmp_path_factory):
    if "bytes" not in cache:
        folder = tmp_path_factory.mktemp("calm")
        assert run(tiny, folder / "r").done == 12
        cache["bytes"] = (folder / "r" / "scores.parquet").read_bytes()
    return cache["bytes"]


def _children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def _start(suite, out, *options):
    command = [*CLI, "run", str(suite), "--out", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_killing_the_runner_twenty_times(tiny, tmp_path, wanted, tmp_path_factory):
    expected = _undisturbed(wanted, tiny, tmp_path_factory)
    suite = tmp_path / "tiny.yaml"
    write_yaml(suite, tiny)
    chance, kills, number = random.Random(0), 0, 0
    while kills < 20:
        process = _start(suite, tmp_path / f"r{number}", "-j", "2")
        try:
            process.wait(timeout=chance.uniform(0.5, 7.0))
            number += 1  # it finished before the blow: go on with a fresh folder
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    for i in range(number + 1):
        assert _start(suite, tmp_path / f"r{i}").wait(timeout=120) == 0
        assert (tmp_path / f"r{i}" / "scores.parquet").read_bytes() == expected
        assert not list((tmp_path / f"r{i}").glob("failures/*"))


def test_workers_end_with_the_runner(tiny, tmp_path):
    suite = tmp_path / "tiny.yaml"
    write_yaml(suite, tiny)
    process = _start(suite, tmp_path / "r", "-j", "2")
    deadline = time.monotonic() + 60
    while not (workers := _children(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert workers
    process.kill()
    process.wait()
    while time.monotonic() < deadline and any(Path(f"/proc/{w}").exists() for w in workers):
        time.sleep(0.2)
    assert not [w for w in workers if Path(f"/proc/{w}").exists()]


def test_killing_workers(tiny, tmp_path, wanted, tmp_path_factory):
    expected = _undisturbed(wanted, tiny, tmp_path_factory)
    suite = tmp_path / "tiny.yaml"
    write_yaml(suite, tiny)
    process = _start(suite, tmp_path / "r", "-j", "2", "--retry-failed")
    for pause in (6.0, 4.0, 5.0):
        time.sleep(pause)
        for worker in _children(process.pid)[:1]:
            os.kill(worker, signal.SIGKILL)
    assert process.wait(timeout=180) == 0
    assert _start(suite, tmp_path / "r", "--retry-failed").wait(timeout=120) == 0
    assert (tmp_path / "r" / "scores.parquet").read_bytes() == expected


@pytest.mark.parametrize("begun", [True, False])
def test_ctrl_c_says_how_to_go_on(tiny, tmp_path, begun):
    suite = tmp_path / "tiny.yaml"
    write_yaml(suite, tiny)
    command = [*CLI, "run", str(suite), "--out", str(tmp_path / "r")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    log, deadline = tmp_path / "r" / "log.jsonl", time.monotonic() + 60
    while time.monotonic() < deadline:
        if '"start"' in log.read_text() if begun and log.exists() else not begun:
            break
        time.sleep(0.1)
    while not (workers := _children(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)  # until workers import, which they begin before the plan is made
    assert workers
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in output
    while time.monotonic() < deadline and any(Path(f"/proc/{w}").exists() for w in workers):
        time.sleep(0.1)
    assert not [w for w in workers if Path(f"/proc/{w}").exists()]
    if not begun:  # it was still planning: there is nothing to go on with
        return
    assert "Go on with" in output
    assert (tmp_path / "r" / "scores.parquet").exists(), "the table of what is finished"


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_dask_with_a_worker_killed(tiny, tmp_path, wanted, tmp_path_factory):
    expected = _undisturbed(wanted, tiny, tmp_path_factory)
    suite = tmp_path / "tiny.yaml"
    write_yaml(suite, tiny)
    address = f"tcp://127.0.0.1:{_free_port()}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [sys.executable, "-m", "dask"]
    scheduler = subprocess.Popen(
        [*dask, "scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2],
         "--no-dashboard"], **quiet,
    )  # fmt: skip
    worker = [*dask, "worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    workers = [subprocess.Popen(worker, cwd=tmp_path, **quiet) for _ in range(2)]
    process = _start(suite, tmp_path / "r", "--engine", "dask", "--address", address)
    try:
        deadline = time.monotonic() + 120
        scores = tmp_path / "r" / "objects" / "score"
        while not (scores.exists() and any(scores.iterdir())) and time.monotonic() < deadline:
            time.sleep(0.2)
        workers[0].kill()
        assert process.wait(timeout=180) == 0
    finally:
        for p in (process, *workers, scheduler):
            p.kill()
            p.wait()
    assert (tmp_path / "r" / "scores.parquet").read_bytes() == expected
