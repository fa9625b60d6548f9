"""Comparisons row by row: refusing never pays, and datasets are the units of every test."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cel.benchmark import collect, open_run
from cel.benchmark.board import leaderboard
from cel.benchmark.plan import paradigms_of
from cel.benchmark.ranking import WinTable, dataset_means, ranking, rankings
from cel.benchmark.row_scores import common_table, compare_rows, pair_table, pool_common
from cel.benchmark.shipped import guest_pairs, sample_rows
from cel.metrics.rowwise import ranks_from_wins, win_shares
from cel.metrics.significance import holm, wilcoxon_exact


def _table(values, metric="gower"):
    values = np.asarray(values, dtype=float)
    rows = [str(i) for i in range(len(values))]
    return pd.DataFrame({"found": ~np.isnan(values), metric: values}, index=rows)


def test_ranks_from_pairs_are_the_mean_ranks_within_rows():
    rng = np.random.default_rng(0)
    values = rng.uniform(1, 9, (60, 5)).round(1)
    values[rng.random((60, 5)) < 0.2] = np.nan
    wanted = stats.rankdata(np.where(np.isnan(values), np.inf, values), axis=1).mean(0)
    shares = win_shares(values, lower_is_better=True, tie=0.0)
    np.testing.assert_allclose(ranks_from_wins(shares), wanted)
    mirrored = win_shares(-values, lower_is_better=False, tie=0.0)
    np.testing.assert_allclose(mirrored, shares)
    np.testing.assert_allclose((shares + shares.T)[~np.eye(5, dtype=bool)], 1)


def test_chunks_give_the_same_shares(monkeypatch):
    rng = np.random.default_rng(1)
    values = rng.uniform(size=(50, 4))
    whole = win_shares(values, lower_is_better=True)
    monkeypatch.setattr("cel.metrics.rowwise.CHUNK_VALUES", 4 * 4 * 7)
    np.testing.assert_allclose(win_shares(values, lower_is_better=True), whole)


def test_infinite_values_are_values():
    values = np.array([[np.inf, 1.0, np.inf, np.nan]])
    shares = win_shares(values, lower_is_better=True)
    assert shares[1, 0] == 1.0
    assert shares[0, 2] == 0.5
    assert shares[0, 3] == 1.0, "a bad answer beats none"


def test_refusing_hard_rows_does_not_pay():
    """The mean over answered rows prefers the method that answers easy rows only."""
    easy, hard = np.full(50, 0.1), np.full(50, 0.9)
    brave = _table(np.concatenate([easy, hard]))
    picky = _table(np.concatenate([easy * 1.1, np.full(50, np.nan)]))
    assert picky["gower"].mean() < brave["gower"].mean()
    pairs = pair_table({"brave": brave, "picky": picky}).set_index("metric")
    assert pairs.loc["gower", "win"] == 1.0
    assert pairs.loc["success", "win"] == 0.75
    own = common_table({"brave": brave, "picky": picky}).set_index("method")
    assert own.loc["picky", "common"] == own.loc["brave", "common"] == 50
    assert own.loc["brave", "gower"] / 50 == pytest.approx(0.1)
    assert own.loc["picky", "rows"] == 100


def test_methods_that_answer_little_do_not_decide_which_rows_are_common():
    good = _table([1.0, 2.0, 3.0, 4.0])
    poor = _table([1.0, np.nan, np.nan, np.nan])
    table = common_table({"a": good, "b": good, "poor": poor})
    assert list(table["method"]) == ["a", "b"]
    assert (table["common"] == 4).all()
    assert common_table({"a": good, "poor": poor}).empty


def test_folds_are_pooled_over_rows():
    lines = [
        {"dataset": "d", "method": "a", "fold": 0, "rows": 3, "own": 2, "common": 1,
         "gower_own": 4.0, "gower": 1.0},
        {"dataset": "d", "method": "a", "fold": 1, "rows": 3, "own": 2, "common": 3,
         "gower_own": 6.0, "gower": 6.0},
    ]  # fmt: skip
    (line,) = pool_common(pd.DataFrame(lines), ["dataset"]).to_dict("records")
    assert (line["own"], line["common"], line["rows"]) == (4, 4, 6)
    assert (line["gower_own"], line["gower"]) == (2.5, 1.75)


# -- rankings --------------------------------------------------------------------------------


def _pairs(wins, models=("mlp", "lr"), folds=(0, 1), metric="gower"):
    """{dataset: {(a, b): share}} the same for every model and fold."""
    lines = [
        (d, m, f, metric, a, b, w, 10)
        for d, by_pair in wins.items()
        for m in models
        for f in folds
        for (a, b), w in by_pair.items()
    ]
    columns = ["dataset", "model", "fold", "metric", "a", "b", "win", "rows"]
    return pd.DataFrame(lines, columns=columns)


def _scores(values, models=("mlp", "lr"), metric="gower"):
    """{dataset: {method: value}}, with a success of one."""
    lines = [
        (d, m, method, f, name, v if name == metric else 1.0, "local")
        for d, by_method in values.items()
        for m in models
        for method, v in by_method.items()
        for f in (0, 1)
        for name in (metric, "success")
    ]
    columns = ["dataset", "model", "method", "fold", "metric", "value", "paradigm"]
    return pd.DataFrame(lines, columns=columns)


def _clear(n):
    datasets = [f"d{i}" for i in range(n)]
    wins = {d: {("a", "b"): 0.9 - 0.01 * i, ("a", "c"): 1.0, ("b", "c"): 0.7}
            for i, d in enumerate(datasets)}  # fmt: skip
    values = {d: {"a": 1.0, "b": 2.0 + i, "c": 9.0} for i, d in enumerate(datasets)}
    return wins, values


def test_ranking_by_hand():
    wins, values = _clear(4)
    found = ranking(_pairs(wins), _scores(values), "gower", ["c", "b", "a"])
    assert found["methods"] == ["a", "b", "c"]
    middle = 0.9 - 0.015
    assert found["rank"] == pytest.approx([2 - middle, 1 + middle + 0.3, 2.7], abs=1e-4)
    assert found["place"] == [1.0, 2.0, 3.0]
    assert found["mean"] == [1.0, 3.5, 9.0]
    assert found["low"][1] < 3.5 < found["high"][1]
    assert found["rank_low"][1] < found["rank"][1] < found["rank_high"][1]
    assert found["share"] == [1.0, 1.0, 1.0]
    assert found["wins"][0][1] == pytest.approx(middle)
    assert found["wins"][1][0] == pytest.approx(1 - middle)
    assert (found["problems"], found["of"], found["unit"]) == (4, 4, "dataset")
    assert not found["possible"]
    assert found["needed"] == 7


def test_the_dataset_is_the_unit():
    """Twice the models or folds say nothing new; twice the datasets do."""
    wins, values = _clear(8)
    one = ranking(_pairs(wins, models=("mlp",), folds=(0,)), _scores(values), "gower", list("abc"))
    many = ranking(_pairs(wins, folds=range(5)), _scores(values), "gower", list("abc"))
    for name in ("p", "difference", "pairs", "problems", "rank_low", "rank_high", "low", "high"):
        assert one[name] == many[name], name
    gaps = np.array([[0.5 - w[p] for p in w] for w in wins.values()])
    wanted = holm(wilcoxon_exact(gaps))
    assert [p for _, _, p in many["pairs"]] == pytest.approx(wanted.tolist(), rel=1e-4)
    assert many["p"] == pytest.approx(
        stats.friedmanchisquare(*np.tile([1.0, 2.0, 3.0], (8, 1)).T).pvalue, rel=1e-4
    )


def test_models_weigh_the_same_whatever_their_number_of_folds():
    lines = pd.concat(
        [
            _pairs({"d": {("a", "b"): 1.0}}, models=("mlp",), folds=(0, 1, 2)),
            _pairs({"d": {("a", "b"): 0.0}}, models=("lr",), folds=(0,)),
        ]
    )
    assert WinTable(lines, ["a", "b"]).wins[0, 0, 1] == 0.5
    scores = pd.DataFrame(
        {"dataset": "d", "model": ["mlp", "mlp", "mlp", "lr"], "method": "a",
         "metric": "gower", "value": [1.0, 1.0, 1.0, 3.0]}
    )  # fmt: skip
    assert dataset_means(scores, "gower").loc["d", "a"] == 2.0


def test_incomplete_methods_and_datasets_are_told():
    wins, values = _clear(4)
    del wins["d3"][("a", "b")]
    wins["d0"][("a", "z")] = wins["d0"][("b", "z")] = wins["d0"][("c", "z")] = 1.0
    found = ranking(_pairs(wins), _scores(values), "gower", list("abcz"))
    assert (found["left_out"], found["problems"], found["of"]) == (["z"], 3, 4)
    assert ranking(_pairs(wins), _scores(values), "gower", ["a"]) is None
    assert ranking(_pairs(wins), _scores(values), "sparsity", ["a", "b"]) is None


def test_rankings_by_paradigm_and_model_and_own_metrics():
    wins, values = _clear(3)
    pairs = pd.concat([_pairs(wins), _pairs(wins, metric="lof"), _pairs(wins, metric="mad")])
    made = rankings(_scores(values), pairs)
    assert set(made) == {"local", "all"}
    assert set(made["local"]) == {"mlp", "lr", "all"}
    assert set(made["all"]["mlp"]) == {"gower", "lof_median", "mad"}
    assert made["all"]["all"]["lof_median"]["methods"][0] == "a"
    for metric in ("ms_per_row", "time_cpu_s", "mae"):
        assert metric not in made["all"]["all"], "times and tolerances are not ranked"


# -- runs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def invented(tmp_path_factory):
    """A run with invented answers, in which some cells fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "browser"))
        import report_run

        folder = tmp_path_factory.mktemp("rows") / "r"
        report_run.make_run(folder, datasets=["wine", "mixed"], folds=[0, 1])
        yield open_run(folder)
    sys.modules.pop("report_run", None)


