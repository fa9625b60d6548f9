"""Is a printed value ours? A verdict that can fail, and how often it is given by accident."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "AGREES",
    "NOISE",
    "PRINTED_FOLDS",
    "agreeing_pairs",
    "beyond_accident",
    "direction_of",
    "placebo",
    "reproduced",
    "verdicts",
]

AGREES, NOISE = "agrees", "noise"
ROUNDING = 0.005  # the paper prints two digits
SHARE = 0.1  # a value that agrees is within ten per cent
PRINTED_FOLDS = 5
MORE = 1.5  # times as often as by accident is clearly more often
SURE = 0.05  # of error, where datasets are the units
CELLS_SURE = 0.01  # where cells are: those of one dataset resemble each other
PLACE = ["table", "dataset", "our_model", "metric"]
LOWER = {
    "sparsity", "proximity", "lof", "time_s", "mae", "l1", "l2", "sparsity_encoded",
    "l2_hamming_encoded", "unchanged",
}  # fmt: skip


def direction_of(metric: str) -> int:
    """Return -1 for printed metrics of which less is better, else 1."""
    return -1 if metric in LOWER else 1


def verdicts(
    ours: np.ndarray,
    ours_std: np.ndarray,
    ours_folds: np.ndarray,
    printed: np.ndarray,
    printed_std: np.ndarray,
    direction: np.ndarray,
) -> np.ndarray:
    """Compare means cell by cell.

    *agrees*: within two pooled standard errors *and* within ten per cent of the printed value;
    *noise*: within two standard errors only, which says little; otherwise *better* or *worse*.
    A missing or infinite deviation, and that of a single fold, is no band: it excuses nothing.
    Half a unit of the last printed digit is always granted.

    Args:
        ours: (n,) means.
        ours_std: (n,) sample standard deviations over folds.
        ours_folds: (n,) numbers of folds.
        printed: (n,) means.
        printed_std: (n,) deviations over five folds.
        direction: (n,) 1 where more is better, -1 where less is.

    >>> a = np.array([0.50, 0.50, 0.50, 0.50])
    >>> sd = np.array([0.01, 0.5, 0.01, np.nan])
    >>> b = np.array([0.51, 0.80, 0.80, 0.80])
    >>> odd = np.array([0.0, 0.0, 0.0, -np.inf])
    >>> verdicts(a, sd, np.full(4, 5), b, odd, np.ones(4)).tolist()
    ['agrees', 'noise', 'worse', 'worse']
    """
    gap = np.abs(ours - printed)
    error = np.hypot(_error(ours_std, ours_folds), _error(printed_std, PRINTED_FOLDS))
    rounding = ROUNDING * np.maximum(1.0, np.where(np.abs(printed) > 100, np.abs(printed), 1.0))
    noise = gap <= 2 * error + rounding
    near = gap <= SHARE * np.abs(printed) + rounding
    differs = np.where((ours - printed) * direction > 0, "better", "worse")
    return np.where(noise & near, AGREES, np.where(noise, NOISE, differs))


def _error(std: np.ndarray, folds: Any) -> np.ndarray:
    """Standard error of a mean; nothing where the deviation is not known."""
    known = np.isfinite(std) & (np.asarray(folds) > 1)
    with np.errstate(invalid="ignore"):
        error = np.where(known, np.abs(std), 0.0) / np.sqrt(np.maximum(folds, 1))
    return np.asarray(error)


def placebo(table: pd.DataFrame) -> pd.DataFrame:
    """Tell how often values agree, for the right pairing and for wrong ones.

    A wrong pairing puts our method A beside the printed method B of the same table, dataset, model
    and metric. If wrong pairings agree as often as right ones, agreement says nothing.

    Args:
        table: of `compare_with_paper`.

    Returns:
        One line per method of ours and one for all: cells, right (share that agrees with its
        namesake), wrong_cells, wrong (share that agrees with another printed method), datasets
        (that have both), ahead (in how many the right share is the larger one) and p (exact
        signed-rank test of the two shares with datasets as units, two-sided). Cells that are 1 on
        both sides (coverage, validity) and times are left out.
    """
    known = table.dropna(subset=["mean_ours", "mean_paper"])
    pairs = agreeing_pairs(known[[*PLACE, "our_method", "mean_ours", "std_ours", "folds"]], known)
    lines = {str(m): _shares(p) for m, p in pairs.groupby("our_method")}
    lines["all"] = _shares(pairs)
    columns = ["cells", "right", "wrong_cells", "wrong", "datasets", "ahead", "p"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis("method")


def reproduced(found: pd.DataFrame) -> pd.Series:
    """Tell for each line of `placebo` whether right pairings agree clearly more often than wrong.

    At least one and a half times as often, and beyond chance at 5 % with datasets as units.
    """
    often = found["right"] >= MORE * found["wrong"]
    return often & (found["right"] > found["wrong"]) & (found["p"] < SURE)


def agreeing_pairs(
    ours: pd.DataFrame, printed: pd.DataFrame, *, trivial: bool = False
) -> pd.DataFrame:
    """Put values of ours beside every printed method of their table, dataset, model and metric.

    Args:
        ours: table, dataset, our_model, metric, our_method, mean_ours, std_ours, folds.
        printed: table, dataset, our_model, metric, our_method, mean_paper, std_paper.
        trivial: whether pairs that are 1 on both sides are kept.

    Returns:
        One line per pair: whether it `agrees`, and whether it is the `right` method. Times are
        left out.
    """
    beside = printed[[*PLACE, "our_method", "mean_paper", "std_paper"]]
    pairs = ours.merge(beside.rename(columns={"our_method": "printed_method"}), on=PLACE)
    ones = (pairs["mean_ours"] == 1) & (pairs["mean_paper"] == 1) & (not trivial)
    pairs = pairs[~ones & (pairs["metric"] != "time_s")].copy()
    pairs["agrees"] = _verdicts_of(pairs) == AGREES
    pairs["right"] = pairs["our_method"] == pairs["printed_method"]
    return pairs


def beyond_accident(right: int, cells: int, wrong: int, wrong_cells: int) -> tuple[bool, float]:
    """Tell whether values agree clearly more often than by accident, and the p-value of it.

    At least one and a half times as often, and beyond chance at 1 % (Fisher's exact test over
    cells, one-sided).

    >>> [beyond_accident(*counts)[0] for counts in ((30, 60, 30, 200), (3, 60, 10, 200))]
    [True, False]
    """
    from scipy.stats import fisher_exact

    counts = [[right, cells - right], [wrong, wrong_cells - wrong]]
    p = float(fisher_exact(counts, alternative="greater").pvalue)
    often = right * wrong_cells >= MORE * wrong * cells
    return bool(often and p < CELLS_SURE), p


def _verdicts_of(pairs: pd.DataFrame) -> np.ndarray:
    directions = np.array([direction_of(m) for m in pairs["metric"]])
    return verdicts(
        pairs["mean_ours"].to_numpy(float), pairs["std_ours"].to_numpy(float),
        pairs["folds"].to_numpy(float), pairs["mean_paper"].to_numpy(float),
        pairs["std_paper"].to_numpy(float), directions,
    )  # fmt: skip


def _shares(pairs: pd.DataFrame) -> list[float]:
    from cel.metrics.significance import wilcoxon_exact

    right = pairs["right"].to_numpy(bool)
    agrees = pairs["agrees"].to_numpy(bool)
    parts = [agrees[right], agrees[~right]]
    shares = [v for p in parts for v in (len(p), float(p.mean()) if len(p) else float("nan"))]
    sides = [pairs[side].groupby("dataset")["agrees"].mean() for side in (right, ~right)]
    gap = (sides[0] - sides[1]).dropna().to_numpy(float)
    p = float(wilcoxon_exact(gap[:, None])[0])
    return [*shares, len(gap), int((gap > 0).sum()), p]
