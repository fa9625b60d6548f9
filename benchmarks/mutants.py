"""Change the code a little, run the nearest tests, and see which changes nobody notices.

    python benchmarks/mutants.py                          # 200 changes, seed 1
    python benchmarks/mutants.py --only search --count 40 --seed 7
    python benchmarks/mutants.py --file src/cel/search/shells.py --count 0      # all of one file
    python benchmarks/mutants.py --list --only space      # show the sample, run nothing

A change is one of: an operator replaced, a comparison moved by one step or turned round, a number
or truth value replaced (tolerances a thousandfold), a condition dropped, two arguments swapped, a
statement removed. Messages of errors, annotations, decorators and docstrings are left alone, as
are guards against a division by zero and the equality at the edge of a tolerance. Each
change is made in a copy of the tree, never in the tree itself. The tests of a package are those
listed below and the doctests of its modules, with `--wide` also slower ones. They run once without
a change and note which of them run which line; a change is then shown to the tests that run it,
the quickest first, until one fails or `BUDGET_S` seconds of tests are spent. A change that makes
them run five times as long as without it counts as noticed; one that no test runs is a survivor.

    python benchmarks/mutants.py --into runs/mutants --seconds 500  # stop, and go on another time
    python benchmarks/mutants.py --into runs/mutants --again        # judge its survivors again

    python benchmarks/mutants.py --by-hand               # the changes of mutants_by_hand.txt

A survivor is a hole in the tests or a change that changes nothing. Those that were looked at and
change nothing stand in benchmarks/mutants_equivalent.txt with the reason; they do not count.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import copy
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
BY_HAND = Path(__file__).with_name("mutants_by_hand.txt")
COPIED = ("src", "tests", "docs", "benchmarks", "pyproject.toml", "README.md", "CHANGELOG.md")
SLOWER, LEAST_S = 5, 20  # a change may take this many times the time without it, but at least this
BUDGET_S = 60  # of tests, for one change
MIN_PER_PACKAGE = 10
fork, hook = multiprocessing.get_context("fork"), pytest.hookimpl
DEFAULTS = "tests/unit/test_defaults.py"  # looks at signatures and runs no line of them
WARM = (
    "numpy", "pandas", "scipy.stats", "scipy.optimize", "sklearn.ensemble", "sklearn.neighbors",
    "sklearn.model_selection", "torch", "hypothesis", "cvxpy", "pydantic", "yaml", "requests",
    "pyarrow.parquet", "typer", "rich.console", "safetensors.torch", "_pytest.doctest",
)  # fmt: skip
_JUDGES = []  # one per process of the pool

# fmt: off
# package -> (files, nearest tests, slower tests for --wide)
PACKAGES = {
    "space": (
        ["src/cel/space/*.py"],
        ["tests/unit/test_space*.py", "tests/properties/test_region.py"],
        ["tests/unit/test_preprocessing.py", "tests/contract/test_method_contract.py"],
    ),
    "search": (
        ["src/cel/search/*.py"],
        ["tests/search/*.py", "tests/unit/test_pool*.py"],
        [
            "tests/methods/cells/*.py", "tests/methods/nice/*.py", "tests/methods/wachter/*.py",
            "tests/methods/dice/*.py",
        ],
    ),
    "solvers": (
        ["src/cel/solvers/*.py"],
        [
            "tests/solvers/*.py", "tests/unit/test_choices.py",
            "tests/oracles/test_closed_forms.py",
        ],
        [
            "tests/methods/actionable/*.py", "tests/methods/artelt/*.py",
            "tests/methods/ppcef/*.py",
        ],
    ),
    "metrics": (
        ["src/cel/metrics/*.py"],
        [
            "tests/unit/test_metrics*.py", "tests/unit/test_row_by_row.py",
            "tests/unit/test_stats.py", "tests/unit/test_data_shift.py",
            "tests/unit/test_significance_by_hand.py", "tests/unit/test_groups_by_hand.py",
            "tests/properties/test_metrics*.py",
        ],
        ["tests/oracles/test_metrics*.py", "tests/contract/test_metric_contract.py"],
    ),
    "keys and plan": (
        ["src/cel/benchmark/keys.py", "src/cel/benchmark/plan.py"],
        ["tests/benchmark/test_keys*.py", "tests/benchmark/test_spec_and_plan.py"],
        ["tests/benchmark/test_named.py", "tests/benchmark/test_runs.py"],
    ),
    "splits": (
        ["src/cel/datasets/splits.py"],
        ["tests/unit/test_splits.py", "tests/properties/test_folds.py"],
        ["tests/unit/test_datasets.py", "tests/unit/test_cards.py"],
    ),
}
# fmt: on
SKIPPED = {"__init__.py", "docs.py", "example.py"}  # metrics: the page, and the example it shows

ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.MatMult: ast.Mult,
}  # fmt: skip
COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip
SYMMETRIC = {  # calls whose first two arguments may be swapped, or never sensibly are
    "minimum", "maximum", "min", "max", "isclose", "allclose", "logical_and", "logical_or",
    "equal", "array_equal", "union", "intersection", "isinstance", "issubclass", "hasattr",
    "getattr", "setattr",
}  # fmt: skip
TOLERANCE = 1e-3  # numbers below it are tolerances
NOTHING = 1e-100  # numbers below it guard against a division by zero


def tolerances():
    """Return the names of constants of the library that are tolerances."""
    word = re.compile(r"^([A-Z_]+) = (\d[\d.]*e-\d+)", re.M)
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for name, value in word.findall(path.read_text(encoding="utf8")):
            if float(value) < TOLERANCE:
                found.add(name)
    return found


@cache
def lines_of(path):
    """Return the lines of a file of the tree."""
    return (ROOT / path).read_text(encoding="utf8").splitlines()


@dataclass(frozen=True)
class Mutant:
    """One change: the characters `start` to `end` of a file become `text`."""

    package: str
    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str
    before: str

    @property
    def change(self):
        """What is changed, in one line."""
        old, new = (" ".join(t.split()) for t in (self.before, self.text))
        return f"{self.kind} | {old} -> {new}"

    @property
    def name(self):
        """How it is listed when it is known to change nothing; line numbers would not last."""
        return f"{self.path} | {self.change}"

    @property
    def placed(self):
        """Its name with the text of its line, for changes that a file has several of."""
        return f"{self.name} @ {' '.join(lines_of(self.path)[self.line - 1].split())}"


class Finder(ast.NodeVisitor):
    """Collects the changes of one file."""

    def __init__(self, package, path, source):
        self.package, self.path, self.source = package, path, source
        lines = source.encode().splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.raw = source.encode()
        self.found, self.tolerances = [], tolerances()

    def offset(self, line, column):
        return self.starts[line - 1] + column

    def add(self, node, new, kind):
        start = self.offset(node.lineno, node.col_offset)
        end = self.offset(node.end_lineno, node.end_col_offset)
        text = new if isinstance(new, str) else f"({ast.unparse(ast.fix_missing_locations(new))})"
        before = self.raw[start:end].decode()
        made = Mutant(
            self.package, self.path, node.lineno, kind, start, end, text, before
        )  # fmt: skip
        self.found.append(made)

    # -- what is left alone ------------------------------------------------------------------

    def visit_FunctionDef(self, node):
        self.visit(node.args)
        self.body(node.body)

    def visit_ClassDef(self, node):
        self.body(node.body)

    def visit_Module(self, node):
        self.body(node.body)

    def body(self, statements):
        for i, statement in enumerate(statements):
            docstring = i == 0 and isinstance(statement, ast.Expr)
            if not (docstring and isinstance(statement.value, ast.Constant)):
                self.visit(statement)

    def visit_arguments(self, node):
        for default in (*node.defaults, *(d for d in node.kw_defaults if d is not None)):
            self.visit(default)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node):
        names = [t.id for t in node.targets if isinstance(t, ast.Name)]
        if "__all__" not in names:
            self.visit(node.value)

    def visit_Raise(self, node):
        self.add(node, "pass", "removed")

    def visit_Assert(self, node):
        """Asserts are for the type checker."""

    def visit_JoinedStr(self, node):
        """Text."""

    # -- changes -----------------------------------------------------------------------------

    def visit_If(self, node):
        typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if typing:
            return
        only_raises = len(node.body) == 1 and isinstance(node.body[0], ast.Raise)
        self.add(node.test, "False", "condition")
        if not only_raises:
            self.add(node.test, "True", "condition")
        self.visit(node.test)
        for statement in (*node.body, *node.orelse):
            if not (only_raises and statement is node.body[0]):  # the same as a False condition
                self.visit(statement)

    def visit_IfExp(self, node):
        self.add(node, copy.deepcopy(node.body), "condition")
        self.add(node, copy.deepcopy(node.orelse), "condition")
        self.generic_visit(node)

    def visit_While(self, node):
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        for i in range(len(node.values)):
            new = copy.deepcopy(node)
            del new.values[i]
            self.add(node, new.values[0] if len(new.values) == 1 else new, "condition")
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        if isinstance(node.op, ast.Not | ast.Invert):
            self.add(node, copy.deepcopy(node.operand), "condition")
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self.add(node, copy.deepcopy(node.operand), "operator")
        self.generic_visit(node)

    def visit_BinOp(self, node):
        text = (ast.List, ast.Tuple, ast.JoinedStr)
        sides = (node.left, node.right)
        words = any(isinstance(s, text) or _is_string(s) for s in sides)
        if type(node.op) in ARITHMETIC and not words:
            new = copy.deepcopy(node)
            new.op = ARITHMETIC[type(node.op)]()
            self.add(node, new, "operator")
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        self.add(node, "pass", "removed")
        if type(node.op) in ARITHMETIC:
            new = copy.deepcopy(node)
            new.op = ARITHMETIC[type(node.op)]()
            self.add(node, ast.unparse(new), "operator")
        self.visit(node.value)

    def visit_Compare(self, node):
        if len(node.ops) == 1:
            steps = COMPARISONS[type(node.ops[0])]
            for other in steps[1:] if self.is_loose(node) and len(steps) > 1 else steps:
                new = copy.deepcopy(node)
                new.ops = [other()]
                self.add(node, new, "comparison")
        self.generic_visit(node)

    def is_loose(self, node):
        """Tell whether a comparison is up to a tolerance: nothing lies exactly at its edge."""
        for part in ast.walk(node):
            small = isinstance(part, ast.Constant) and isinstance(part.value, float)
            if small and NOTHING < part.value < TOLERANCE:
                return True
            if isinstance(part, ast.Name) and part.id in self.tolerances:
                return True
        return False

    def visit_Constant(self, node):
        value = node.value
        if isinstance(value, float) and 0 < abs(value) < NOTHING:
            return
        if isinstance(value, bool):
            self.add(node, repr(not value), "constant")
        elif isinstance(value, int):
            self.add(node, repr(value + 1), "constant")
        elif isinstance(value, float):
            factor = 1000 if abs(value) < TOLERANCE else 2
            self.add(node, repr(value * factor if value else 1.0), "constant")

    def visit_Call(self, node):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        first = 1 if name == "where" and len(node.args) == 3 else 0
        pair = node.args[first : first + 2]
        plain = len(pair) == 2 and not any(isinstance(a, ast.Starred) for a in pair)
        if plain and name not in SYMMETRIC and ast.dump(pair[0]) != ast.dump(pair[1]):
            new = copy.deepcopy(node)
            new.args[first : first + 2] = reversed(new.args[first : first + 2])
            self.add(node, new, "arguments")
        self.generic_visit(node)

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call):
            self.add(node, "pass", "removed")
        self.generic_visit(node)

    def visit_Break(self, node):
        self.add(node, "pass", "removed")

    def visit_Continue(self, node):
        self.add(node, "pass", "removed")


def _is_string(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def mutants_of(package, path):
    """Return every change of a file."""
    source = (ROOT / path).read_text(encoding="utf8")
    finder = Finder(package, str(path), source)
    finder.visit(ast.parse(source))
    return [m for m in finder.found if " ".join(m.before.split()) != m.text.strip("()")]


def files_of(package):
    paths = sorted(p for pattern in PACKAGES[package][0] for p in ROOT.glob(pattern))
    return [p.relative_to(ROOT) for p in paths if p.name not in SKIPPED]


def sample(packages, count, seed, only_file=None):
    """Draw changes: each package in proportion to its size, but at least ten, kinds evenly."""
    pools = {}
    for package in packages:
        files = [f for f in files_of(package) if only_file is None or str(f) == only_file]
        pools[package] = [m for f in files for m in mutants_of(package, f)]
    pools = {k: v for k, v in pools.items() if v}
    if not count:
        return [m for pool in pools.values() for m in pool]
    total = sum(map(len, pools.values()))
    drawn = []
    for package, pool in pools.items():
        share = max(round(count * len(pool) / total), min(MIN_PER_PACKAGE, count))
        drawn += _evenly(pool, min(share, len(pool)), random.Random(f"{seed}/{package}"))
    return drawn


def _evenly(pool, count, rng):
    """Draw from the kinds in turn, so that numbers do not crowd out removed statements."""
    kinds = {}
    for mutant in pool:
        kinds.setdefault(mutant.kind, []).append(mutant)
    for group in kinds.values():
        rng.shuffle(group)
    drawn = []
    while len(drawn) < count:
        for kind in sorted(kinds):
            if kinds[kind] and len(drawn) < count:
                drawn.append(kinds[kind].pop())
    return drawn


# -- tests -----------------------------------------------------------------------------------


def listed_tests(package, wide=False):
    """Return the test files of a package, and its modules, for their doctests.

    Modules come last: collected first, they would be imported a second time, beside their package.
    """
    _, near, slower = PACKAGES[package]
    near = [*near, DEFAULTS]
    listed = [p for pattern in (*near, *(slower if wide else ())) for p in ROOT.glob(pattern)]
    names = [str(p.relative_to(ROOT)) for p in sorted(set(listed))]
    return [*names, *map(str, files_of(package))]


class Reach:
    """A plugin for pytest: which tests run which lines of some files, and how long they take.

    Lines that run in a fixture shared by a file, or when the file is imported, belong to all of
    its tests.
    """

    def __init__(self, folder, files):
        self.names = {str(folder / f): str(f) for f in files}
        self.lines, self.seconds, self.owner = {}, {}, None

    def _called(self, frame, event, arg):
        name = self.names.get(frame.f_code.co_filename)
        if name is None or frame.f_code.co_name == "<module>":
            return None
        found = self.lines.setdefault(name, {})
        owner = self.owner

        def ran(frame, event, arg):
            if event == "line":
                found.setdefault(frame.f_lineno, set()).add(owner)
            return ran

        found.setdefault(frame.f_lineno, set()).add(owner)
        return ran

    def _traced(self, owner):
        before, self.owner = self.owner, owner
        sys.settrace(self._called)
        try:
            return (yield)
        finally:
            self.owner = before
            if before is None:
                sys.settrace(None)

    @hook(wrapper=True)
    def pytest_make_collect_report(self, collector):
        return (yield from self._traced(collector.nodeid.split("::")[0]))

    @hook(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        shared = fixturedef.scope != "function"
        owner = request.node.nodeid.split("::")[0] if shared else self.owner
        return (yield from self._traced(owner))

    @hook(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        started = time.monotonic()
        try:
            return (yield from self._traced(item.nodeid))
        finally:
            self.seconds[item.nodeid] = time.monotonic() - started

    def to_dict(self):
        """Return {"seconds": {test: s}, "lines": {file: {line: tests}}}, shared lines resolved."""
        of_file = {}
        for test in self.seconds:
            of_file.setdefault(test.split("::")[0], []).append(test)
        lines = {}
        for name, found in self.lines.items():
            for line, owners in found.items():
                tests = {
                    t for o in owners for t in ([o] if o in self.seconds else of_file.get(o, ()))
                }
                lines.setdefault(name, {})[str(line)] = sorted(tests)
        return {"seconds": self.seconds, "lines": lines}


class Only:
    """A plugin for pytest: some tests, in an order."""

    def __init__(self, tests):
        self.place = {test: i for i, test in enumerate(tests)}

    @hook(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [i for i in items if i.nodeid in self.place]
        items.sort(key=lambda i: self.place[i.nodeid])


def spans(path):
    """Return [(first, last)] of the statements of a file, and of its functions, innermost last."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf8"))
    statements, functions = [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.append((node.lineno, node.end_lineno))
        elif isinstance(node, ast.If | ast.While | ast.For | ast.With):
            statements.append((node.lineno, node.body[0].lineno - 1))
        elif isinstance(node, ast.stmt) and not isinstance(node, ast.ClassDef):
            statements.append((node.lineno, node.end_lineno))
    return statements, functions


def reaching(mutant, reach):
    """Return the tests that run a change: its statement, or (at import) anything of its file.

    Quickest files first, quickest tests first in a file, at most `BUDGET_S` seconds in all.
    """
    lines = {int(n): t for n, t in reach["lines"].get(mutant.path, {}).items()}
    statements, functions = spans(mutant.path)
    inside = [f for f in functions if f[0] < mutant.line <= f[1]]
    around = [s for s in statements if s[0] <= mutant.line <= max(s)] if inside else []
    first, last = max(around, default=max(inside, default=(0, 10**9)))
    tests = {t for n, found in lines.items() if first <= n <= max(first, last) for t in found}
    seconds = reach["seconds"]
    if not around:  # a default, or something at the top of the file
        tests |= {t for t in seconds if t.startswith(DEFAULTS)}
    of_file = Counter()
    for test in tests:
        of_file[test.split("::")[0]] += seconds[test]
    order = sorted(
        tests, key=lambda t: (of_file[t.split("::")[0]], t.split("::")[0], seconds[t], t)
    )
    spent, chosen = 0.0, []
    for test in order:
        spent += seconds[test]
        if not chosen or spent <= BUDGET_S:
            chosen.append(test)
    return chosen


def run_tests(folder, tests, timeout, plugins=(), ended=lambda: None):
    """Run tests in a copy of the tree, in a child of this warm process; return (code, seconds)."""
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(folder, tests, plugins, ended)
    while time.monotonic() - started < timeout:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), time.monotonic() - started
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, time.monotonic() - started


