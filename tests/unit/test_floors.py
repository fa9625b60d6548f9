"""benchmarks/floors.py: operations that are counted, and where computing is found."""

import runpy
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from cel.search import row_gradient

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # as where the script is started
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "floors.py"))
sys.path.remove(str(ROOT / "benchmarks"))


def _counted(work):
    with SCRIPT["Counted"]() as counted:
        work()
    return counted.operations


A, B, C = torch.ones(5, 3), torch.ones(3, 7), torch.eye(4) + torch.ones(4, 4)


@pytest.mark.parametrize(
    ("work", "operations"),
    [
        (lambda: A @ B, 2 * 5 * 3 * 7),
        (lambda: torch.mm(A, B, out=torch.empty(5, 7)), 2 * 5 * 3 * 7),
        (lambda: torch.addmm(torch.ones(7), A, B), 2 * 5 * 3 * 7),
        (lambda: torch.nn.functional.linear(A, B.T, torch.ones(7)), 2 * 5 * 3 * 7),
        (lambda: torch.ones(2, 5, 3) @ torch.ones(2, 3, 7), 2 * 2 * 5 * 3 * 7),
        (
            lambda: torch.baddbmm(torch.ones(2, 5, 7), torch.ones(2, 5, 3), torch.ones(2, 3, 7)),
            420,
        ),
        (lambda: A @ torch.ones(3), 2 * 5 * 3),
        (lambda: torch.cdist(A, torch.ones(6, 3)), 3 * 5 * 6 * 3),
        (lambda: torch.linalg.cholesky_ex(C), 4**3 / 3),
        (lambda: torch.linalg.solve_triangular(C, torch.ones(4, 2), upper=True), 4 * 4 * 2),
        (lambda: torch.cholesky_solve(torch.ones(4, 2), C), 2 * 4 * 4 * 2),
        (lambda: A + 1, 0),
    ],
)
def test_operations_are_counted(work, operations):
    assert _counted(work) == pytest.approx(operations)


def test_a_gradient_counts_its_own_products():
    weight = torch.ones(3, 2)
    forward = 2 * 5 * 3 * 2

    def work():
        row_gradient(lambda x, _: (x @ weight).square().sum(1), A, torch.arange(5))

    assert _counted(work) == 2 * forward  # one product forward, one back to the rows


def test_computing_is_found_in_the_module_that_asks():
    from cel.cf_methods.local_methods.cearm.goal import expected_gain

    levels = torch.rand(400, 400, dtype=torch.float64) / 3
    with SCRIPT["sampled"]() as found:
        until = time.process_time() + 0.3
        while time.process_time() < until:
            expected_gain(levels, levels + 0.1, levels)
    assert found["cearm.goal"] > 0.8 * sum(found.values()) > 20
    assert SCRIPT["shares"](found).startswith("`cearm.goal` ")


def test_work_is_done_twice_and_told_apart():
    done = []

    def work():
        done.append("work")
        return A @ B

    operations, spent, _ = SCRIPT["measured"](work, lambda: done.append("again"))
    assert done == ["work", "again", "work"]
    assert operations == 2 * 5 * 3 * 7
    assert spent >= 0


def test_lines_tell_seconds_floor_and_gap():
    made = SCRIPT["table"]([("a", (4e9, 6.0, Counter())), ("b", (0.0, 1.0, Counter()))], 2e9)
    assert made.splitlines()[2:] == ["| a | 6.00 | 2 | 3.0 |  |", "| b | 1.00 | 0 |  |  |"]
