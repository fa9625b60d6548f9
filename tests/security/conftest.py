import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _hostile_methods_can_be_imported(monkeypatch):
    """Workers are processes of their own; they find the methods by PYTHONPATH."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    )
    monkeypatch.syspath_prepend(str(HERE))
    yield
    sys.modules.pop("hostile_methods", None)


@pytest.fixture(scope="session")
def suite():
    """One block; methods are filled in by the tests."""
    return {
        "name": "tiny",
        "datasets": ["moons"],
        "folds": [0],
        "classifiers": {"lr": {}},
        "density": {"model": "gmm"},
        "max_rows": 4,
        "extra_metrics": [],
        "limits": {"time_s": 60, "grace_s": 60, "train_s": 120, "memory_mb": 3000},
    }