def _child(folder, tests, plugins, ended):
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder / "src")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.environ.setdefault("CEL_SLOW", "none")
        sys.dont_write_bytecode = True
        sys.path[:] = [str(folder / "src"), *(p for p in sys.path if not _is_ours(p))]
        with open(folder / "said.txt", "w", encoding="utf8") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # imported by warm_up
        code = int(pytest.main([*options, *tests], plugins=list(plugins)))
        ended()
    except BaseException:  # noqa: BLE001 - a child must never return into the parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _is_ours(entry):
    return not entry or Path(entry).resolve() in (ROOT / "src", ROOT / "benchmarks", ROOT)


def warm_up():
    """Import what tests import, once; the children of this process have it already."""
    for name in WARM:
        __import__(name)
    import torch

    torch.set_num_threads(1)
    assert "cel" not in sys.modules


def copied(folder):
    """Copy the tree and compile it: no child writes bytecode, which would outlive a change."""
    folder.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", ".*cache", "runs")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore)
        elif source.exists():
            shutil.copy(source, folder / name)
    compileall.compile_dir(folder / "src", quiet=2)
    return folder


def mutated(mutant):
    raw = (ROOT / mutant.path).read_bytes()
    return raw[: mutant.start] + mutant.text.encode() + raw[mutant.end :]