def test_a_cell_that_failed_or_was_refused_loses_every_row(invented):
    """Artelt refuses `mixed`, CEGP runs out of time on a fold of `wine`."""
    store, plan = invented
    pairs, common = compare_rows(store, plan)
    refused = pairs[(pairs["dataset"] == "mixed") & (pairs["metric"] == "success")]
    won = refused.loc[refused["b"] == "artelt", "win"]
    lost = refused.loc[refused["a"] == "artelt", "win"]
    assert len(won) > 0
    assert len(lost) > 0
    assert (won > 0.5).all()
    assert (lost < 0.5).all()
    late = pairs[(pairs["model"] == "mlp") & (pairs["dataset"] == "wine")]
    late = late[(late["metric"] == "gower") & (late["b"] == "cegp")]
    by_fold = late.groupby("fold")["win"].mean()
    assert by_fold[1] > by_fold[0]
    assert "artelt" not in set(common.loc[common["dataset"] == "mixed", "method"])
    found = rankings(_with_paradigm(invented), pairs)["local"]["all"]["gower"]
    assert found["problems"] == 2, "a refused dataset is not left out of the comparison"
    assert "artelt" in found["methods"]


def _with_paradigm(invented):
    store, plan = invented
    kinds, scores = paradigms_of(plan), collect(store, plan)
    places = zip(scores["dataset"], scores["method"], strict=True)
    return scores.assign(paradigm=[kinds[p] for p in places])


