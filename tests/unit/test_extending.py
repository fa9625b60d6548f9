"""The example of docs/extending/method.md is as short as it says and keeps the contract."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from cel.testing import CHECKS, PROBLEMS, check_method
from cel.testing.contract import applicable

DOC = Path(__file__).parents[2] / "docs" / "extending" / "method.md"


@pytest.fixture(scope="module")
def random_shells(tmp_path_factory):
    code = re.search(r"```python\n(# shells.py\n.*?)```", DOC.read_text(), re.S).group(1)
    path = tmp_path_factory.mktemp("example") / "shells.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("shells", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["shells"] = module
    spec.loader.exec_module(module)
    return module.RandomShells


def test_the_example_is_short():
    code = re.search(r"```python\n(# shells.py\n.*?)```", DOC.read_text(), re.S).group(1)
    assert len(code.splitlines()) < 60


def test_the_example_keeps_the_contract(random_shells):
    reports = check_method(random_shells)
    assert [r for r in reports if not r.passed] == []
    assert {r.problem for r in reports if r.check == "valid"} == {
        "binary_numeric", "binary_curved", "mixed", "three_classes",
    }  # fmt: skip


class _Copycat:
    """Makes deliberately broken variants of a method."""

    def __init__(self, base):
        self.base = base

    def variant(self, name, answer):
        def _explain(method, query):
            return answer(self.base._explain(method, query), query)

        return type(name, (self.base,), {"_explain": _explain})


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        ("finds_something", lambda x, q: x * float("nan")),
        ("alone", lambda x, q: x + 0.05 * len(q)),
        ("order", lambda x, q: x + 0.02 * q.rows()[:, None]),
        ("budgets", None),
    ],
)
def test_broken_methods_fail(random_shells, check, answer):
    """The checks can fail: each of these mistakes is caught by the check named here."""
    if answer is None:
        broken = type("Slow", (random_shells,), {"_answer_in_batches": _ignore_budget})
    else:
        broken = _Copycat(random_shells).variant("Broken", answer)
    problem = PROBLEMS["binary_numeric"]()
    assert applicable(broken, problem) is None
    with pytest.raises(AssertionError):
        CHECKS[check](broken, problem)


def _ignore_budget(method, prepared, view):
    from cel.cf_methods import Answer

    view.budget.deadline = float("inf")
    query = method._query(prepared, prepared.todo.nonzero()[0], view)
    return [(prepared.todo.nonzero()[0], Answer(x=method._explain(query)))]