class BaselineError(Exception):
    """Tests that fail without a change say nothing about one."""


class Judge:
    """Runs the tests of changes in one copy of the tree."""

    def __init__(self, folder, notes, wide):
        self.folder, self.notes, self.wide, self.known = folder, notes, wide, {}

    def reach(self, package):
        """Return what `Reach` notes of the tests of a package; they must pass."""
        name = f"{package.replace(' ', '_')}{'_wide' if self.wide else ''}.json"
        place, now = self.notes / name, checksum(package, self.wide)
        if package not in self.known and place.exists():
            noted = json.loads(place.read_text())
            if noted["of"] == now:
                self.known[package] = noted
        if package not in self.known:
            plugin = Reach(self.folder, files_of(package))

            def ended():
                place.write_text(json.dumps({"of": now} | plugin.to_dict()))

            tests = listed_tests(package, self.wide)
            code, _ = run_tests(self.folder, tests, 3600, [plugin], ended)
            if code != 0:
                said = (self.folder / "said.txt").read_text()[-2000:]
                raise BaselineError(f"without any change, {package} ended with {code}:\n{said}")
            self.known[package] = json.loads(place.read_text())
        return self.known[package]

    def verdict(self, mutant):
        """Return ("killed", by what), ("timeout", "") or ("survived", number of tests)."""
        reach = self.reach(mutant.package)
        tests = reaching(mutant, reach)
        if not tests:
            return "survived", "no test runs it"
        limit = max(SLOWER * sum(reach["seconds"][t] for t in tests), LEAST_S)
        files = list(dict.fromkeys(t.split("::")[0] for t in tests))
        files.sort(key=lambda f: f.startswith("src"))
        verdict, by = self.tried(mutant, files, [Only(tests)], limit)
        return verdict, f"{len(tests)} tests" if verdict == "survived" else by

    def tried(self, mutant, files, plugins, limit):
        """Run tests on a change; return what became of it, and the test that noticed it."""
        place = self.folder / mutant.path
        original, was = place.read_bytes(), place.stat()
        place.write_bytes(mutated(mutant))
        os.utime(place, (was.st_atime, was.st_mtime + 10))  # the compiled original is not its own
        try:
            code, _ = run_tests(self.folder, files, limit, plugins)
        finally:
            place.write_bytes(original)
            os.utime(place, (was.st_atime, was.st_mtime))
        if code is None:
            return "timeout", ""
        if code == 0:
            return "survived", ""
        said = (self.folder / "said.txt").read_text()
        first = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
        return "killed", first.group(1) if first else f"exit code {code}"


