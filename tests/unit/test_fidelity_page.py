"""docs/fidelity.md has one line for each fidelity test, and deviations are judged as they say."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITER = runpy.run_path(str(ROOT / "benchmarks" / "fidelity.py"))


def test_the_page_lists_every_test_and_no_other():
    told = WRITER["told"]((ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8"))
    listed = [line[:3] for line in WRITER["listing"]()]
    assert list(told) == listed, "run benchmarks/fidelity.py with the new tests"
    assert all(len(columns) == 3 for columns in told.values())


def test_lines_of_tests_that_were_not_run_stay(tmp_path):
    what, statement, file, test = WRITER["listing"]()[0]
    line = f"| {what} | {statement} | O | 3e-5 (u) | 1e-4 | {file} |\n"
    path = tmp_path / "results.xml"
    path.write_text("<testsuite></testsuite>", encoding="utf-8")
    assert line in WRITER["page"](path, line)
    case = f'<testcase classname="tests.{file[:-3]}" name="{test}"/>'
    path.write_text(f"<testsuite>{case}</testsuite>", encoding="utf-8")
    assert line not in WRITER["page"](path, line)


def test_the_summary_counts_the_lines_below_it():
    text = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    lines = [line + "\n" for line in text.splitlines() if line.endswith(".py |")]
    assert WRITER["summary"](lines) in text, "run benchmarks/fidelity.py"
    made = WRITER["summary"](
        ["| A | one | O<br>P | 3e-5 (u)<br>1 (u), known gap: why | 4e-5<br>0.5 | test_a.py |\n",
         "| A | two |  | holds |  | test_a.py |\n", "| B | three | O | 0 (u) | 0 | test_b.py |\n"]
    )  # fmt: skip
    assert "| A | 2 | 1 | 1 | 1 |\n| B | 1 | 1 | 0 | 0 |\n" in made


def test_no_line_of_the_page_was_left_out_of_the_run():
    assert "not run" not in (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")


def test_the_largest_deviation_of_a_test_is_told(tmp_path):
    def case(name, value, inside=""):
        told = json.dumps({"value": value, "limit": 1e-3, "oracle": "O", "unit": "u"})
        told = told.replace('"', "&quot;")
        return (
            f'<testcase classname="tests.oracles.test_x" name="{name}"><properties>'
            f'<property name="deviation" value="{told}"/></properties>{inside}</testcase>'
        )

    gap = '<skipped type="pytest.xfail" message="why"/>'
    cases = [case("test_a[0]", 1e-5), case("test_a[1]", 3e-5), case("test_a[2]", 0.2, gap)]
    path = tmp_path / "results.xml"
    path.write_text(f"<testsuite>{''.join(cases)}</testsuite>", encoding="utf-8")
    seen = WRITER["measured"](path)["test_x.py", "test_a"]
    assert WRITER["cells"](seen)[1] == "3e-5 (u)<br>0.2 (u), known gap: why"
    path.write_text(f"<testsuite>{case('test_a', 1, '<failure/>')}</testsuite>", encoding="utf-8")
    with pytest.raises(SystemExit, match="test_a failed"):
        WRITER["measured"](path)


def test_deviations_above_the_limit_fail_and_are_recorded():
    told = []
    deviation = runpy.run_path(str(ROOT / "tests/conftest.py"))["Deviation"](told)
    deviation([0.0, 1e-5], oracle="O", limit=1e-4, unit="u")
    for wrong in (2e-4, float("nan")):
        with pytest.raises(AssertionError, match="against O"):
            deviation(wrong, oracle="O", limit=1e-4, unit="u")
    with pytest.raises(AssertionError, match="below the optimum"):
        deviation.excess([0.9], [1.0], oracle="O", limit=0.5)
    assert [json.loads(text)["value"] for _, text in told[:2]] == [1e-5, 2e-4]
