"""The paper's tables, baselines and rankings against hand values."""

import numpy as np
import pandas as pd
import pytest

from cel.benchmark import summarise
from cel.report import paper_tables as tables
from cel.report.appearance import COLOURS
from cel.report.paper_latex import tables_to_latex
from cel.report.paper_tables import BASELINE, paper_tables, with_baselines

METRICS = ("coverage", "success", "sparsity_encoded", "log_density", "lof", "time_s")


def _scores(values, dataset="wine", model="mlp", paradigm="local"):
    """{method: {metric: one value per fold}} as a score table."""
    lines = [
        (dataset, model, method, fold, metric, value, "", "run", paradigm)
        for method, by_metric in values.items()
        for metric, folds in by_metric.items()
        for fold, value in enumerate(folds)
    ]
    names = ["dataset", "model", "method", "fold", "metric", "value", "reason", "source"]
    return pd.DataFrame(lines, columns=[*names, "paradigm"])


def _cells(scores, **states):
    names = ["dataset", "model", "method", "fold", "source", "paradigm"]
    cells = scores[names].drop_duplicates().assign(state="done", reason="", rows=10)
    for method, (state, reason, fold) in states.items():
        base = cells.iloc[0].to_dict()
        extra = {"method": method, "state": state, "reason": reason, "fold": fold}
        same = (cells["method"] == method) & (cells["fold"] == fold)
        cells = pd.concat([cells[~same], pd.DataFrame([base | extra])], ignore_index=True)
    return cells


@pytest.fixture
def scores():
    folds = {m: [1.0, 0.0] for m in METRICS}
    good = folds | {"success": [1.0, 0.9], "lof": [1.0, 1.2], "sparsity_encoded": [0.2, 0.2]}
    poor = folds | {"success": [0.5, 0.5], "lof": [2.0, 2.0], "sparsity_encoded": [0.9, 0.9]}
    return _scores({"dice": good, "cem": poor, "mine": poor | {"lof": [1.1, 1.1]}})


def _entry(table, method, metric):
    line = next(x for x in table.lines if x.method == method)
    return line.entries[table.metrics.index(metric)]


def test_means_deviations_and_directions(scores):
    (table,) = paper_tables(scores, _cells(scores))
    assert (table.name, table.model, table.paradigm) == ("num_metrics_mlp", "mlp", "local")
    best = {m: [x.method for x in table.lines if x.entries[i].best]
            for i, m in enumerate(table.metrics)}  # fmt: skip
    assert best["success"] == ["dice"]
    assert best["sparsity_encoded"] == ["dice"], "the paper's arrow for sparsity is wrong"
    assert set(best["lof"]) == {"dice", "mine"}, "equal after rounding"
    entry = _entry(table, "dice", "success")
    assert entry.mean == pytest.approx(0.95)
    assert entry.std == pytest.approx(np.std([1.0, 0.9], ddof=1))
    ours = summarise(scores).set_index(["method", "metric"])
    for line in table.lines:
        for metric, e in zip(table.metrics, line.entries, strict=True):
            assert e.mean == pytest.approx(ours.loc[(line.method, metric), "mean"])


def test_printed_values_and_guests(scores):
    (table,) = paper_tables(scores, _cells(scores))
    entry = _entry(table, "dice", "success")
    assert entry.paper == (0.80, 0.20), "wine, DiCE, validity of the printed table"
    assert entry.verdict in ("agrees", "noise", "better", "worse", "explained", "unexplained")
    guest = _entry(table, "mine", "success")
    assert np.isnan(guest.paper[0])
    assert guest.verdict == ""
    assert next(x for x in table.lines if x.method == "mine").printed, "own methods are shown"


def test_methods_that_a_table_leaves_out_are_marked():
    values = {"dice": {"success": [0.5]}, "ppcef": {"success": [0.9]}}
    scores = _scores(values, dataset="law")
    (table,) = paper_tables(scores, _cells(scores))
    assert table.name == "cat_metrics_mlp"
    assert [x.printed for x in table.lines] == [True, False]
    dice, ppcef = _entry(table, "dice", "success"), _entry(table, "ppcef", "success")
    assert (dice.best, dice.best_of_all) == (True, False)
    assert (ppcef.best, ppcef.best_of_all) == (False, True)
    assert "PPCEF" not in tables_to_latex([table])