def checksum(package, wide):
    """Return a name for what the reach of a package's tests depends on."""
    digest = hashlib.blake2b(digest_size=8)
    files = {*(ROOT / "src").rglob("*.py"), *(ROOT / t for t in listed_tests(package, wide))}
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def by_hand():
    """Return the changes that somebody wrote down, and the tests that must notice each."""
    lines = [t for t in BY_HAND.read_text(encoding="utf8").splitlines() if t and t[0] != "#"]
    found = []
    for path, old, new, tests in (t.split(" || ") for t in lines):
        source = (ROOT / path).read_text(encoding="utf8")
        start = len(source[: source.index(old)].encode())
        line = source[: source.index(old)].count("\n") + 1
        end = start + len(old.encode())
        found.append((Mutant("", path, line, "by hand", start, end, new, old), tests.split()))
    return found


def judge_by_hand(parent):
    """Print for each change of the list which test notices it; end with 1 where none does."""
    judge, alive = Judge(copied(parent / "tree"), parent, wide=False), 0
    for mutant, tests in by_hand():
        verdict, by = judge.tried(mutant, tests, [], 600)
        alive += verdict != "killed"
        print(f"{verdict:10} {mutant.path}:{mutant.line} {mutant.change}  [{by}]", flush=True)
    tests = sorted({t for _, listed in by_hand() for t in listed})
    code, _ = run_tests(judge.folder, tests, 3600)
    print(f"{alive} not noticed; without any change the tests {'fail' if code else 'pass'}")
    sys.exit(1 if alive or code else 0)


