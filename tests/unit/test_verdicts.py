"""Verdicts against print: bands that can fail, experiments that explain, and the placebo."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cel.benchmark import load_suite
from cel.benchmark.experiment_outcomes import (
    dropped_experiments,
    experiment_outcomes,
    shipped_experiments,
)
from cel.benchmark.experiments import DERIVED, experiments
from cel.benchmark.preflight import check_settings
from cel.benchmark.shipped import shipped_table
from cel.benchmark.side_by_side import compare_runs, compare_with_paper, paper_results
from cel.benchmark.verdicts import beyond_accident, placebo, reproduced, verdicts
from cel.errors import ConfigError


def _one(ours, std, folds, printed, printed_std, direction=1):
    values = (ours, std, folds, printed, printed_std, direction)
    return str(verdicts(*(np.array([float(v)]) for v in values))[0])


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ((0.50, 0.02, 5, 0.51, 0.02), "agrees"),
        ((0.60, 0.55, 5, 1.00, 0.00), "noise"),  # 0.60 +- 0.55 against 1.00 is no agreement
        ((0.90, 0.01, 5, 0.99, 0.01), "worse"),  # within ten per cent, far outside the errors
        ((0.90, 0.01, 5, 0.99, 0.01, -1), "better"),
        ((-8.76, 1.0, 5, 0.00, -np.inf), "worse"),  # an infinite deviation is no band
        ((-8.76, 1.0, 5, 0.00, np.nan), "worse"),
        ((1.0897, np.nan, 1, 1.20, 0.01, -1), "better"),  # one fold has no deviation
        ((1.0897, 9.0, 1, 1.20, 0.01, -1), "better"),
        ((0.004, 0.0, 5, 0.00, 0.00), "agrees"),  # two digits are printed
        ((0.006, 0.0, 5, 0.00, 0.00), "better"),
    ],
)
def test_bands_are_two_errors_and_ten_per_cent(cell, said):
    assert _one(*cell) == said


def test_the_error_is_pooled_over_both_sides_with_their_own_folds():
    gap, std = 0.4, 0.2
    error = np.hypot(std / np.sqrt(2), std / np.sqrt(5))
    inside, outside = 10 - 2 * error, 10 - 2 * error - 0.01
    assert _one(inside, std, 2, 10, std) == "agrees"
    assert _one(outside, std, 2, 10, std) == "worse"
    assert _one(10 - gap, std, 5, 10, std) == "worse", "five folds err less than two"


def _scores(change=None, folds=5):
    """The printed means as scores, on every fold the same."""
    printed = paper_results().dropna(subset=["mean"])
    table = pd.DataFrame(
        {"dataset": printed["dataset"], "model": printed["our_model"],
         "method": printed["our_method"], "metric": printed["our_metric"],
         "value": printed["mean"]}
    )  # fmt: skip
    if change is not None:
        table["value"] = change(table)
    parts = [table.assign(fold=f, reason="") for f in range(folds)]
    return pd.concat(parts, ignore_index=True)


def test_print_agrees_with_itself_and_times_are_not_compared():
    found = compare_with_paper(_scores())
    blank = found["mean_paper"].isna()
    times = found["metric"] == "time_s"
    assert set(found.loc[blank, "verdict"]) == {"missing"}
    assert set(found.loc[~blank & times, "verdict"]) == {"not_comparable"}
    assert set(found.loc[~blank & ~times, "verdict"]) == {"agrees"}
    one = compare_with_paper(_scores(folds=1))
    assert one.loc[one["mean_ours"].notna(), "reason"].str.startswith("one fold").all()


def test_an_experiment_explains_a_cell_only_by_giving_the_printed_value():
    def wrong(table):
        hit = (table["method"] == "cegp") & (table["metric"] == "lof")
        return table["value"].where(~hit, table["value"] * 3)

    scores = _scores(wrong)
    cells = lambda t: t[(t["our_method"] == "cegp") & (t["metric"] == "lof")]  # noqa: E731
    plain = cells(compare_with_paper(scores)).dropna(subset=["mean_paper"])
    assert (plain["verdict"] == "worse").all()
    good = _scores().assign(experiment="cegp_theta_0")
    told = cells(compare_with_paper(scores, good)).dropna(subset=["mean_paper"])
    assert (told["verdict"] == "explained").all()
    assert told["reason"].str.startswith("cegp_theta_0: ").all()
    bad = scores.assign(experiment="cegp_theta_0")
    told = cells(compare_with_paper(scores, bad)).dropna(subset=["mean_paper"])
    assert (told["verdict"] == "unexplained").all()
    foreign = _scores().assign(experiment="artelt_radius")
    told = cells(compare_with_paper(scores, foreign)).dropna(subset=["mean_paper"])
    assert (told["verdict"] == "worse").all(), "it is not about CEGP"


def test_the_placebo_finds_what_agrees_by_accident():
    right = placebo(compare_with_paper(_scores()))
    assert right.loc["all", "right"] == 1.0
    assert right.loc["all", "wrong"] < 0.5
    alike = placebo(compare_with_paper(_scores(lambda t: 0 * t["value"] + 0.5)))
    assert alike.loc["all", "right"] == pytest.approx(alike.loc["all", "wrong"], abs=0.05)


def test_a_method_is_reproduced_only_beyond_chance_over_datasets():
    names = ["right", "wrong", "p"]
    found = pd.DataFrame(
        {"clear": (0.4, 0.2, 0.01), "often_by_chance": (0.4, 0.2, 0.06),
         "sure_but_close": (0.25, 0.2, 0.01), "surely_worse": (0.1, 0.3, 0.01),
         "never": (0.0, 0.0, 0.01)},
        index=names,
    ).T  # fmt: skip
    assert reproduced(found).to_dict() == {
        "clear": True, "often_by_chance": False, "sure_but_close": False, "surely_worse": False,
        "never": False,
    }  # fmt: skip


def test_the_placebo_takes_datasets_as_units():
    """Shares by dataset by hand, tested by scipy, for one method of the shipped scores."""
    table = compare_with_paper(shipped_table("paper"))
    told = placebo(table).loc["cadex"]
    known = table.dropna(subset=["mean_ours", "mean_paper"])
    known = known[known["metric"] != "time_s"]
    place = ["table", "dataset", "our_model", "metric"]
    lines = {d: ([], []) for d in known["dataset"].unique()}
    for _, group in known.groupby(place):
        for _, mine in group[group["our_method"] == "cadex"].iterrows():
            for _, other in group.iterrows():
                if mine["mean_ours"] == 1 and other["mean_paper"] == 1:
                    continue
                said = _one(mine["mean_ours"], mine["std_ours"], mine["folds"],
                            other["mean_paper"], other["std_paper"])  # fmt: skip
                side = other["our_method"] != "cadex"
                lines[mine["dataset"]][side].append(said == "agrees")
    gaps = [np.mean(right) - np.mean(wrong) for right, wrong in lines.values() if right and wrong]
    assert (told["datasets"], told["ahead"]) == (len(gaps), sum(g > 0 for g in gaps))
    signs = stats.PermutationMethod(n_resamples=np.inf)
    wanted = stats.wilcoxon(gaps, zero_method="pratt", method=signs)
    assert told["p"] == pytest.approx(wanted.pvalue, rel=1e-6)
    assert told["cells"] == sum(len(right) for right, _ in lines.values())


def test_what_an_imitation_gives_by_accident_is_no_explanation():
    assert beyond_accident(38, 128, 66, 710)[0]
    assert not beyond_accident(6, 28, 23, 211)[0]
    assert not beyond_accident(200, 1000, 150, 1000)[0], "beyond chance, but hardly more often"
    assert not beyond_accident(0, 0, 0, 0)[0]


def test_experiments_are_kept_or_dropped_by_their_scores():
    def wrong(table):
        return table["value"].where(table["method"] != "cegp", table["value"] * 3 + 1)

    scores = _scores(wrong)
    good = _scores().assign(experiment="cegp_theta_0")
    found = experiment_outcomes(scores, good).loc["cegp_theta_0"]
    assert found["kept"]
    assert found["explained"] == found["tried"] == found["about"] > 40
    printed = paper_results()
    ones = (printed["our_method"] == "cegp") & (printed["mean"] == 1)
    assert found["tried"] - found["cells"] == ones.sum() > 0, "1 = 1 says nothing"
    bad = _scores(lambda t: t["value"] * 5 + 3).assign(experiment="cegp_theta_0")
    found = experiment_outcomes(scores, bad)
    assert found.loc["cegp_theta_0", ["explained", "kept"]].tolist() == [0, False]
    assert found.loc["dice_closest", "kept"] is None, "it was not run"
    told = compare_with_paper(scores, good, dropped={"cegp_theta_0"})
    assert not (told["verdict"] == "explained").any()
    mine = told[(told["our_method"] == "cegp") & told["mean_paper"].notna()]
    assert "unexplained" in set(mine["verdict"])
    assert not {"better", "worse"} & set(mine["verdict"])


def test_shipped_experiments_that_fail_explain_nothing():
    scores, tried = shipped_experiments()
    found = experiment_outcomes(scores, tried)
    dropped = dropped_experiments()
    assert dropped == set(found.index[[k is False for k in found["kept"]]])
    table = compare_with_paper(scores, tried, dropped=dropped)
    told = table.loc[table["verdict"] == "explained", "reason"].str.partition(":")[0]
    assert set(told).isdisjoint(dropped)
    kept = found[[k is True for k in found["kept"]]]
    assert set(told) <= set(kept.index)
    assert bool(len(told)) == bool(len(kept))
    assert len(told) <= kept["explained"].sum()


def test_experiments_are_runnable_variants_of_the_printed_suite():
    suite = load_suite("paper")
    labels = {m.label for m in suite.methods}
    metrics = set(paper_results()["metric"])
    for experiment in experiments():
        assert set(experiment.method) <= labels
        assert set(experiment.metric) <= metrics
        if experiment.derive:
            assert experiment.derive in DERIVED
            continue
        variant = experiment.variant(suite)
        check_settings(variant)
        assert variant != suite
        assert bool(experiment.params) != bool(experiment.suite), "one change at a time"
    with pytest.raises(ConfigError, match="did you mean"):
        experiments(["cegp_theta_1"])


def test_unanswered_rows_as_originals_by_hand():
    lines = [("d", "lr", "dice", 0, m, v, "") for m, v in
             {"success": 0.5, "coverage": 0.6, "sparsity_encoded": 0.4}.items()]  # fmt: skip
    columns = ["dataset", "model", "method", "fold", "metric", "value", "reason"]
    found = DERIVED["unanswered_as_original"](pd.DataFrame(lines, columns=columns))
    assert found.set_index("metric")["value"].to_dict() == {
        "coverage": 1.0, "success": 0.5, "sparsity_encoded": 0.2,
    }  # fmt: skip


def test_nothing_changed_where_no_row_of_an_experiment_was_answered():
    lines = [("d", "lr", "tcrex", f, m, 0.0, "") for m in ("success", "coverage") for f in (0, 1)]
    columns = ["dataset", "model", "method", "fold", "metric", "value", "reason"]
    found = DERIVED["unanswered_as_original"](pd.DataFrame(lines, columns=columns))
    values = found.groupby("metric")["value"].agg(["count", "max"])
    assert set(values["count"]) == {2}
    assert values["max"].to_dict() == {
        "coverage": 1.0, "success": 0.0, "sparsity": 0.0, "sparsity_encoded": 0.0,
        "l2_hamming": 0.0, "l2_hamming_encoded": 0.0,
    }  # fmt: skip


def test_means_over_found_rows_carry_the_share_that_they_cover():
    keys = {"dataset": "moons", "model": "lr", "method": "cadex", "reason": ""}
    lines = [
        {**keys, "fold": f, "metric": m, "value": v}
        for m, values in {"success": (0.5, 0.7), "sparsity_encoded": (0.2, 0.4)}.items()
        for f, v in enumerate(values)
    ]
    ours = pd.DataFrame(lines)
    beside = compare_with_paper(ours)
    mine = beside[(beside["our_method"] == "cadex") & (beside["our_model"] == "lr")]
    assert mine["found_ours"].to_numpy() == pytest.approx(0.6)
    printed = mine.set_index("metric")
    assert (printed["found_paper"] == printed.loc["validity", "mean_paper"]).all()
    other = ours.assign(value=ours["value"] / 2)
    both = compare_runs(ours, other)
    assert both["found_first"].to_numpy() == pytest.approx(0.6)
    assert both["found_second"].to_numpy() == pytest.approx(0.3)