def test_comparisons_are_kept_until_a_cell_changes(invented, tmp_path):
    store, plan = invented
    before = store.keys("pairs")
    made = compare_rows(store, plan, keep=True)
    assert len(store.keys("pairs")) == len(before) + len(plan.blocks)
    again = compare_rows(store, plan, keep=True)
    for one, two in zip(made, again, strict=True):
        pd.testing.assert_frame_equal(one, two, check_dtype=False)


def test_guests_are_compared_on_shipped_rows(invented):
    store, plan = invented
    rows = sample_rows(store, plan, limit=6)
    assert (rows.groupby(["dataset", "model", "fold", "method"]).size() == 6).all()
    renamed = rows[rows["method"] == "dice"].assign(method="shipped")
    pairs = guest_pairs(store, plan, renamed)
    assert set(pairs["rows"]) == {6}
    twin = pairs[(pairs["a"] == "dice") & (pairs["b"] == "shipped")]
    assert len(twin) > 0
    assert (twin["win"] == 0.5).all(), "the same answers tie"
    assert guest_pairs(store, plan, pd.DataFrame()).empty


def test_the_leaderboard_is_ordered_by_ranks_within_rows():
    scores = _scores({"d": {"brave": 0.5, "picky": 0.1}}, metric="l2_hamming")
    rows = scores[scores["metric"] == "success"].assign(metric="rows", value=10.0)
    scores = pd.concat([scores, rows])
    pairs = _pairs({"d": {("brave", "picky"): 0.9}}, metric="l2_hamming")
    assert list(leaderboard(scores, pairs=pairs)["method"]) == ["brave", "picky"]
    assert list(leaderboard(scores, pairs=pairs)["rank ↓"]) == ["1.1", "1.9"]