def equivalent():
    """Return the changes that are known to change nothing, with the reason."""
    if not EQUIVALENT.exists():
        return {}
    lines = [t for t in EQUIVALENT.read_text(encoding="utf8").splitlines() if t and t[0] != "#"]
    return {
        name.strip(): reason.strip() for name, _, reason in (t.rpartition(" || ") for t in lines)
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=PACKAGES, help="a package")
    parser.add_argument("--file", help="one file, such as src/cel/search/shells.py")
    parser.add_argument("--wide", action="store_true", help="slower tests too")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--by-hand", action="store_true", help="the changes of a list")
    parser.add_argument("--list", action="store_true", help="show the sample, run nothing")
    parser.add_argument(
        "--into", type=Path, help="a folder for verdicts; what has one is not redone"
    )
    parser.add_argument("--again", action="store_true", help="judge the survivors in it once more")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then stop")
    options = parser.parse_args()
    drawn = sample(options.only or list(PACKAGES), options.count, options.seed, options.file)
    if options.list:
        for m in drawn:
            print(f"{m.path}:{m.line} | {m.change}")
        return
    warm_up()
    with tempfile.TemporaryDirectory() as parent:
        if options.by_hand:
            judge_by_hand(Path(parent))
        folder = options.into or Path(parent) / "verdicts"
        folder.mkdir(parents=True, exist_ok=True)
        judge_all(drawn, folder, Path(parent), options)
        summary({m: v for m, v in verdicts_in(folder, drawn).items() if v})


