"""Rank statistics over cells: who is better than whom, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

__all__ = [
    "Ranking",
    "bootstrap_interval",
    "critical_difference",
    "holm",
    "mean_ranks",
    "rank_methods",
    "win_rates",
]


@dataclass(frozen=True)
class Ranking:
    """Methods ranked on the problems that all of them solved.

    Attributes:
        ranks: mean rank of each method, best first.
        problems: number of problems (rows of the table) that went in.
        p_value: of Friedman's test that all methods are alike; NaN with fewer than three methods.
        difference: Nemenyi's critical difference at 5 %.
        pairs: pairwise Wilcoxon tests with Holm's correction: a, b, p, significant.
    """

    ranks: pd.Series
    problems: int
    p_value: float
    difference: float
    pairs: pd.DataFrame


def mean_ranks(table: pd.DataFrame, *, lower_is_better: bool) -> pd.Series:
    """Return the mean rank of each column over the rows; ties share a rank.

    >>> mean_ranks(pd.DataFrame({"a": [1, 1], "b": [2, 1]}), lower_is_better=True).to_dict()
    {'a': 1.25, 'b': 1.75}
    """
    return table.rank(axis=1, ascending=lower_is_better).mean().sort_values()


def critical_difference(methods: int, problems: int, alpha: float = 0.05) -> float:
    """Return Nemenyi's critical difference of mean ranks (Demsar, 2006).

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    if methods < 2 or problems < 1:
        return float("nan")
    q = stats.studentized_range.ppf(1 - alpha, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * problems)))


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


def rank_methods(table: pd.DataFrame, *, lower_is_better: bool, alpha: float = 0.05) -> Ranking:
    """Rank the columns of a table (problems x methods); rows with a gap are left out."""
    whole = table.dropna()
    n, k = whole.shape
    ranks = mean_ranks(whole, lower_is_better=lower_is_better)
    alike = n < 2 or k < 3 or bool((whole.nunique(axis=1) <= 1).all())
    p_value = float("nan") if alike else float(stats.friedmanchisquare(*whole.to_numpy().T).pvalue)
    return Ranking(
        ranks=ranks,
        problems=n,
        p_value=p_value,
        difference=critical_difference(k, n, alpha),
        pairs=_pairs(whole, alpha),
    )


def _pairs(table: pd.DataFrame, alpha: float) -> pd.DataFrame:
    names = list(combinations(table.columns, 2))
    values = table.to_numpy(dtype=float)
    first, second = np.triu_indices(values.shape[1], 1)
    p = _wilcoxon(values[:, first] - values[:, second])
    adjusted = holm(p) if len(p) else p
    columns = {
        "a": [a for a, _ in names],
        "b": [b for _, b in names],
        "p": adjusted,
        "significant": adjusted < alpha,
    }
    return pd.DataFrame(columns)


def _wilcoxon(gaps: np.ndarray) -> np.ndarray:
    """(pairs,) p-values of (problems, pairs) differences; 1 where there is no difference."""
    p = np.ones(gaps.shape[1])
    some = gaps.any(0)
    if len(gaps) > 1 and some.any():
        test = stats.wilcoxon(gaps[:, some], zero_method="zsplit", method="approx", axis=0)
        p[some] = test.pvalue
    return p


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


def bootstrap_interval(
    values: np.ndarray, *, level: float = 0.95, n: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Return a percentile interval of the mean, resampling the values."""
    known = values[~np.isnan(values)]
    if not len(known):
        return float("nan"), float("nan")
    draws = np.random.default_rng(seed).choice(known, (n, len(known))).mean(1)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
