"""Checks that every method must pass, for our tests and for those of other packages."""

from __future__ import annotations

from cel.testing.contract import CHECKS, ContractReport, NotAsked, check_method
from cel.testing.doubles import BlackBox, Counting, RuleModel, ScoreModel, SoftmaxModel
from cel.testing.problems import PROBLEMS, ToyModel, ToyProblem
from cel.testing.tree_problems import TREE_PROBLEMS

__all__ = [
    "CHECKS",
    "PROBLEMS",
    "TREE_PROBLEMS",
    "BlackBox",
    "ContractReport",
    "Counting",
    "NotAsked",
    "RuleModel",
    "ScoreModel",
    "SoftmaxModel",
    "ToyModel",
    "ToyProblem",
    "check_method",
]