def test_failed_and_partial_cells_are_told_and_never_best(scores):
    gone = scores[(scores["method"] != "dice") | (scores["fold"] == 0)]
    cells = _cells(gone, dice=("timeout", "killed after 9 s", 1), sace=("error", "broken", 0))
    (table,) = paper_tables(gone, cells)
    partial, failed = _entry(table, "dice", "success"), _entry(table, "sace", "success")
    assert partial.state == "partial"
    assert partial.mean == 1.0
    assert not partial.best
    assert partial.reason == "1 of 2 folds. fold 1: timeout: killed after 9 s"
    assert (failed.state, failed.reason) == ("error", "fold 0: error: broken")
    text = tables_to_latex([table])
    assert r"\emph{error}" in text
    assert "^*$" in text


def test_a_metric_without_value_keeps_its_reason(scores):
    scores.loc[(scores["method"] == "cem") & (scores["metric"] == "lof"), "value"] = np.nan
    scores.loc[(scores["method"] == "cem") & (scores["metric"] == "lof"), "reason"] = "no rows"
    (table,) = paper_tables(scores, _cells(scores))
    entry = _entry(table, "cem", "lof")
    assert (entry.state, entry.reason) == ("undefined", "fold 0, 1: no rows")


def test_every_printed_table_is_made_when_all_cells_are_there():
    printed = tables.paper_results()
    parts = []
    for (paradigm, model, dataset), rows in printed.groupby(["paradigm", "our_model", "dataset"]):
        values = {m: {"coverage": [1.0], "mae": [0.1], "l2": [1.0]} for m in rows["our_method"]}
        parts.append(_scores(values, dataset, model, paradigm))
    scores = pd.concat(parts, ignore_index=True)
    made = {t.name: t for t in paper_tables(scores, _cells(scores))}
    assert set(made) == set(printed["table"])
    for name, rows in printed.groupby("table"):
        lines = {(x.dataset, x.method) for x in made[name].lines}
        assert lines == set(zip(rows["dataset"], rows["our_method"], strict=True))
    text = tables_to_latex(made.values())
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 10


def test_baselines_are_added_for_methods_and_places_of_the_run(tmp_path, monkeypatch, scores):
    own = scores.drop(columns=["source", "paradigm"])
    assert set(with_baselines(own, "quick-without-baselines")["source"]) == {"run"}
    shipped = pd.concat([own.replace("dice", "wachter"), own.assign(dataset="moons")])
    (tmp_path / "baselines").mkdir()
    shipped.to_parquet(tmp_path / "baselines" / "quick.parquet")
    monkeypatch.setattr(tables.resources, "files", lambda _: tmp_path)
    both = with_baselines(own, "quick")
    added = both[both["source"] == BASELINE]
    assert set(added["method"]) == {"wachter"}, "dice, cem and mine were run"
    assert set(added["dataset"]) == {"wine"}, "moons was not"
    pd.testing.assert_frame_equal(both[both["source"] == "run"].drop(columns="source"), own)


def test_colours_differ_also_for_colour_blind_people():
    # Machado, Oliveira and Fernandes (2009), severity 1; distances in CIELAB.
    views = [
        np.eye(3),
        np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
        np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    ]
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722],
                       [0.0193, 0.1192, 0.9505]])  # fmt: skip
    rgb = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in COLOURS.values()]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    for view in views:
        xyz = np.clip(linear @ view.T, 0, 1) @ to_xyz.T / [0.9505, 1.0, 1.089]
        f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        lab = np.stack(
            [116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1
        )
        gaps = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
        assert gaps[~np.eye(len(lab), dtype=bool)].min() > 15


def test_every_method_has_a_title_of_its_own():
    """A name as it is typed (`face`) is no title; titles tell methods apart."""
    from cel.cf_methods import METHODS
    from cel.report.appearance import method_title

    titles = {name: method_title(name) for name in METHODS}
    assert not [n for n, title in titles.items() if title == n]
    assert len(set(titles.values())) == len(titles)


def test_a_table_without_validity_says_what_its_means_cover():
    folds = {"success": [0.5, 0.7], "mae": [0.1, 0.1], "l2": [1.0, 2.0], "lof": [1.0, 1.0]}
    made = _scores({"wachter": folds}, "concrete", "mlp_regressor", "regression")
    (table,) = paper_tables(made, _cells(made))
    assert table.titles[0] == "Found"
    assert _entry(table, "wachter", "success").mean == pytest.approx(0.6)
    assert "Found" in tables_to_latex([table])


def test_exported_columns_bring_the_share_of_rows(scores):
    from cel.report.latex import to_latex

    told = to_latex(summarise(scores), ["lof"])
    (head,) = [x for x in told.splitlines() if "LOF" in x]
    assert head.index("Success") < head.index("LOF")
    alone = to_latex(summarise(scores), ["time_s"])
    assert "Success" not in alone.replace("Found or Success", ""), "a time is not over found rows"
