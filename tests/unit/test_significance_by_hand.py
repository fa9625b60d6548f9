"""Small tables of ranks, wins and tests whose answers can be written down."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cel.metrics.rowwise import common_rows, win_shares
from cel.metrics.significance import (
    compare_pairs,
    critical_difference,
    holm,
    least_p,
    mean_ranks,
    rank_methods,
    units_needed,
    wilcoxon_exact,
    win_rates,
)


def test_the_least_p_is_that_of_the_clearest_pair():
    assert least_p(0, 3) == 1.0
    assert least_p(1, 1) == 1.0
    assert least_p(3, 2) == 0.5
    assert least_p(3, 9) == 1.0
    assert (units_needed(1), units_needed(1, alpha=0.5), units_needed(1, alpha=0.25)) == (6, 3, 4)


def test_holm_multiplies_by_what_is_left():
    assert holm(np.array([0.2, 0.01])).tolist() == [0.2, 0.02]
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.03])), [0.06, 0.03, 0.06])


def test_few_units_or_methods_have_no_critical_difference():
    assert np.isnan([critical_difference(1, 5), critical_difference(3, 0)]).all()
    told = critical_difference(2, 1)
    assert told == pytest.approx(1.96, abs=0.001)  # q = 2.772 / sqrt 2, sqrt(2 * 3 / 6) = 1
    assert critical_difference(2, 4) == pytest.approx(told / 2)
    assert critical_difference(2, 1, alpha=0.1) < told


@pytest.mark.parametrize(
    ("gaps", "p"),
    [
        ([1.0, 2.0, 3.0], 0.25),
        ([1.0, 2.0, -3.0], 1.0),  # 3 against 3
        ([-1.0, 2.0, 3.0], 0.5),  # sums 0 and 1 of eight, both ways
        ([0.0, 2.0, 3.0], 0.5),  # zero keeps its rank but has no sign
        ([0.0, 0.0], 1.0),
        ([1.0, 1.0], 0.5),
    ],
)
def test_signed_ranks_by_listing_all_signs(gaps, p):
    assert wilcoxon_exact(np.array(gaps)[:, None]).tolist() == [p]
    both = wilcoxon_exact(np.column_stack([gaps, np.negative(gaps), np.zeros(len(gaps))]))
    assert both.tolist() == [p, p, 1.0]


def test_no_units_and_no_pairs():
    assert wilcoxon_exact(np.zeros((0, 2))).tolist() == [1.0, 1.0]
    assert wilcoxon_exact(np.zeros((3, 0))).tolist() == []
    assert len(compare_pairs(np.zeros((3, 0)), [], 0.05)) == 0


def test_pairs_have_holms_values_and_are_judged_below_alpha():
    gaps = np.array([[1.0, 1.0], [2.0, -2.0], [3.0, 3.0], [4.0, -4.0]])
    found = compare_pairs(gaps, [("a", "b"), ("a", "c")], 0.3)
    assert found["a"].tolist() == ["a", "a"]
    assert found["b"].tolist() == ["b", "c"]
    assert found["p"].tolist() == [0.25, 0.875]
    assert found["significant"].tolist() == [True, False]
    assert compare_pairs(gaps, [("a", "b"), ("a", "c")], 0.25)["significant"].sum() == 0


TABLE = pd.DataFrame({"a": [1.0, 1.0, 1.0], "b": [2.0, 3.0, 2.0], "c": [3.0, 2.0, 2.0]})


def test_methods_are_ranked_on_units_without_gaps():
    more = pd.concat([TABLE, pd.DataFrame({"a": [9.0], "b": [1.0]})], ignore_index=True)
    for table in (TABLE, more):
        found = rank_methods(table, lower_is_better=True)
        assert found.units == 3
        np.testing.assert_allclose(found.ranks.loc[["a", "b", "c"]], [1.0, 2.5, 2.5])
        assert found.ranks.index[0] == "a"
        assert found.p_value == pytest.approx(stats.friedmanchisquare(*TABLE.to_numpy().T).pvalue)
        assert found.difference == pytest.approx(critical_difference(3, 3))
        assert list(zip(found.pairs["a"], found.pairs["b"], strict=True)) == [
            ("a", "b"), ("a", "c"), ("b", "c"),
        ]  # fmt: skip
        assert found.pairs["p"].tolist() == [0.75, 0.75, 1.0]
        assert found.possible is False  # 3 pairs * 2 / 8
    assert rank_methods(TABLE, lower_is_better=False).ranks.index[-1] == "a"


def test_levels_are_five_percent_unless_asked():
    six = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0) + 1})
    found = rank_methods(six, lower_is_better=True)
    assert found.pairs["p"].item() == 2 / 64
    assert (found.pairs["significant"].item(), found.possible) == (True, True)
    assert found.difference == pytest.approx(critical_difference(2, 6, 0.05))
    five = rank_methods(six[:5], lower_is_better=True)
    assert (five.pairs["p"].item(), five.pairs["significant"].item()) == (0.0625, False)
    assert five.possible is False
    wide = rank_methods(six[:5], lower_is_better=True, alpha=0.1)
    assert (wide.pairs["significant"].item(), wide.possible) == (True, True)
    assert wide.difference == pytest.approx(critical_difference(2, 5, 0.1))


def test_friedman_needs_three_methods_two_units_and_a_difference():
    assert np.isnan(rank_methods(TABLE[["a", "b"]], lower_is_better=True).p_value)
    assert np.isnan(rank_methods(TABLE[:1], lower_is_better=True).p_value)
    assert np.isfinite(rank_methods(TABLE[:2], lower_is_better=True).p_value)
    flat = pd.DataFrame(1.0, index=range(3), columns=list("abc"))
    assert np.isnan(rank_methods(flat, lower_is_better=True).p_value)
    nearly = flat.copy()
    nearly.loc[0, "a"] = 0.0
    assert np.isfinite(rank_methods(nearly, lower_is_better=True).p_value)


def test_what_is_tested_may_be_given():
    gaps = np.array([[1.0, 1.0, 1.0]] * 3)
    found = rank_methods(TABLE, lower_is_better=True, gaps=gaps)
    assert found.pairs["p"].tolist() == [0.75, 0.75, 0.75]


def test_ranks_are_shared_and_best_first():
    table = pd.DataFrame({"a": [3.0, 2.0], "b": [1.0, 2.0]})
    assert mean_ranks(table, lower_is_better=True).to_dict() == {"b": 1.25, "a": 1.75}
    assert list(mean_ranks(table, lower_is_better=True).index) == ["b", "a"]
    assert mean_ranks(table, lower_is_better=False).to_dict() == {"a": 1.25, "b": 1.75}


def test_wins_count_ties_half_and_missing_values_lose():
    table = pd.DataFrame({"a": [1.0, 2.0, np.nan, 1.0], "b": [2.0, 2.0, 5.0, 0.0]})
    low = win_rates(table, lower_is_better=True)
    assert (low.loc["a", "b"], low.loc["b", "a"]) == (1.5 / 4, 2.5 / 4)
    high = win_rates(table, lower_is_better=False)
    assert (high.loc["a", "b"], high.loc["b", "a"]) == (1.5 / 4, 2.5 / 4)
    assert np.isnan(np.diag(low)).all()


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        (1.0, 1.0009, 0.5),  # within a thousandth of the larger one
        (1.0, 1.0011, 1.0),
        (1000.0, 1000.9, 0.5),
        (0.001, 0.0019, 1.0),
        (-1.0, -1.0009, 0.5),
        (2.0, 1.0, 0.0),
        (np.nan, 1.0, 0.0),
        (1.0, np.nan, 1.0),
        (np.nan, np.nan, 0.5),
        (np.inf, np.inf, 0.5),
        (1.0, np.inf, 1.0),
    ],
)
def test_values_that_are_close_are_a_tie(a, b, share):
    found = win_shares(np.array([[a, b]]), lower_is_better=True)
    assert found[0, 1] == share
    assert found[1, 0] == 1 - share
    turned = win_shares(-np.array([[a, b]]), lower_is_better=False)
    assert turned[0, 1] == share
    assert win_shares(np.array([[1.0, 1.4]]), lower_is_better=True, tie=0.3)[0, 1] == 0.5


def test_shares_without_rows_are_unknown():
    assert np.isnan(win_shares(np.zeros((0, 2)), lower_is_better=True)).all()
    assert np.isnan(np.diag(win_shares(np.ones((3, 2)), lower_is_better=True))).all()


def test_common_rows_ask_methods_that_answered_enough():
    answered = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 1, 1]], dtype=bool)
    rows, asked = common_rows(answered)
    assert (rows.tolist(), asked.tolist()) == ([False] * 4, [True] * 3)
    rows, asked = common_rows(answered, enough=0.5)
    assert (rows.tolist(), asked.tolist()) == ([True, True, False, False], [True, True, False])
    rows, asked = common_rows(answered, enough=0.75)
    assert asked.tolist() == [True, True, False]
    rows, asked = common_rows(answered[:0])
    assert (rows.tolist(), asked.tolist()) == ([], [False] * 3)
