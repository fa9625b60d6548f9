"""What a worker does before it forks, so that its forked processes need not."""

import gc
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cel.benchmark.apart import FORKS, apart
from cel.benchmark.early_imports import LIBRARIES
from cel.benchmark.plan import make_plan
from cel.benchmark.preflight import preflight
from cel.benchmark.spec import load_suite
from cel.benchmark.supervisor import Supervisor
from cel.cf_methods import METHODS
from cel.errors import ConfigError
from cel.space import FeatureSpace
from cel.testing.untouched import Witness

needs_forks = pytest.mark.skipif(not FORKS, reason="jobs run in the worker on this system")


@needs_forks
def test_a_job_does_not_look_through_the_objects_of_its_worker():
    """They are frozen in the forked process, and the worker's own collector goes on as before."""
    known, said = len(gc.get_objects()), []

    def job(say):
        say({"event": "stage", "stage": [gc.get_freeze_count(), len(gc.get_objects())]})

    ending = apart(job, said.append)
    assert ending.event == {"event": "ok"}
    frozen, looked_at = said[0]["stage"]
    assert frozen > 0.9 * known
    assert looked_at < 0.1 * known
    assert gc.get_freeze_count() == 0
    assert len(gc.get_objects()) > 0.9 * known


EARLY = """
import sys
from cel.benchmark.early_imports import import_early
before = set(sys.modules)
import_early(["tcrex", "a_stranger"])
print(*("sklearn.tree" in m for m in (before, sys.modules)))
print(*("torch._dynamo" in m for m in (before, sys.modules)))
print("botorch" in sys.modules)
"""


def test_libraries_of_the_methods_of_a_run_are_imported_early():
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True)
    assert done.stdout == "False True\nFalse True\nFalse\n", done.stdout + done.stderr[-500:]


def test_libraries_are_listed_for_methods_that_exist():
    assert set(LIBRARIES) <= set(METHODS)


def test_what_was_altered_is_told_by_its_full_name(monkeypatch):
    """Functions, methods and classes that were replaced, and what is no longer there."""
    witness, here = Witness({}), sys.modules[FeatureSpace.__module__]
    assert witness.changes() == []
    with monkeypatch.context() as patch:
        patch.setattr(torch, "manual_seed", lambda seed: None)
        patch.setattr(FeatureSpace, "vector", lambda self, name: None)
        patch.delattr(torch, "relu")
        told = {"torch.manual_seed", "torch.relu", f"{here.__name__}.FeatureSpace.vector"}
        assert set(witness.changes()) == told
    assert witness.changes() == []
    with monkeypatch.context() as patch:
        patch.setattr(here, "FeatureSpace", object)
        assert witness.changes() == [f"{here.__name__}.FeatureSpace"]
        patch.delitem(sys.modules, here.__name__)
        assert f"{here.__name__}.Feature" in witness.changes()


@pytest.mark.parametrize(("device", "seen"), [("cpu", ""), ("cuda", "3")])
def test_workers_on_cores_see_no_gpu(tmp_path, monkeypatch, device, seen):
    """Gradients that metrics compute beside a GPU would leave forked methods without autograd."""
    started = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(
        "cel.benchmark.supervisor.subprocess.Popen", lambda *_, **kw: started.append(kw["env"])
    )
    Supervisor(tmp_path, jobs=1, device=device, report=print, log=tmp_path / "log")._start()
    assert started[0]["CUDA_VISIBLE_DEVICES"] == seen


def test_metrics_that_train_models_are_refused_beside_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr("cel.benchmark.preflight.check_machine", lambda **_: None)
    plan = make_plan(load_suite("robust"))
    with pytest.raises(ConfigError, match=r"retraining_seeds.*cores only.*leave out --device"):
        preflight(plan, tmp_path / "r", device="cuda")
    preflight(plan, tmp_path / "r")
    preflight(make_plan(load_suite("smoke")), tmp_path / "r", device="cuda")


@needs_forks
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep their ways")
def test_forked_jobs_keep_the_memory_that_they_free():
    def resident():  # MB; counts of page faults would depend on the size of pages
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def kept():
        before = resident()
        table = torch.ones(2**24)  # 64 MB
        del table
        return resident() - before

    said = []
    ending = apart(lambda say: say({"event": "stage", "stage": kept()}), said.append)
    assert ending.event == {"event": "ok"}
    assert said[0]["stage"] > 60  # nothing was given back to the system
