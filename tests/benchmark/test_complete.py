"""Every cell of a suite has shipped scores or a reason, and a missing one is noticed."""

import runpy
from pathlib import Path

import pandas as pd
import pytest

from cel.benchmark.plan import make_plan
from cel.benchmark.shipped import cell_states, refused_cells, shipped_cells, shipped_table
from cel.benchmark.spec import load_suite
from cel.report.gathered import read_shipped

ROOT = Path(__file__).parents[2]
CELL = ["dataset", "model", "method", "fold"]


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "benchmarks" / "complete.py"))


@pytest.fixture(scope="module")
def paper():
    return shipped_table("paper"), shipped_table("paper", "blank")


@pytest.mark.parametrize("suite", ["paper", "standard"])
def test_no_cell_of_a_shipped_line_is_blank_without_a_reason(script, suite):
    scores, cells = shipped_table(suite), shipped_cells(suite)
    known = cells[cells["method"].isin(set(scores["method"]))]
    assert script["holes"](known).empty
    assert script["silent_values"](scores).empty


def test_what_is_taken_away_is_named(script, paper):
    scores, blank = paper
    _, before = script["told"]("paper", scores, blank)
    place = {"dataset": "law", "model": "lr", "method": "cadex", "fold": 3}
    gone = pd.concat([scores[k] == v for k, v in place.items()], axis=1).all(axis=1)
    assert gone.any()
    text, count = script["told"]("paper", scores[~gone], blank)
    assert count == before + 1
    cells = cell_states(make_plan(load_suite("paper")), scores[~gone], blank).set_index(CELL)
    assert cells.loc[tuple(place.values()), "state"] == "missing"
    assert f"paper: {count} blank cells without a reason" in text
    line = next(x for x in text.splitlines() if x.startswith("cadex "))
    assert line.split()[-1] == "1"
    _, silent = script["told"]("paper", scores, blank.iloc[1:])
    assert silent == before + 1


def test_a_value_that_is_no_number_needs_a_reason(script, paper):
    scores, blank = paper
    _, before = script["told"]("paper", scores, blank)
    some = scores.index[scores["value"].isna()][:3]
    changed = scores.copy()
    changed.loc[some, "reason"] = ""
    text, count = script["told"]("paper", changed, blank)
    assert count == before + 3
    assert "paper: 3 blank values without a reason" in text


def test_a_cell_without_a_reason_is_not_shipped_as_refused():
    cells = pd.DataFrame(
        [("a", "done", ""), ("b", "skip", "one output only"), ("c", "missing", ""),
         ("d", "timeout", "over 300 s"), ("e", "missing", "its scores are damaged"),
         ("f", "error", "")],
        columns=["dataset", "state", "reason"],
    ).assign(model="lr", method="x", fold=0, rows=None, key="")  # fmt: skip
    assert refused_cells(cells)["dataset"].tolist() == ["b", "d"]


def test_the_report_of_shipped_scores_says_why_cells_are_blank(paper):
    _, blank = paper
    cells = read_shipped("paper").cells
    refused = cells[cells["state"] != "done"]
    assert len(refused) == len(blank) > 0
    assert (refused["reason"] != "").all()


def test_a_cell_with_scores_of_any_source_is_not_blank(paper):
    scores, blank = paper
    unscored = runpy.run_path(str(ROOT / "benchmarks" / "baselines.py"))["unscored"]
    assert len(unscored(blank, scores)) == len(blank)
    first = blank.iloc[:1][CELL].assign(metric="rows", value=1.0, reason="")
    left = unscored(blank, pd.concat([scores, first], ignore_index=True))
    assert len(left) == len(blank) - 1
