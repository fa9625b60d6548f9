"""The page and its files from a finished run with invented scores."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cel.benchmark import collect, load_suite, open_run
from cel.benchmark.row_scores import common_table, read_rows
from cel.cli import app
from cel.errors import ConfigError, StoreError
from cel.report import source, write_report
from cel.report.by_group import GroupOutcomes
from cel.report.drilldown import ROWS, Sample, encode_samples, stored_results
from cel.report.gathered import gather_runs, read_shipped
from cel.report.html import page_html
from cel.report.paper_tables import BASELINE
from cel.report.source import read_run
from cel.result import ExplanationResult
from cel.space.distances import gower

HELPERS = Path(__file__).parents[1] / "browser"


@pytest.fixture(scope="module")
def helpers():
    """The module that invents a run; cells name its methods as `report_run:Class`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HELPERS))
        import report_run

        yield report_run
    sys.modules.pop("report_run", None)


@pytest.fixture(scope="module")
def run(helpers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "demo"
    helpers.make_run(folder, datasets=["wine", "mixed", "synthetic"], folds=[0, 1])
    return folder


@pytest.fixture(scope="module")
def report(run, tmp_path_factory):
    return write_report(run, tmp_path_factory.mktemp("report"))


def _data(page):
    text = page.read_text(encoding="utf8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return text, json.loads(found[1])


def _small_run(helpers, folder):
    methods = {"dice": {"method": "report_run:Local"}, "sace": {"method": "report_run:Both"}}
    small = {"datasets": ["mixed"], "folds": [0], "classifiers": {"lr": {}}, "methods": methods}
    return helpers.make_run(folder, **small)


def test_files_and_size(report):
    names = {str(p.relative_to(report.page.parent)) for p in report.files}
    assert {"index.html", "scores.csv", "tables.tex", "suite.json"} < names
    for figure in ("local", "global", "group", "regression"):
        assert {f"figures/{figure}.{e}" for e in ("pdf", "svg", "png")} < names
    assert all(p.stat().st_size > 0 for p in report.files)
    assert report.left_out == ()
    assert report.page.stat().st_size < 3e6


def test_the_page_refers_to_nothing_outside(report):
    text, _ = _data(report.page)
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert not re.search(r"""(src|href)=["'](https?:)?//""", own)
    assert "@import" not in own
    assert "url(" not in own
    assert "default-src 'none'" in own
    assert "Plotly" not in text


def test_numbers_of_the_page_are_those_of_the_store(report, run):
    _, data = _data(report.page)
    scores = collect(*open_run(run))
    cells = pd.DataFrame(data["cells"])
    keys = ["dataset", "model", "method", "fold"]
    for metric in ("success", "gower", "ms_per_row", "rows_found"):
        mine = cells[keys].assign(shown=data["values"][metric]["v"])
        both = scores[scores["metric"] == metric].merge(mine, on=keys, how="left")
        np.testing.assert_allclose(
            both["shown"].to_numpy(float), both["value"].to_numpy(float), rtol=1e-4
        )
    kept = pd.read_csv(report.page.parent / "scores.csv")
    assert len(kept) == len(scores)


def test_proofs_are_counted_on_the_page(report, run, helpers):
    text, data = _data(report.page)
    scores = collect(*open_run(run)).set_index(["method", "metric"])["value"]
    found = scores[helpers.PROVER, "rows_found"]
    assert (scores[helpers.PROVER, "rows_optimal"].to_numpy() == found.to_numpy() - 1).all()
    shown = pd.DataFrame(data["cells"]).assign(n=data["values"]["rows_optimal"]["v"])
    assert set(shown.dropna(subset="n")["method"]) == {helpers.PROVER}
    assert shown["n"].sum() == scores[helpers.PROVER, "rows_optimal"].sum()
    assert "What is proved" in text


def test_states_of_cells_are_kept(report):
    _, data = _data(report.page)
    cells = pd.DataFrame(data["cells"])
    lost = cells[cells["state"] != "done"]
    assert set(lost["state"]) == {"skip", "timeout", "error"}
    assert data["meta"]["states"]["done"] == (cells["state"] == "done").sum()
    table = next(t for t in data["tables"] if t["name"] == "group_metrics_lr")
    line = next(x for x in table["lines"] if x["method"] == "tcrex" and x["dataset"] == "wine")
    assert {e["state"] for e in line["entries"]} == {"error"}
    assert "no rule covers any row" in line["entries"][0]["why"]


def test_text_from_outside_cannot_leave_the_data(report):
    text, data = _data(report.page)
    assert any("<b>job</b>" in r for r in data["cells"]["reason"])
    assert "<b>job</b>" not in text
    evil = json.loads(json.dumps(data))
    evil["meta"]["suite"] = "</script><script>alert(1)</script>"
    page = page_html(evil)
    assert "<script>alert(1)" not in page
    assert page.count("</script>") == text.count("</script>")


def test_rows_are_shown_in_original_units(report, run):
    _, data = _data(report.page)
    store, plan = open_run(run)
    sample = next(r for r in data["rows"] if r["dataset"] == "mixed" and r["model"] == "mlp")
    block = next(b for b in plan.blocks if (b.dataset, b.model, b.fold) == ("mixed", "mlp", 0))
    cell = next(c for c in block.cells if c.method.label == "dice")
    result = ExplanationResult.from_parquet(
        store.folder("explain", cell.explain_key) / "result.parquet"
    )
    answers = sample["methods"]["dice"]
    assert len(answers["rows"]) == min(len(result), ROWS)
    shown = {
        (sample["ids"][row], sample["features"][f], str(new)[:6])
        for row, status, changes in zip(
            answers["rows"], answers["status"], answers["changes"], strict=True
        )
        for f, new in changes
        if status == "found"
    }
    wanted = {
        (str(x["row"]), x["feature"], str(x["to"] if isinstance(x["to"], str) else
                                          float(f"{x['to']:.5g}"))[:6])
        for x in result.changes().to_dict("records")
    }  # fmt: skip
    assert {(r, f) for r, f, _ in shown} == {(r, f) for r, f, _ in wanted}
    originals = dict(zip(sample["ids"], sample["originals"], strict=True))
    first = result.originals().iloc[0]
    assert originals[str(result.source_ids[0])][sample["features"].index("job")] == first["job"]


def test_fewer_rows_when_the_budget_is_small(run):
    store, plan = open_run(run)
    block, results = next(iter(stored_results(store, plan)))
    sample = Sample(block.dataset, block.model, block.fold, results)
    whole = len(json.dumps(encode_samples([sample])))
    small = encode_samples([sample], budget=whole // 3)
    assert len(json.dumps(small)) <= whole // 3
    assert all(m["rows"] for m in small[0]["methods"].values())


def test_common_rows_by_hand(run):
    store, plan = open_run(run)
    block, results = next(iter(stored_results(store, plan)))
    cells = {c.method.label: c for c in block.cells}
    two = {m: read_rows(store, cells[m]) for m in ("dice", "sace")}
    table = common_table(two).set_index("method")
    a, b = results["dice"], results["sace"]
    both = a.found & b.found
    wanted = gower(a.x_origs[both], a.x_cfs[both], a.space).sum()
    assert table.loc["dice", "common"] == both.sum()
    assert table.loc["dice", "own"] == a.found.sum()
    assert table.loc["dice", "gower"] == pytest.approx(wanted)
    assert common_table({"dice": two["dice"]}).empty


def test_a_damaged_result_is_left_out_of_the_rows(helpers, tmp_path):
    store, plan = _small_run(helpers, tmp_path / "r")
    cell = next(c for c in plan.cells if c.method.label == "dice")
    path = store.folder("explain", cell.explain_key) / "result.parquet"
    path.write_bytes(b"PAR1 nothing")
    _, data = _data(write_report(tmp_path / "r").page)
    assert "dice" not in data["rows"][0]["methods"]
    assert "sace" in data["rows"][0]["methods"]
    assert "dice" in {m["name"] for m in data["methods"]}


def test_shipped_baselines_stand_beside_the_run(helpers, run, tmp_path, monkeypatch):
    store, plan = open_run(run)
    shipped = collect(store, plan)
    quick = {m: {"method": "report_run:Local"} for m in ("mine",)}
    options = {
        "name": "quick", "datasets": ["wine"], "folds": [0, 1], "methods": quick,
        "max_rows": load_suite("quick").max_rows,
    }  # fmt: skip
    helpers.make_run(tmp_path / "r", **options)
    path = tmp_path / "quick.parquet"
    shipped.to_parquet(path)
    monkeypatch.setattr("cel.report.paper_tables.baseline_path", lambda _: path)
    monkeypatch.setattr(source, "baseline_path", lambda _: path)
    data = read_run(tmp_path / "r")
    assert set(data.scores.loc[data.scores["source"] == "run", "method"]) == {"mine"}
    added = data.cells[data.cells["source"] == BASELINE]
    assert set(added["dataset"]) == {"wine"}
    assert dict(zip(added["method"], added["paradigm"], strict=True))["ares"] == "global"
    assert "Shipped baseline scores stand in" in data.remarks[0]
    alone = read_run(tmp_path / "r", baselines=False)
    assert set(alone.cells["method"]) == {"mine"}
    other = helpers.make_run(tmp_path / "s", **(options | {"seed": 7}))[0]
    changed = read_run(other.root)
    assert set(changed.cells["method"]) == {"mine"}
    assert "because the run changed seed" in changed.remarks[0]


def test_command(helpers, tmp_path):
    _small_run(helpers, tmp_path / "r")
    asked = ["report", str(tmp_path / "r"), "-o", str(tmp_path / "out")]
    assert CliRunner().invoke(app, ["-q", *asked]).output == ""
    done = CliRunner().invoke(app, asked)  # quiet was for that call alone
    assert done.exit_code == 0, done.output
    assert "works offline" in done.output
    assert (tmp_path / "out" / "index.html").exists()


def test_a_run_without_scores_is_refused(helpers, tmp_path):
    from cel.benchmark import Store

    store = Store(tmp_path / "r")
    methods = {"sace": {"method": "sace"}}
    store.write_json("suite.json", helpers.suite(methods=methods).to_dict())
    with pytest.raises(StoreError, match="no scores yet"):
        write_report(tmp_path / "r")


def test_without_matplotlib_everything_but_the_figures_is_written(helpers, tmp_path, monkeypatch):
    _small_run(helpers, tmp_path / "r")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    made = write_report(tmp_path / "r")
    assert {p.name for p in made.files} == {"index.html", "tables.tex", "scores.csv", "suite.json"}
    (told,) = made.left_out
    assert "pip install 'ce-library[report]'" in told


def test_two_runs_on_one_page(helpers, tmp_path):
    _small_run(helpers, tmp_path / "before")
    _small_run(helpers, tmp_path / "after")
    run = gather_runs([tmp_path / "before", tmp_path / "after"])
    wanted = {f"{m} ({r})" for m in ("dice", "sace") for r in ("before", "after")}
    assert set(run.scores["method"]) == set(run.cells["method"]) == wanted
    assert "2 runs together: before, after." in run.remarks
    _, data = _data(write_report([tmp_path / "before", tmp_path / "after"], tmp_path / "o").page)
    assert {m["name"] for m in data["methods"]} == wanted
    assert set(data["rows"][0]["methods"]) == wanted


def test_parts_of_one_suite_complete_each_other(helpers, tmp_path):
    small = {"folds": [0], "classifiers": {"lr": {}}}
    methods = {"dice": {"method": "report_run:Local"}}
    for name in ("wine", "mixed"):
        helpers.make_run(tmp_path / name, datasets=[name], methods=methods, **small)
    run = gather_runs([tmp_path / "wine", tmp_path / "mixed"])
    assert set(run.scores["method"]) == {"dice"}
    assert set(run.scores["dataset"]) == {"wine", "mixed"}


def test_shipped_scores_make_a_page_of_their_own(tmp_path):
    run = read_shipped("standard")
    assert run.store is None
    done = run.cells[run.cells["state"] == "done"]
    assert len(done) == run.scores.groupby(["dataset", "model", "method", "fold"]).ngroups
    assert (run.cells.loc[run.cells["state"] == "skip", "reason"] != "").all()
    assert {"local", "global", "group", "regression"} == set(run.cells["paradigm"])
    kinds = run.cells.drop_duplicates("method").set_index("method")["paradigm"]
    assert kinds["glance_global"] == "global"
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        read_shipped("papper")


def test_outcomes_by_protected_group_by_hand(helpers, tmp_path):
    store, plan = _small_run(helpers, tmp_path / "r")
    block, results = next(iter(stored_results(store, plan)))
    outcomes = GroupOutcomes()
    outcomes.add(block, results)
    outcomes.add(block, results)  # as a second fold would
    lines = {(x["method"], x["group"]): x for x in outcomes.records()}
    result = results["dice"]
    groups = result.originals()["group"].to_numpy()
    mine = (groups == "a") & result.explained
    assert lines["dice", "a"]["rows"] == 2 * mine.sum()
    assert lines["dice", "a"]["found"] == 2 * (mine & result.found).sum()
    won = mine & result.found
    cost = gower(result.x_origs[won], result.x_cfs[won], result.space).sum()
    assert lines["dice", "a"]["cost"] == pytest.approx(2 * cost, abs=1e-4)
