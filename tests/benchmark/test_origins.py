"""What scores belong to: versions, recipes and weights."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from cel.benchmark import load_suite, open_run, packaged_suites, run
from cel.benchmark.origins import digest_of, earlier_versions, kinship, origins, planned
from cel.benchmark.plan import make_plan
from cel.benchmark.shipped import shipped_table
from cel.report.gathered import read_shipped
from cel.report.source import _relations, read_run, versions_remark

CELL = ["dataset", "model", "method", "fold"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    suite = load_suite("smoke").narrowed(
        datasets=["moons"], methods=["nearest", "nice", "artelt_scp"]
    )
    root = tmp_path_factory.mktemp("origins") / "r"
    run(replace(suite, density={"model": "gmm"}, max_rows=5), root)
    return open_run(root)


def _file(store, plan, stage):
    block = plan.blocks[0]
    key = {"predictor": block.predictor_key, "density": block.density_key}[stage]
    return store.folder(stage, key) / "model.safetensors"


def test_every_scored_cell_has_an_origin_with_the_weights_of_its_models(finished):
    store, plan = finished
    table = origins(store, plan)
    assert set(table["method"]) == {"nearest", "nice", "artelt_scp"}
    for stage in ("predictor", "density"):
        assert set(table[stage]) == {digest_of(_file(store, plan, stage))} != {""}
    versions = {c.method.label: plan.facts[c.method.method].version for c in plan.cells}
    assert dict(zip(table["method"], table["version"], strict=True)) == versions
    keys = {c.method.label: c.explain_key for c in plan.cells}
    assert all(keys[m].startswith(k) for m, k in zip(table["method"], table["key"], strict=True))


def test_cells_without_scores_have_none(finished, tmp_path):
    _, plan = finished
    from cel.benchmark import Store

    assert origins(Store(tmp_path / "empty"), plan).empty
    assert len(planned(plan)) == len(plan.cells)


def test_a_digest_is_of_arrays_and_of_nothing_else(finished, tmp_path):
    path = _file(*finished, "predictor")
    arrays = load_file(path)
    again = tmp_path / "again.safetensors"
    save_file(arrays, again, {"told": "otherwise"})
    assert digest_of(again) == digest_of(path)
    for changed in (
        {n: a + (n == next(iter(arrays))) for n, a in arrays.items()},
        {n: a.double() if a.is_floating_point() else a for n, a in arrays.items()},
        {f"{n}_": a for n, a in arrays.items()},
        {**arrays, "more": torch.ones(1, dtype=torch.bfloat16)},
    ):
        save_file(changed, again)
        assert digest_of(again) not in ("", digest_of(path))
    link = tmp_path / "link.safetensors"
    link.symlink_to(path)
    assert digest_of(link) == ""
    again.write_bytes(b"no model")
    assert digest_of(again) == digest_of(tmp_path / "missing") == ""


def test_a_version_that_rose_is_told(finished):
    store, plan = finished
    told = origins(store, plan)
    assert earlier_versions(told, plan) == {}
    assert versions_remark(told, plan) == ()
    now = int(told.loc[told["method"] == "nice", "version"].iloc[0])
    told.loc[told["method"] == "nice", "version"] = now - 1
    assert earlier_versions(told, plan) == {"nice": (now - 1, now)}
    (said,) = versions_remark(told, plan)
    assert f"of version {now - 1} (here {now})" in said
    assert earlier_versions(told.assign(method="unknown"), plan) == {}
    assert earlier_versions(pd.DataFrame(), plan) == {}


def _place(fold, **values):
    about = {"dataset": "d", "model": "m", "fold": fold, "method": "x"}
    return about | {"recipe": "r", "predictor": "p", "density": "q"} | values


@pytest.mark.parametrize(
    ("told", "related"),
    [
        ([_place(0), _place(1)], (2, 2, 2, 2)),
        ([_place(0), _place(1, density="other")], (2, 2, 2, 1)),
        ([_place(0), _place(1, predictor="other")], (2, 2, 2, 1)),
        ([_place(0), _place(1, recipe="other")], (2, 1, 1, 1)),
        ([_place(0), _place(1, density="")], (2, 2, 1, 1)),
        ([_place(0, predictor=""), _place(1, recipe="other")], (2, 1, 0, 0)),
        ([_place(7)], (0, 0, 0, 0)),
        ([], (0, 0, 0, 0)),
    ],
)
def test_models_are_compared_block_by_block(told, related):
    mine = pd.DataFrame([_place(0), _place(1), _place(1, method="y"), _place(2)])
    found = kinship(mine, pd.DataFrame(told))
    assert (found.blocks, found.recipe, found.known, found.weights) == related


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, "very models of this run, in 2 blocks"),
        ({"density": "other"}, "in 1 of 2 blocks with the same weights, else with others"),
        ({"recipe": "other"}, "otherwise than those of the shipped scores in 1 of 2 blocks"),
    ],
)
def test_the_report_says_whose_models_shipped_scores_belong_to(other, words):
    mine = pd.DataFrame([_place(0), _place(1)])
    (said,) = _relations(mine, pd.DataFrame([_place(0), _place(1, **other)]))
    assert words in said
    assert _relations(mine, pd.DataFrame()) == ()
    (said,) = _relations(mine, pd.DataFrame([_place(0, density=""), _place(1, density="")]))
    assert "their weights are not known" in said


def test_a_run_of_quick_is_told_about_the_shipped_models(tmp_path, monkeypatch):
    part = load_suite("quick").narrowed(
        datasets=["wine"], methods=["nearest"], models=["lr"], folds=[0]
    )
    run(part, tmp_path / "r")
    remarks = read_run(tmp_path / "r").remarks
    assert any("Shipped scores belong to" in said for said in remarks), remarks
    asked = []
    monkeypatch.setattr(
        "cel.report.source.earlier_versions",
        lambda told, _: asked.append(told) or {"nice": (1, 9)},
    )
    assert "NICE of version 1 (here 9)" in read_run(tmp_path / "r").remarks[-1]
    assert "nice" in set(asked[0]["method"])
    assert "nearest" not in set(asked[0]["method"])  # its scores are of this run


@pytest.mark.parametrize("suite", [s for s in packaged_suites() if len(shipped_table(s))])
def test_shipped_scores_say_what_they_belong_to(suite):
    told, plan = shipped_table(suite, "origins"), make_plan(load_suite(suite))
    scores = shipped_table(suite)[CELL].drop_duplicates()
    assert len(told) == len(scores) == len(told.merge(scores, on=CELL))
    both = told.merge(planned(plan), on=CELL, suffixes=("", "_now"))
    assert len(both) == len(told)
    assert (both["recipe"] == both["recipe_now"]).all()  # models would be trained in the same way
    same = both["version"] == both["version_now"]
    assert (both["key"] == both["key_now"])[same].all()  # and lines have the settings of the suite
    assert read_shipped(suite).remarks[1:] == versions_remark(told, plan)