def verdicts_in(folder, drawn):
    """Return {change: (verdict, by)} as far as a folder has them."""
    told, place = {}, folder / "verdicts.jsonl"
    for line in place.read_text().splitlines() if place.exists() else ():
        said = json.loads(line)
        told[said["name"], said["line"]] = said["verdict"], said["by"]
    known, found = equivalent(), {}
    for m in drawn:
        verdict, by = told.get((m.name, m.line), (None, ""))
        reason = known.get(m.name) or known.get(m.placed)
        if verdict == "survived" and reason:
            verdict, by = "equivalent", reason
        found[m] = (verdict, by) if verdict else None
    return found


def judge_all(drawn, folder, parent, options):
    """Judge all changes, in `jobs` processes with a copy of the tree each, until time is up."""
    before = verdicts_in(folder, drawn)
    again = {None, "survived"} if options.again else {None}
    left = [m for m in drawn if (before[m] or (None,))[0] in again]
    start, ends = (parent, folder, options.wide), time.monotonic() + options.seconds
    first = Judge(copied(parent / "first"), folder, options.wide)
    for package in dict.fromkeys(m.package for m in left):
        try:
            first.reach(package)  # once, for all processes
        except BaselineError as failure:
            sys.exit(str(failure))
    with fork.Pool(options.jobs, _open, start) as pool:
        for number, mutant, verdict, by in _in_time(pool, left, ends):
            with open(folder / "verdicts.jsonl", "a", encoding="utf8") as file:
                told = {"name": mutant.name, "line": mutant.line, "verdict": verdict, "by": by}
                file.write(json.dumps(told) + "\n")
            said = f"{number}/{len(left)} {verdict:10} {mutant.path}:{mutant.line} "
            print(said + mutant.change + (f"  [{by}]" if by else ""), flush=True)


