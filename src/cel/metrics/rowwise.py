"""Methods side by side, row by row: nobody gains by refusing the hard rows.

A mean over answered rows rewards a method that answers easy rows only. Within one row the answered
methods can be compared fairly, and a method without an answer comes last.
"""

from __future__ import annotations

import numpy as np

__all__ = ["TIE", "common_rows", "ranks_from_wins", "win_shares"]

TIE = 1e-3  # values closer than this share of the larger one are a tie: solvers stop there
CHUNK_VALUES = 2**22


def win_shares(values: np.ndarray, *, lower_is_better: bool, tie: float = TIE) -> np.ndarray:
    """Return in which share of the rows one method is better than another.

    Args:
        values: (n, k) one value per row and method, NaN where a method has none.
        lower_is_better: direction of the values.
        tie: two values are equal when they differ by at most this share of the larger one.

    Returns:
        (k, k) shares, ties counting half; no value loses to any value and ties with none.
        NaN on the diagonal, and everywhere without rows.

    >>> win_shares(np.array([[1.0, 2.0], [1.0, np.nan]]), lower_is_better=True)[0, 1].item()
    1.0
    >>> win_shares(np.array([[1.0, 1.0005], [2.0, 1.0]]), lower_is_better=True)[0, 1].item()
    0.25
    """
    n, k = values.shape
    points = np.zeros((k, k))
    good = values if lower_is_better else -values
    size = max(1, CHUNK_VALUES // max(k * k, 1))
    for start in range(0, n, size):
        part = good[start : start + size]
        a, b = part[:, :, None], part[:, None, :]
        known_a, known_b = ~np.isnan(a), ~np.isnan(b)
        with np.errstate(invalid="ignore"):  # infinite minus infinite
            gap = np.abs(a - b)
            near = np.isfinite(gap) & (gap <= tie * np.maximum(np.abs(a), np.abs(b)))
        equal = (a == b) | near | (~known_a & ~known_b)
        wins = ((a < b) & ~equal) | (known_a & ~known_b)
        points += (wins + 0.5 * equal).sum(0)
    shares = points / n if n else np.full((k, k), np.nan)
    np.fill_diagonal(shares, np.nan)
    return np.asarray(shares)


def ranks_from_wins(shares: np.ndarray) -> np.ndarray:
    """Return the mean rank of each method within the rows, 1 for the best, from win shares (k, k).

    A rank is one more than the number of methods that are better, ties counting half; so mean
    ranks follow from the pairs, and leaving a method out never changes the order of the others.

    >>> ranks_from_wins(np.array([[np.nan, 0.75], [0.25, np.nan]])).tolist()
    [1.25, 1.75]
    """
    lost = 1 - shares
    np.fill_diagonal(lost, 0.0)
    return np.asarray(1 + lost.sum(1))


def common_rows(answered: np.ndarray, *, enough: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that all methods answered, and which methods were asked.

    Args:
        answered: (n, k) bool.
        enough: methods that answered a smaller share of the rows are not asked: they would leave
            too few.

    Returns:
        (n,) bool rows and (k,) bool methods.

    >>> rows, asked = common_rows(np.array([[True, True], [True, False]]))
    >>> rows.tolist(), asked.tolist()
    ([True, False], [True, True])
    """
    asked = answered.mean(0) >= enough if len(answered) else np.zeros(answered.shape[1], bool)
    return np.asarray(answered[:, asked].all(1)), np.asarray(asked)
