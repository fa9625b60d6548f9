"""One contract suite over every registered method."""

from functools import cache

import pytest

import cel.cf_methods.global_methods
import cel.cf_methods.group_methods
import cel.cf_methods.local_methods  # noqa: F401
from cel.cf_methods import METHODS
from cel.testing import CHECKS, PROBLEMS, NotAsked
from cel.testing.contract import applicable


@cache
def _problem(name):
    return PROBLEMS[name]()


@cache
def _refusal(method, problem):
    return applicable(METHODS.get(method), _problem(problem))


def _own(name):
    return METHODS.get(name).__module__.startswith("cel.")


ALWAYS = ("mixed", "regression")
"""Problems on which every check runs; of the others a seeded part does, see `CEL_SLOW`."""


def _tail(names):
    return [pytest.param(n, marks=() if n in ALWAYS else pytest.mark.slow) for n in names]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("problem", _tail(PROBLEMS))
@pytest.mark.parametrize("method", [m for m in METHODS.names() if _own(m)])
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


@pytest.mark.parametrize("problem", EXPECTED)
def test_methods_work_where_they_must(problem):
    """A refusal may not hide a method that has to support the problem."""
    refused = {m for m in EXPECTED[problem] if _refusal(m, problem) is not None}
    assert not refused
