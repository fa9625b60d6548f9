"""benchmarks/bytes.py: which differences between two checkouts are allowed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import yaml

from cel.benchmark import load_suite

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def guard():
    spec = importlib.util.spec_from_file_location("guard", ROOT / "benchmarks" / "bytes.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def _cell(name, answers, scores, version):
    return {(name, "answers"): answers, (name, "scores"): scores, (name, "version"): version}


def test_only_a_risen_version_may_differ(guard):
    now = _cell("same", "a", "s", 1) | _cell("risen", "b", "t", 2) | _cell("moved", "c", "u", 1)
    now |= _cell("score", "d", "v", 1) | _cell("new", "e", "w", 1)
    before = now | _cell("risen", "B", "t", 1) | _cell("moved", "C", "u", 1)
    before |= _cell("score", "d", "V", 1) | _cell("gone", "f", "x", 1)
    before = {k: v for k, v in before.items() if k[0] != "new"}
    equal, risen, wrong = guard.verdict(guard.table(now, before))
    assert (equal, risen) == (["same"], ["risen"])
    assert wrong == ["gone", "moved", "new", "score"]


def test_checksums_see_values_types_and_shapes(guard):
    x = np.array([[0.0, 1.0]])
    others = [x.astype(np.float32), x.T, x + 1e-16, np.array([[-0.0, 1.0]]), None]
    assert len({guard.digest(v) for v in (x, *others)}) == 1 + len(others)
    assert guard.digest(x) == guard.digest(x.copy())


@pytest.mark.parametrize("name", ["smoke", "quick"])
def test_the_suites_of_the_guard_name_classes(name):
    path = ROOT / "benchmarks" / f"bytes_{name}.yaml"
    suite = load_suite(path)
    assert all(":" in m.method for m in suite.methods)
    assert {m.label for m in suite.methods} == set(yaml.safe_load(path.read_text())["methods"])
    assert len(suite.methods) == 15
