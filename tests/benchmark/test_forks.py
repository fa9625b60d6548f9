"""What a worker does before it forks, so that its forked processes need not."""

import gc
import subprocess
import sys

import pytest
import torch

from cel.benchmark.apart import FORKS, apart
from cel.benchmark.early_imports import LIBRARIES
from cel.cf_methods import METHODS
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
