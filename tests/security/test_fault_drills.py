"""Long drills: whatever is killed, filled or lost, nothing finished is lost and scores are equal.

Every run ends in the identity that done, failed, skipped and missing add up (`RunSummary`).
"""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import cel.paths
from cel.benchmark import Store, run, score_tables
from cel.config import write_yaml

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
CLI = [sys.executable, "-c", "from cel.cli import main; main()"]
METHODS = {
    "honest": {"method": "hostile_methods:Honest"},
    "slow": {"method": "hostile_methods:Slow", "params": {"search_s": 0.3}},
    "cadex": None,
}


@pytest.fixture(scope="module")
def plan(suite):
    return suite | {"datasets": ["moons", "wine"], "methods": METHODS}


@pytest.fixture(scope="module")
def wanted(plan, tmp_path_factory):
    """The scores of an undisturbed run."""
    folder = tmp_path_factory.mktemp("calm") / "r"
    here = str(Path(__file__).parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(here)
        patch.setenv(
            "PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        )
        assert run(plan, folder).complete
    return (folder / "scores.parquet").read_bytes()


def _start(suite, out, *options):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*CLI, "run", str(suite), "--out", str(out), *options], **quiet)


def _below(pid):
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *_below(child)]
    return found


def _keys(folder):
    return {p.name for p in (folder / "objects" / "score").glob("*")}


@pytest.mark.skipif(
    os.environ.get("CEL_SLOW") != "all", reason="takes ten minutes; CEL_SLOW=all runs it"
)
def test_a_hundred_kills_of_the_runner(plan, wanted, tmp_path):
    write_yaml(tmp_path / "s.yaml", plan)
    chance, out, kills = random.Random(0), tmp_path / "r0", 0
    while kills < 100:
        process = _start(tmp_path / "s.yaml", out, "-j", "2")
        try:
            process.wait(timeout=chance.uniform(0.5, 12.0))
            assert (out / "scores.parquet").read_bytes() == wanted
            out = tmp_path / f"r{kills}"  # it finished before the blow: a fresh folder
        except subprocess.TimeoutExpired:
            before = _keys(out)
            process.kill()
            process.wait()
            kills += 1
            assert before <= _keys(out)
    assert _start(tmp_path / "s.yaml", out).wait(timeout=600) == 0
    assert (out / "scores.parquet").read_bytes() == wanted


def test_twenty_kills_of_workers_and_of_methods(plan, wanted, tmp_path):
    write_yaml(tmp_path / "s.yaml", plan)
    chance, kills, number = random.Random(1), 0, 0
    while kills < 20:
        process = _start(tmp_path / "s.yaml", tmp_path / f"r{number}", "-j", "2", "--retry-failed")
        while process.poll() is None:
            time.sleep(chance.uniform(0.5, 4.0))
            below = _below(process.pid)
            if below and kills < 20:
                kills += 1
                try:
                    os.kill(chance.choice(below), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        number += 1
    for i in range(number):
        again = _start(tmp_path / "s.yaml", tmp_path / f"r{i}", "--retry-failed")
        assert again.wait(timeout=600) == 0
        assert (tmp_path / f"r{i}" / "scores.parquet").read_bytes() == wanted


def test_two_runs_on_one_store(plan, wanted, tmp_path):
    write_yaml(tmp_path / "s.yaml", plan)
    both = [_start(tmp_path / "s.yaml", tmp_path / "r") for _ in range(2)]
    assert [p.wait(timeout=600) for p in both] == [0, 0]
    assert (tmp_path / "r" / "scores.parquet").read_bytes() == wanted
    assert not list((tmp_path / "r").glob("failures/*"))


def test_a_full_disk_at_ten_moments(plan, wanted, tmp_path, monkeypatch):
    """Writing in the runner fails at a random moment; the next run completes the rest."""
    chance, real = random.Random(2), cel.paths.replacing
    for i in range(10):
        left = [chance.randrange(1, 12)]

        def full(path, write, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            real(path, write)

        monkeypatch.setattr(cel.paths, "replacing", full)
        monkeypatch.setattr(score_tables, "replacing", full)
        try:
            run(plan, tmp_path / f"r{i}")
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017
        monkeypatch.setattr(cel.paths, "replacing", real)
        monkeypatch.setattr(score_tables, "replacing", real)
        assert run(plan, tmp_path / f"r{i}").complete
        assert (tmp_path / f"r{i}" / "scores.parquet").read_bytes() == wanted


def test_a_lost_scheduler(plan, wanted, tmp_path):
    pytest.importorskip("distributed", reason="dask is not installed")
    write_yaml(tmp_path / "s.yaml", plan)
    port = 20_000 + os.getpid() % 20_000
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    dask = [sys.executable, "-m", "dask"]
    address = f"tcp://127.0.0.1:{port}"
    scheduler = subprocess.Popen(
        [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"], **quiet
    )
    worker = subprocess.Popen(
        [*dask, "worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"], **quiet
    )
    options = ["--engine", "dask", "--address", address]
    command = [*CLI, "run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "r"), *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        deadline = time.monotonic() + 300
        while not _keys(tmp_path / "r") and time.monotonic() < deadline:
            time.sleep(0.2)
        scheduler.kill()
        said, _ = process.communicate(timeout=120)
    finally:
        for p in (process, worker, scheduler):
            p.kill()
            p.wait()
    assert process.returncode == 2
    assert "was lost" in said
    assert "Traceback (most recent" not in said.rpartition("error:")[2]
    assert run(plan, tmp_path / "r").complete
    assert (tmp_path / "r" / "scores.parquet").read_bytes() == wanted


def test_threads_that_write_one_store(tmp_path):
    """Many writers of the same entries: each is there once and whole."""
    store = Store(tmp_path / "s")

    def write(number):
        for key in ("a", "b", "c"):
            with store.writing("score", key, {"n": number}) as folder:
                (folder / "x").write_text(str(number) * 1000)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.keys("score") == ["a", "b", "c"]
    assert all(store.sound("score", k) for k in ("a", "b", "c"))
