"""The example of docs/extending/method.md is as short as it says and keeps the contract."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from cel.protocols import Need
from cel.testing import CHECKS, PROBLEMS, check_method, contract
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
    assert [r for r in reports if r.failed] == []
    refused = {r.problem for r in reports if r.result == "refused"}
    assert refused == {"regression", "multi_output", "trees_regression"}
    assert not any(r.passed for r in reports if r.problem in refused)
    assert {r.problem for r in reports if r.check == "valid"} == {
        "binary_numeric", "binary_curved", "mixed", "three_classes", "trees_mixed",
        "trees_three_classes", "black_box", "related", "table",
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


def _with(base, answer, **more):
    """A variant of a method that does something else first."""

    def _explain(method, query):
        answer(method, query)
        return base._explain(method, query)

    return type("Sly", (base,), {"_explain": _explain, **more})


def _asks_on(method, query):
    for _ in range(50):
        query.model.margin(query.x, query.target)


def _asks_behind_the_back(method, query):
    for _ in range(50):
        method.model.predict_proba(query.x.numpy())


def _asks_in_one_round(method, query):
    query.model.margin(query.x.repeat(50, 1), query.target.repeat(50))


def _uses_density(method, query):
    method.gen_model.log_prob(query.x)


def _init(method, model, *, gen_model=None, **options):
    super(type(method), method).__init__(model, **options)
    method.gen_model = gen_model


@pytest.mark.parametrize(
    ("check", "answer", "more", "message"),
    [
        ("queries", _asks_on, {}, "when max_queries=1 was spent"),
        ("queries", _asks_behind_the_back, {}, "when max_queries=1 was spent"),
        ("queries", _asks_in_one_round, {}, None),
        ("declared", lambda m, q: q.model.logits(q.x), {}, "Sly looks inside the model"),
        ("declared", lambda m, q: m.model.linear_(), {}, "Sly looks inside the model"),
        ("declared", lambda m, q: m.train_.x.mean(), {}, "Sly uses training rows"),
        ("declared", _uses_density, {"__init__": _init}, "Sly uses a density"),
        ("declared", lambda m, q: q.model.linear(), {}, None),
        ("declared", lambda m, q: m.train_.x, {"needs": {Need.TRAIN_ROWS}}, None),
        ("declared", lambda m, q: q.model.logits(q.x), {"needs": {Need.GRADIENTS}}, None),
    ],
)  # fmt: skip
def test_what_is_not_declared_is_not_used(random_shells, check, answer, more, message):
    """Undeclared needs and unheeded budgets fail with a name; what is declared does not."""
    sly = _with(random_shells, answer, **more)
    problem = PROBLEMS["binary_numeric"]()
    if message is None:
        CHECKS[check](sly, problem)
        return
    with pytest.raises(AssertionError, match=message):
        CHECKS[check](sly, problem)


def _only(monkeypatch, *names):
    monkeypatch.setattr(contract, "PROBLEMS", {n: PROBLEMS[n] for n in names})


def test_a_refusal_in_the_middle_is_a_failure(random_shells, monkeypatch):
    """Only what is refused before the search begins is a refusal."""
    _only(monkeypatch, "black_box")
    sly = _with(random_shells, lambda m, q: q.model.logits(q.x))
    failed = {(r.problem, r.check) for r in check_method(sly) if r.failed}
    assert ("black_box", "aligned") in failed
    assert ("black_box", "finds_something") in failed


def test_checks_that_do_not_apply_are_not_passes(random_shells, monkeypatch):
    _only(monkeypatch, "mixed", "three_classes")
    joint = type("Joint", (random_shells,), {"rows_independent": False})
    results = {(r.problem, r.check): r.result for r in check_method(joint)}
    assert results["mixed", "alone"] == results["mixed", "order"] == "skipped"
    assert results["three_classes", "loader"] == "skipped"
    assert results["mixed", "loader"] == "passed"
