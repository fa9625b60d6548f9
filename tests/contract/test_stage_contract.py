"""Stages that the portfolio has in a form of its own are held against known answers, too."""

import pytest

from cel.door.stage_methods import OWN
from cel.testing import CHECKS, PROBLEMS, TREE_PROBLEMS, NotAsked
from cel.testing.contract import applicable

PLACES = ("mixed", "binary_curved", "three_classes", "trees_mixed", "trees_related")


@pytest.mark.parametrize("check", ["feasible", "valid", "contradiction", "unanswerable"])
@pytest.mark.parametrize("problem", PLACES)
@pytest.mark.parametrize("stage", OWN)
def test_stages_of_the_portfolio(stage, problem, check):
    p = (PROBLEMS | TREE_PROBLEMS)[problem]()
    refusal = applicable(OWN[stage], p)
    if refusal is not None:
        pytest.skip(f"declared unsupported: {refusal}")
    try:
        CHECKS[check](OWN[stage], p)
    except NotAsked as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("stage", OWN)
def test_each_stage_is_asked_somewhere(stage):
    asked = [n for n in PLACES if applicable(OWN[stage], (PROBLEMS | TREE_PROBLEMS)[n]()) is None]
    assert len(asked) >= 2
