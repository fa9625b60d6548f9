import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _drill_methods_can_be_imported(monkeypatch):
    """Workers are processes of their own; they find the drill methods by PYTHONPATH."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    )
    monkeypatch.syspath_prepend(str(HERE))
    yield
    sys.modules.pop("drill_methods", None)


@pytest.fixture
def tiny():
    """Four blocks of three quick cells."""
    return {
        "name": "tiny",
        "datasets": ["moons", "wine"],
        "folds": [0, 1],
        "classifiers": {"lr": {}},
        "density": {"model": "gmm"},
        "max_rows": 6,
        "metrics": "default.yaml",
        "extra_metrics": [],
        "limits": {"time_s": 20, "grace_s": 20, "train_s": 30, "memory_mb": 3000},
        "methods": {
            "shells": {"method": "drill_methods:Shells"},
            "slow": {"method": "drill_methods:SlowShells"},
            "again": {"method": "drill_methods:Shells", "params": {"random_state": 7}},
        },
    }
