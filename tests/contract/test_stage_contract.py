"""Stages that the portfolio has in a form of its own keep the contract of provers, too."""

import pytest

from cel.door.stage_methods import OWN
from cel.testing import CHECKS, PROBLEMS, TREE_PROBLEMS

TREES = ("trees_mixed", "trees_three_classes", "trees_regression", *TREE_PROBLEMS)


@pytest.mark.parametrize("check", ["feasible", "valid", "contradiction", "unanswerable", "alone"])
@pytest.mark.parametrize("problem", TREES)
def test_cells_or_proof(problem, check):
    CHECKS[check](OWN["cells"], (PROBLEMS | TREE_PROBLEMS)[problem]())


def test_all_stages_that_prove_are_drilled_here():
    assert [n for n, cls in OWN.items() if cls.proves] == ["cells"]
