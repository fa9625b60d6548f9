"""Rank statistics over independent units (datasets): who is better than whom, and how sure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

__all__ = [
    "Ranking",
    "compare_pairs",
    "critical_difference",
    "holm",
    "least_p",
    "mean_ranks",
    "rank_methods",
    "units_needed",
    "wilcoxon_exact",
    "win_rates",
]


@dataclass(frozen=True)
class Ranking:
    """Methods ranked on the units for which all of them have a value.

    Attributes:
        ranks: mean rank of each method, best first.
        units: number of units (rows of the table) that went in.
        p_value: of Friedman's test that all methods are alike; NaN with fewer than three methods.
        difference: Nemenyi's critical difference at 5 %.
        pairs: pairwise Wilcoxon tests with Holm's correction: a, b, p, significant.
        possible: whether any pair could be significant, given so few units and so many pairs.
    """

    ranks: pd.Series
    units: int
    p_value: float
    difference: float
    pairs: pd.DataFrame
    possible: bool


def mean_ranks(table: pd.DataFrame, *, lower_is_better: bool) -> pd.Series:
    """Return the mean rank of each column over the rows; ties share a rank.

    >>> mean_ranks(pd.DataFrame({"a": [1, 1], "b": [2, 1]}), lower_is_better=True).to_dict()
    {'a': 1.25, 'b': 1.75}
    """
    return table.rank(axis=1, ascending=lower_is_better).mean().sort_values()


def critical_difference(methods: int, units: int, alpha: float = 0.05) -> float:
    """Return Nemenyi's critical difference of mean ranks (Demsar, 2006).

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    if methods < 2 or units < 1:
        return float("nan")
    q = stats.studentized_range.ppf(1 - alpha, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * units)))


def holm(p_values: np.ndarray) -> np.ndarray:
    """Return Holm's adjusted p-values (1979).

    >>> holm(np.array([0.01, 0.04, 0.03])).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    out = np.empty_like(adjusted)
    out[order] = adjusted
    return out


def least_p(units: int, pairs: int) -> float:
    """Return the smallest p-value that Holm leaves to the clearest of `pairs` comparisons.

    The exact signed-rank test of n units cannot go below 2 / 2^n.

    >>> least_p(7, 45), least_p(18, 45) < 0.05
    (0.703125, True)
    """
    return min(1.0, pairs * 2.0 ** (1 - units)) if units else 1.0


def units_needed(pairs: int, alpha: float = 0.05) -> int:
    """Return how many units it takes until one of `pairs` comparisons can be significant.

    >>> units_needed(1), units_needed(45)
    (6, 11)
    """
    units = 1
    while least_p(units, pairs) >= alpha:
        units += 1
    return units


def wilcoxon_exact(gaps: np.ndarray) -> np.ndarray:
    """Return two-sided p-values of the signed-rank test, exact also with ties and zeros.

    Ranks of equal differences are shared, differences of zero keep their rank but have no sign
    (Pratt, 1959). The law of the statistic is the one over all signs of the other differences.

    Args:
        gaps: (units, comparisons) differences.

    Returns:
        (comparisons,) p-values; 1 where there is no difference.

    >>> wilcoxon_exact(np.array([[1.0], [2.0], [3.0], [4.0], [5.0]])).tolist()
    [0.0625]
    """
    n, count = gaps.shape
    if not n or not count:
        return np.ones(count)
    ranks = stats.rankdata(np.abs(gaps), axis=0)
    # Shared ranks are halves, so twice the ranks are whole numbers.
    weights = np.where(gaps != 0, np.rint(2 * ranks), 0).astype(np.int64)
    positive = np.where(gaps > 0, weights, 0).sum(0)
    law = _law_of_sums(weights)
    below = np.cumsum(law, axis=0)
    at = np.arange(count)
    upto = below[positive, at]
    from_there = 1 - upto + law[positive, at]
    return np.asarray(np.minimum(1.0, 2 * np.minimum(upto, from_there)))


def _law_of_sums(weights: np.ndarray) -> np.ndarray:
    """(sums, comparisons) probabilities of the sum of a random half of the weights (n, c)."""
    size = int(weights.sum(0).max()) + 1
    law = np.zeros((size, weights.shape[1]))
    law[0] = 1.0
    rows = np.arange(size)[:, None]
    for line in weights:
        before = rows - line
        shifted = np.take_along_axis(law, np.maximum(before, 0), axis=0)
        law = 0.5 * (law + np.where(before >= 0, shifted, 0.0))
    return law


def compare_pairs(gaps: np.ndarray, names: list[tuple[str, str]], alpha: float) -> pd.DataFrame:
    """Test (units, pairs) differences; p-values are Holm's."""
    p = wilcoxon_exact(gaps)
    adjusted = holm(p) if len(p) else p
    columns = {
        "a": [a for a, _ in names],
        "b": [b for _, b in names],
        "p": adjusted,
        "significant": adjusted < alpha,
    }
    return pd.DataFrame(columns)


def rank_methods(
    table: pd.DataFrame,
    *,
    lower_is_better: bool,
    alpha: float = 0.05,
    gaps: np.ndarray | None = None,
) -> Ranking:
    """Rank the columns of a table (units x methods); rows with a gap are left out.

    Rows must be independent: average folds and models of a dataset first.

    Args:
        table: one line per unit.
        lower_is_better: direction of the values.
        alpha: level of the tests.
        gaps: (units, pairs) what is tested for each pair of columns, in the order of
            `itertools.combinations`; by default the differences of the values.
    """
    whole = table.dropna()
    n, k = whole.shape
    ranks = mean_ranks(whole, lower_is_better=lower_is_better)
    alike = n < 2 or k < 3 or bool((whole.nunique(axis=1) <= 1).all())
    p_value = float("nan") if alike else float(stats.friedmanchisquare(*whole.to_numpy().T).pvalue)
    names = [(str(a), str(b)) for a, b in combinations(whole.columns, 2)]
    if gaps is None:
        values = whole.to_numpy(dtype=float)
        first, second = np.triu_indices(k, 1)
        gaps = values[:, first] - values[:, second]
    return Ranking(
        ranks=ranks,
        units=n,
        p_value=p_value,
        difference=critical_difference(k, n, alpha),
        pairs=compare_pairs(gaps, names, alpha),
        possible=bool(names) and least_p(n, len(names)) < alpha,
    )


def win_rates(table: pd.DataFrame, *, lower_is_better: bool) -> pd.DataFrame:
    """Return how often the row's method beats the column's, ties counting half.

    A method without a value loses against one that has a value.
    """
    worst = np.inf if lower_is_better else -np.inf
    values = table.fillna(worst).to_numpy(dtype=float)
    a, b = values[:, :, None], values[:, None, :]
    wins = (a < b) if lower_is_better else (a > b)
    rate = (wins + 0.5 * (a == b)).mean(0)
    np.fill_diagonal(rate, np.nan)
    return pd.DataFrame(rate, index=table.columns, columns=table.columns)
