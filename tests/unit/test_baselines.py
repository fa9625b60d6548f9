"""benchmarks/baselines.py: shipped tables in which one line is computed anew."""

import runpy
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "baselines.py"))
PLACE = {"dataset": "d", "model": "lr"}


def _tables(gower):
    """Tables of two rows by method, as a run with one fold leaves them."""
    rows = [
        {**PLACE, "fold": 0, "method": m, "row": str(i), "found": True, "gower": v}
        for m, values in gower.items()
        for i, v in enumerate(values)
    ]
    scores = [
        {**PLACE, "method": m, "fold": 0, "metric": n, "value": float(v), "reason": ""}
        for m, values in gower.items()
        for n, v in (("rows", len(values)), ("gower", sum(values) / len(values)))
    ]
    made = {"rows": pd.DataFrame(rows), "scores": pd.DataFrame(scores)}
    about = {**PLACE, "fold": 0}
    tables = {m: SCRIPT["_by_row"](part) for m, part in made["rows"].groupby("method", sort=False)}
    pairs = SCRIPT["pair_table"](tables).assign(**about)
    common = SCRIPT["common_table"](tables).assign(paradigm="local", **about)
    made["pairs"] = SCRIPT["_over_folds"](pairs)
    made["common"] = SCRIPT["pool_common"](common, ["paradigm", "dataset", "model"])
    return made


OLD = {"a": [0.1, 0.2], "b": [0.3, 0.4], "c": [0.2, 0.5]}


def _wins(tables):
    near = tables["pairs"][tables["pairs"]["metric"] == "gower"]
    return {(p.a, p.b): p.win for p in near.itertuples()}


def test_one_line_comes_from_a_run_and_is_compared_with_all_others():
    old, new = _tables(OLD), _tables({"b": [0.05, 0.3], "c": [0.0, 0.0]})
    assert _wins(old) == {("a", "b"): 1.0, ("a", "c"): 1.0, ("b", "c"): 0.5}
    out = SCRIPT["with_lines"](old, new, ["b"])
    assert _wins(out) == {("a", "b"): 0.5, ("a", "c"): 1.0, ("b", "c"): 1.0}
    for kind in ("scores", "common"):
        a, b = (t[kind][t[kind]["method"] != "b"].reset_index(drop=True) for t in (old, out))
        pd.testing.assert_frame_equal(a, b)
    means = out["common"].set_index("method")["gower"]
    assert means["b"] == pytest.approx(0.175)
    told = out["scores"].set_index(["method", "metric"])["value"]
    assert told["b", "gower"] == pytest.approx(0.175)
    assert told["c", "gower"] == pytest.approx(0.35)


def test_experiments_about_the_line_come_along():
    def experiments(**values):
        about = {**PLACE, "fold": 0, "metric": "lof", "reason": "", "experiment": "e"}
        return pd.DataFrame([{**about, "method": m, "value": v} for m, v in values.items()])

    old, new = _tables(OLD), _tables({"b": [0.05, 0.3]})
    assert "experiments" not in SCRIPT["with_lines"](old, new, ["b"])
    old["experiments"] = experiments(a=1.0, b=2.0)
    out = SCRIPT["with_lines"](old, {**new, "experiments": experiments(a=5.0, b=3.0)}, ["b"])
    told = out["experiments"].set_index("method")["value"]
    assert told.to_dict() == {"a": 1.0, "b": 3.0}


def test_a_run_that_lacks_rows_or_cells_is_refused():
    few = _tables(OLD)
    fewer = {**few, "rows": few["rows"].iloc[1:]}
    with pytest.raises(SystemExit, match="rows are missing"):
        SCRIPT["with_lines"](fewer, few, ["b"])
    more = _tables({**OLD, "e": [0.1, 0.1]})
    known = {k: more[k][more[k]["method"] != "e"] for k in ("rows", "scores")}
    with pytest.raises(SystemExit, match="not all that is shipped"):
        SCRIPT["with_lines"]({**more, **known}, _tables({"b": [0.0, 0.0]}), ["b", "e"])
