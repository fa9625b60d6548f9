"""Rank statistics against hand values, scipy and scikit-posthocs."""

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
from scipy import stats

from cel.report.stats import (
    bootstrap_interval,
    critical_difference,
    holm,
    mean_ranks,
    rank_methods,
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
