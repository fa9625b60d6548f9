"""One contract suite over every registered method."""

from functools import cache

import pytest

import cel.cf_methods.global_methods
import cel.cf_methods.group_methods
import cel.cf_methods.local_methods  # noqa: F401
from cel.cf_methods import METHODS
from cel.protocols import Need
from cel.testing import CHECKS, PROBLEMS, TREE_PROBLEMS, NotAsked
from cel.testing.contract import applicable


@cache
def _problem(name):
    return (PROBLEMS | TREE_PROBLEMS)[name]()


@cache
def _refusal(method, problem):
    return applicable(METHODS.get(method), _problem(problem))


def _own(name):
    return METHODS.get(name).__module__.startswith("cel.")


ALWAYS = ("mixed", "regression")
"""Problems on which every check runs; of the others a seeded part does, see `CEL_SLOW`."""
TREES = ("trees_mixed", "trees_regression")
"""The same for methods that read trees, which refuse the others."""
DRILL = ("feasible", "valid", "contradiction", "unanswerable")
"""Checks that always run on problems of trees, for methods that read them or prove."""


def _always(method, problem, check):
    cls = METHODS.get(method)
    if problem in ALWAYS or (Need.TREES in cls.needs and problem in TREES):
        return True
    return check in DRILL and problem.startswith("trees_") and _of_trees(cls)


def _of_trees(cls):
    """Whether a method reads trees, or proves what can be proved about them."""
    return Need.TREES in cls.needs or (cls.proves and not cls.needs & READS)


READS = {Need.LINEAR_MODEL, Need.GRADIENTS, Need.RELU}
OWN = [m for m in METHODS.names() if _own(m)]
ASKED = [
    pytest.param(m, p, c, id=f"{m}-{p}-{c}", marks=() if _always(m, p, c) else pytest.mark.slow)
    for m in OWN
    for p in (PROBLEMS | TREE_PROBLEMS if _of_trees(METHODS.get(m)) else PROBLEMS)
    for c in CHECKS
]


@pytest.mark.parametrize(("method", "problem", "check"), ASKED)
def test_contract(method, problem, check):
    refusal = _refusal(method, problem)
    if refusal is not None:
        pytest.skip(f"declared unsupported: {refusal}")
    try:
        CHECKS[check](METHODS.get(method), _problem(problem))
    except NotAsked as reason:
        pytest.skip(str(reason))


EXPECTED = {
    "binary_numeric": {"wachter", "artelt", "dice", "cchvae", "ppcef", "cem", "cegp", "cadex",
                       "sace", "ares", "globe_ce", "glance", "tcrex", "nice", "nearest",
                       "growing_spheres", "face", "actionable", "exact_relu", "rbr",
                       "robust_nearest"},
    "mixed": {"wachter", "dice", "cchvae", "ppcef", "cem", "cegp", "cadex", "sace", "ares",
              "globe_ce", "glance", "tcrex", "nice", "nearest",
                       "growing_spheres", "face", "actionable", "exact_relu", "rbr",
                       "robust_nearest"},
    "three_classes": {"wachter", "artelt", "dice", "cchvae", "ppcef", "cem", "cegp", "cadex",
                      "sace", "ares", "globe_ce", "glance", "tcrex", "nice", "nearest",
                      "growing_spheres", "face", "actionable", "exact_relu", "rbr",
                      "robust_nearest"},
    "black_box": {"dice", "cchvae", "cearm", "sace", "ares", "globe_ce", "glance", "tcrex", "nice",
                  "nearest", "growing_spheres", "face", "rbr"},
    "related": {"wachter", "artelt", "dice", "cchvae", "ppcef", "cem", "cegp", "cadex", "sace",
                "cearm", "ares", "globe_ce", "glance", "tcrex", "nice", "nearest",
                "growing_spheres", "face", "exact_relu", "robust_nearest", "rbr"},
    "table": {"wachter", "artelt", "dice", "cchvae", "ppcef", "cem", "cegp", "cadex", "sace",
              "cearm", "ares", "globe_ce", "glance", "tcrex", "nice", "nearest",
              "growing_spheres", "face", "exact_relu", "robust_nearest", "rbr"},
    "regression": {"wachter", "cearm", "globe_ce", "tcrex", "exact_relu"},
    "multi_output": {"wachter", "cearm"},
    "trees_mixed": {"cells", "exact_tree", "live_regions", "dice", "sace", "nice", "nearest",
                    "feature_tweak", "focus"},
    "trees_three_classes": {"cells", "exact_tree", "live_regions", "dice", "sace", "nice",
                            "nearest", "feature_tweak", "focus"},
    "trees_regression": {"cells", "exact_tree", "live_regions", "cearm"},
    "trees_related": {"cells", "exact_tree", "live_regions", "feature_tweak", "focus", "auto"},
    "trees_table": {"cells", "exact_tree", "live_regions", "feature_tweak", "focus", "auto"},
    "trees_histograms": {"cells", "exact_tree", "live_regions", "auto"},
    "trees_lightgbm": {"cells", "exact_tree", "live_regions", "feature_tweak", "focus", "auto"},
    "trees_xgboost": {"cells", "exact_tree", "live_regions", "feature_tweak", "focus", "auto"},
}  # fmt: skip
for _name in ("binary_numeric", "mixed", "three_classes", "related", "table"):
    EXPECTED[_name] |= {"group_ppcef", "dicoflex"}
EXPECTED["black_box"] |= {"dicoflex"}
for _name in ("binary_numeric", "mixed", "three_classes", "black_box", "related", "table"):
    EXPECTED[_name] |= {"moc", "geco"}
for _name in ("binary_numeric", "mixed", "three_classes", "related", "table"):
    EXPECTED[_name] |= {"causal"}
for _name in ("regression", "multi_output"):
    EXPECTED[_name] |= {"moc"}


@pytest.mark.parametrize("problem", sorted(EXPECTED.keys() & (PROBLEMS | TREE_PROBLEMS).keys()))
def test_methods_work_where_they_must(problem):
    """A refusal may not hide a method that has to support the problem."""
    refused = {m for m in EXPECTED[problem] if _refusal(m, problem) is not None}
    assert not refused


def test_every_method_that_proves_is_drilled():
    """Each is held against planted answers in every run, on models that it reads."""
    quick = {(p.values[0], p.values[1]) for p in ASKED if not p.marks and p.values[2] in DRILL}
    drilled = {m: {p for n, p in quick if n == m and _refusal(m, p) is None} for m in OWN}
    provers = {m for m in OWN if METHODS.get(m).proves}
    assert provers == {"actionable", "auto", "causal", "cells", "exact_relu", "exact_tree"}
    assert [m for m in provers if not drilled[m]] == []
    of_trees = {"trees_mixed", "trees_three_classes", "trees_regression", *TREE_PROBLEMS}
    for method in ("cells", "exact_tree", "auto"):
        assert of_trees <= drilled[method], method
