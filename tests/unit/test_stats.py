"""Rank statistics against hand values, scipy and scikit-posthocs."""

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
from scipy import stats

from cel.metrics.bootstrap import bootstrap_interval
from cel.metrics.significance import (
    critical_difference,
    holm,
    least_p,
    mean_ranks,
    rank_methods,
    units_needed,
    wilcoxon_exact,
    win_rates,
)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(12, 4))
    return pd.DataFrame(noise + np.array([0.0, 0.2, 1.5, 3.0]), columns=list("abcd"))


def test_ranks_and_friedman_equal_scipy(table):
    ranking = rank_methods(table, lower_is_better=True)
    assert list(ranking.ranks.index[-2:]) == ["c", "d"]
    assert ranking.ranks.sum() == pytest.approx(10)
    wanted = stats.friedmanchisquare(*table.to_numpy().T).pvalue
    assert ranking.p_value == pytest.approx(wanted)
    flipped = mean_ranks(-table, lower_is_better=False)
    pd.testing.assert_series_equal(flipped, ranking.ranks)


def test_critical_difference_equals_the_published_table():
    # Demsar (2006), table 5: q_0.05 = 2.343 for three, 2.569 for four methods.
    assert critical_difference(3, 1) == pytest.approx(2.343 * np.sqrt(2), abs=2e-3)
    assert critical_difference(4, 14) == pytest.approx(2.569 * np.sqrt(20 / 84), abs=2e-3)


def test_nemenyi_agrees_with_scikit_posthocs(table):
    p = scikit_posthocs.posthoc_nemenyi_friedman(table.to_numpy())
    ranks = table.rank(axis=1).mean().to_numpy()
    gap = np.abs(ranks[:, None] - ranks[None, :])
    significant = gap > critical_difference(4, len(table))
    off = ~np.eye(4, dtype=bool)
    assert np.array_equal(significant[off], (p.to_numpy() < 0.05)[off])


def test_holm_is_monotone_and_bounded():
    p = np.array([0.2, 0.001, 0.04, 0.5])
    adjusted = holm(p)
    assert adjusted.tolist() == pytest.approx([0.4, 0.004, 0.12, 0.5])
    assert np.array_equal(np.argsort(adjusted), np.argsort(p))


def test_win_rates_by_hand():
    table = pd.DataFrame({"a": [1.0, 1.0], "b": [2.0, 1.0], "c": [np.nan, 0.0]})
    rates = win_rates(table, lower_is_better=True)
    assert rates.loc["a", "b"] == 0.75
    assert rates.loc["b", "a"] == 0.25
    assert rates.loc["a", "c"] == 0.5
    assert np.isnan(rates.loc["a", "a"])


def test_pairs_with_equal_values_are_not_significant():
    same = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0], "c": [3.0, 4.0, 5.0]})
    pairs = rank_methods(same, lower_is_better=True).pairs.set_index(["a", "b"])
    assert pairs.loc[("a", "b"), "p"] == 1.0
    assert not pairs.loc[("a", "b"), "significant"]


def test_bootstrap_interval_covers_the_mean():
    values = np.random.default_rng(1).normal(5, 1, 200)
    low, high = bootstrap_interval(values)
    assert low < 5 < high
    assert high - low == pytest.approx(2 * 1.96 / np.sqrt(200), rel=0.2)
    assert all(np.isnan(bootstrap_interval(np.array([np.nan]))))


def test_exact_wilcoxon_equals_scipy_without_ties():
    rng = np.random.default_rng(5)
    for n in (3, 5, 8, 12, 18):
        gaps = rng.normal(0.4, 1, size=(n, 6))
        wanted = stats.wilcoxon(gaps, method="exact", axis=0).pvalue
        np.testing.assert_allclose(wilcoxon_exact(gaps), wanted, atol=1e-12)


def test_exact_wilcoxon_with_ties_and_zeros_equals_all_signs_one_by_one():
    rng = np.random.default_rng(6)
    gaps = rng.integers(-3, 4, size=(9, 5)).astype(float)
    signs = np.array(np.meshgrid(*[[0, 1]] * 9)).reshape(9, -1).T
    for j in range(5):
        ranks = stats.rankdata(np.abs(gaps[:, j])) * (gaps[:, j] != 0)
        law, seen = signs @ ranks, ranks[gaps[:, j] > 0].sum()
        wanted = min(1.0, 2 * min((law <= seen).mean(), (law >= seen).mean()))
        assert wilcoxon_exact(gaps)[j] == pytest.approx(wanted, abs=1e-12)
    pratt = stats.wilcoxon(
        gaps[:, 0], zero_method="pratt", method=stats.PermutationMethod(n_resamples=np.inf)
    )
    assert wilcoxon_exact(gaps[:, :1])[0] == pytest.approx(pratt.pvalue, abs=1e-12)


def test_ten_clear_units_reach_the_smallest_p_of_the_exact_test():
    """The normal approximation gives 0.0051 here; the exact test 2 / 2^10."""
    assert wilcoxon_exact(np.arange(1.0, 11.0)[:, None])[0] == 2 / 2**10
    assert wilcoxon_exact(np.zeros((4, 1)))[0] == 1.0
    assert wilcoxon_exact(np.zeros((0, 2))).tolist() == [1.0, 1.0]


def test_it_is_said_when_no_pair_can_be_significant():
    few = pd.DataFrame(np.arange(70.0).reshape(7, 10), columns=list("abcdefghij"))
    ranking = rank_methods(few, lower_is_better=True)
    assert (ranking.units, ranking.possible) == (7, False)
    assert ranking.pairs["p"].min() == pytest.approx(least_p(7, 45)) == pytest.approx(45 / 64)
    more = pd.DataFrame(np.arange(110.0).reshape(11, 10), columns=list("abcdefghij"))
    assert rank_methods(more, lower_is_better=True).possible
    assert units_needed(45) == 11
    assert rank_methods(more, lower_is_better=True).pairs["significant"].any()