def _in_time(pool, left, ends):
    """Hand out changes one at a time, so that none is begun when time is up."""

    def still():
        for mutant in left:
            if time.monotonic() > ends:
                return
            yield mutant

    jobs, waiting, number = still(), [], 0
    size = pool._processes
    while True:
        while len(waiting) < size and (mutant := next(jobs, None)) is not None:
            waiting.append((mutant, pool.apply_async(_judge, [mutant])))
        if not waiting:
            return
        number += 1
        mutant, asked = waiting.pop(0)
        yield number, mutant, *asked.get()


def _open(parent, notes, wide):
    """Give a process of the pool its copy of the tree."""
    _JUDGES[:] = [Judge(copied(parent / str(os.getpid())), notes, wide)]


def _judge(mutant):
    (judge,) = _JUDGES
    return judge.verdict(mutant)


def summary(verdicts):
    """Print the survivors, and the share that was noticed per package."""
    survivors = [m for m, (v, _) in verdicts.items() if v == "survived"]
    print(f"\n{len(survivors)} survived:")
    for m in survivors:
        print(f"  {m.path}:{m.line} | {m.change}")
    print("\n| package | changes | noticed | equivalent | survived | share noticed |")
    print("|---|---|---|---|---|---|")
    everything = Counter()
    for package in PACKAGES:
        counts = Counter(v for m, (v, _) in verdicts.items() if m.package == package)
        if counts:
            everything += counts
            print(_line(package, counts))
    print(_line("together", everything))


def _line(name, counts):
    noticed, alive = counts["killed"] + counts["timeout"], counts["survived"]
    share = noticed / max(noticed + alive, 1)
    cells = (name, sum(counts.values()), noticed, counts["equivalent"], alive, f"{share:.0%}")
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
