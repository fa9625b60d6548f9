"""The changes that `make mutants` makes are changes, are valid Python, and are drawn by seed."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutants():
    path = ROOT / "benchmarks" / "mutants.py"
    spec = importlib.util.spec_from_file_location("mutants", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutants"]


SOURCE = """
def share(part, whole=1, *, strict=True):
    \"\"\"Return part / whole.\"\"\"
    if strict and whole <= 0:
        raise ValueError(f"whole is {whole + 1}")
    total = divide(part, whole) if part else 0.5
    total += 1e-6
    check(total)
    return -total
"""


def test_every_kind_of_change_is_found_and_text_is_left_alone(mutants, monkeypatch, tmp_path):
    (tmp_path / "share.py").write_text(SOURCE)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    found = [m.change for m in mutants.mutants_of("space", Path("share.py"))]
    assert found == [
        "constant | 1 -> 2",
        "constant | True -> False",
        "condition | strict and whole <= 0 -> False",
        "condition | strict and whole <= 0 -> (whole <= 0)",
        "condition | strict and whole <= 0 -> (strict)",
        "comparison | whole <= 0 -> (whole < 0)",
        "comparison | whole <= 0 -> (whole >= 0)",
        "constant | 0 -> 1",
        "condition | divide(part, whole) if part else 0.5 -> (divide(part, whole))",
        "condition | divide(part, whole) if part else 0.5 -> (0.5)",
        "arguments | divide(part, whole) -> (divide(whole, part))",
        "constant | 0.5 -> 1.0",
        "removed | total += 1e-6 -> pass",
        "operator | total += 1e-6 -> total -= 1e-06",
        "constant | 1e-6 -> 0.001",
        "removed | check(total) -> pass",
        "operator | -total -> (total)",
    ]


def test_edges_of_tolerances_and_guards_of_divisions_are_left_alone(
    mutants, monkeypatch, tmp_path
):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "edge.py").write_text(
        "EQUAL = 1e-9\n\ndef near(a, b):\n    return a <= b + EQUAL or a / max(b, 1e-300) < 2\n"
    )
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    found = [m.change for m in mutants.mutants_of("space", Path("src/edge.py"))]
    assert "comparison | a <= b + EQUAL -> (a >= b + EQUAL)" in found
    assert "comparison | a <= b + EQUAL -> (a < b + EQUAL)" not in found
    assert "comparison | a / max(b, 1e-300) < 2 -> (a / max(b, 1e-300) <= 2)" in found
    assert [change for change in found if change.startswith("constant | 1e-9 -> 1.0")]
    assert not [change for change in found if "1e-297" in change]


def test_samples_are_repeatable_different_by_seed_and_compile(mutants):
    drawn = mutants.sample(list(mutants.PACKAGES), 120, 1)
    assert drawn == mutants.sample(list(mutants.PACKAGES), 120, 1)
    assert drawn != mutants.sample(list(mutants.PACKAGES), 120, 2)
    assert set(Counter(m.package for m in drawn)) == set(mutants.PACKAGES)
    assert min(Counter(m.kind for m in drawn).values()) >= 10
    for mutant in drawn:
        compile(mutants.mutated(mutant), mutant.path, "exec")


def test_every_package_has_tests_of_its_own(mutants):
    for package, (_, near, slower) in mutants.PACKAGES.items():
        assert all(list(ROOT.glob(p)) for p in (*near, *slower)), package
        assert [t for t in mutants.listed_tests(package) if t.startswith("tests/")], package
        assert set(mutants.listed_tests(package)) < set(mutants.listed_tests(package, wide=True))


def test_a_change_is_shown_to_the_tests_that_run_it(mutants, monkeypatch, tmp_path):
    (tmp_path / "share.py").write_text(SOURCE)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    found = mutants.mutants_of("space", Path("share.py"))
    reach = {
        "seconds": {"b.py::slow": 50.0, "b.py::quick": 2.0, "a.py::only": 3.0, "c.py::more": 90.0},
        "lines": {"share.py": {"4": ["a.py::only"], "6": ["b.py::slow", "b.py::quick"],
                               "8": ["c.py::more"]}},
    }  # fmt: skip
    told = {m.line: mutants.reaching(m, reach) for m in found}
    assert told[4] == ["a.py::only"]
    assert told[6] == ["b.py::quick", "b.py::slow"]
    assert told[7] == []  # no test runs it
    assert told[8] == ["c.py::more"]  # over the budget, but alone
    default = mutants.DEFAULTS + "::test"
    reach["seconds"][default] = 100.0
    assert default in mutants.reaching(found[0], reach) or sum(reach["seconds"].values()) > 60
    assert told[2] == ["a.py::only", "b.py::quick", "b.py::slow"]  # defaults: all that fits


def test_tests_that_fail_and_tests_that_pass_are_told_apart(mutants, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "test_good.py").write_text("def test_it(): assert True")
    (tmp_path / "test_bad.py").write_text("def test_it(): assert False")
    (tmp_path / "test_slow.py").write_text("import time\ndef test_it(): time.sleep(60)")
    assert mutants.run_tests(tmp_path, ["test_good.py"], 60)[0] == 0
    assert mutants.run_tests(tmp_path, ["test_bad.py"], 60)[0] == 1
    assert mutants.run_tests(tmp_path, ["test_slow.py"], 3)[0] is None


def test_lines_are_noted_for_the_tests_that_run_them(mutants, tmp_path):
    import json

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "twice.py").write_text(
        "LIMIT = 2\n\ndef twice(x):\n    if x > LIMIT:\n        return x\n    return 2 * x\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import pytest\nfrom twice import twice\n"
        "@pytest.fixture(scope='module')\ndef six():\n    return twice(6)\n"
        "def test_low(six): assert twice(1) == 2\ndef test_six(six): assert six == 6\n"
    )
    plugin = mutants.Reach(tmp_path, [Path("src/twice.py")])
    place = tmp_path / "noted.json"
    ended = lambda: place.write_text(json.dumps(plugin.to_dict()))  # noqa: E731
    assert mutants.run_tests(tmp_path, ["test_it.py"], 60, [plugin], ended)[0] == 0
    both = ["test_it.py::test_low", "test_it.py::test_six"]
    lines = json.loads(place.read_text())["lines"]["src/twice.py"]
    assert lines == {"3": both, "4": both, "5": both, "6": both[:1]}
    only = mutants.Only(both[1:])
    (tmp_path / "src" / "twice.py").write_text("def twice(x):\n    return 6\n")
    assert mutants.run_tests(tmp_path, ["test_it.py"], 60, [only])[0] == 0  # the other would fail
    assert mutants.run_tests(tmp_path, ["test_it.py"], 60)[0] == 1


def test_known_equivalent_changes_still_exist(mutants):
    names = {n for p in mutants.PACKAGES for f in mutants.files_of(p)
             for m in mutants.mutants_of(p, f) for n in (m.name, m.placed)}  # fmt: skip
    assert [n for n in mutants.equivalent() if n not in names] == []


def test_changes_by_hand_are_where_they_say(mutants):
    for mutant, tests in mutants.by_hand():
        source = (ROOT / mutant.path).read_text(encoding="utf8")
        assert source.count(mutant.before) == 1, mutant
        compile(mutants.mutated(mutant), mutant.path, "exec")
        assert tests
        assert all((ROOT / t).is_file() for t in tests), mutant
