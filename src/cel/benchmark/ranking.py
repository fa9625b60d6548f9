"""Rankings of methods, row by row within datasets, with datasets as units of every test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cel.metrics import METRICS
from cel.metrics.bootstrap import bootstrap_interval
from cel.metrics.rowwise import ranks_from_wins
from cel.metrics.significance import rank_methods, units_needed

__all__ = ["EVERY", "RANKED", "WinTable", "dataset_means", "ranking", "rankings", "short"]

EVERY = "all"

# What methods are ranked by, in the order of interest. Times are machines' business, and how
# exactly a regression target is met is the solver's tolerance.
RANKED = (
    "success", "l2_hamming", "gower", "sparsity", "redundancy", "density_percentile",
    "prob_plausibility", "log_density", "lof_median", "isolation_forest", "ynn",
)  # fmt: skip
ROWS_OF = {"lof_median": "lof"}  # the metric whose values by row are compared


class WinTable:
    """Shares of rows in which one method beats another, by dataset.

    Rows are averaged within a fold, folds within a model, models within a dataset: fold and model
    are repeated looks at the same data, no evidence of their own (Demsar, 2006).

    Args:
        pairs: lines of dataset, model, fold, metric, a, b, win for one metric.
        methods: which methods to look at, in order.

    Attributes:
        methods: those with a comparison on at least half of the datasets.
        left_out: the others.
        datasets: all datasets.
        wins: (datasets, k, k) shares, NaN where a pair was not compared.
    """

    def __init__(self, pairs: pd.DataFrame, methods: Sequence[str]) -> None:
        there = pairs["a"].isin(methods) & pairs["b"].isin(methods)
        lines = pairs[there].groupby(["dataset", "model", "a", "b"], observed=True)["win"].mean()
        means = lines.groupby(["dataset", "a", "b"], observed=True).mean()
        self.datasets = list(dict.fromkeys(means.index.get_level_values("dataset")))
        count, size = len(self.datasets), len(methods)
        wins = np.full((count, size, size), np.nan)
        unit = _places(means.index, "dataset", self.datasets)
        pair = np.stack([_places(means.index, n, methods) for n in ("a", "b")], 1)
        win = means.to_numpy(float)
        both = np.stack([win, 1 - win], 1).ravel()  # a beats b, then b beats a
        wins[unit.repeat(2), pair.ravel(), pair[:, ::-1].ravel()] = both
        known = (~np.isnan(wins)).any(2)
        enough = known.mean(0) >= 0.5 if count else np.zeros(size, bool)
        self.methods = [m for m, e in zip(methods, enough, strict=True) if e]
        self.left_out = [m for m, e in zip(methods, enough, strict=True) if not e]
        self.wins = wins[:, enough][:, :, enough]

    @property
    def complete(self) -> np.ndarray:
        """(datasets,) bool: every pair was compared."""
        off = ~np.eye(len(self.methods), dtype=bool)
        return np.asarray(~np.isnan(self.wins[:, off]).any(1))

    def ranks(self) -> pd.DataFrame:
        """Mean rank within the rows, of complete datasets x methods."""
        kept = np.flatnonzero(self.complete)
        lines = [ranks_from_wins(self.wins[i]) for i in kept]
        return pd.DataFrame(
            np.reshape(lines, (len(kept), len(self.methods))),
            index=[self.datasets[i] for i in kept],
            columns=self.methods,
        )


def _places(index: pd.Index[Any], level: str, names: Sequence[str]) -> np.ndarray:
    """Return the positions (n,) in `names` of one level of an index."""
    assert isinstance(index, pd.MultiIndex)
    number = index.names.index(level)
    known = pd.Index(names).get_indexer(index.levels[number].astype(object))
    return np.asarray(known[np.asarray(index.codes[number])])


def dataset_means(scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return datasets x methods: means over folds, then over models."""
    rows = scores[scores["metric"] == metric]
    folds = rows.groupby(["dataset", "model", "method"], observed=True)["value"].mean()
    return folds.groupby(["dataset", "method"], observed=True).mean().unstack("method")


def ranking(
    pairs: pd.DataFrame,
    scores: pd.DataFrame,
    metric: str,
    methods: Sequence[str],
    answered: pd.DataFrame | None = None,
) -> dict[str, Any] | None:
    """Return ranks, intervals, tests and win rates of methods by one metric, as JSON values.

    The rank of a method is its mean rank within the rows, an unanswered row counting as last;
    datasets on which some pair was not compared are left out, as are methods compared on less
    than half of the datasets. `mean` is the mean over answered rows, to be read together with
    `share`, the share of rows that were answered. None if there is nothing to compare.

    Args:
        pairs: lines of `PAIR_COLUMNS`.
        scores: long table of scores, for the means.
        metric: what to rank by.
        methods: which methods.
        answered: `dataset_means` of "success", if somebody has them.
    """
    lines = pairs[pairs["metric"] == ROWS_OF.get(metric, metric)]
    table = WinTable(lines, methods)
    if len(table.methods) < 2 or not table.complete.any():
        return None
    ranks = table.ranks()
    wins = table.wins[table.complete]
    first, second = np.triu_indices(len(table.methods), 1)
    found = rank_methods(ranks, lower_is_better=True, gaps=0.5 - wins[:, first, second])
    order = [str(m) for m in ranks.mean().sort_values(kind="stable").index]
    at = [table.methods.index(m) for m in order]
    spread = [bootstrap_interval(ranks[m].to_numpy(float)) for m in order]
    means = dataset_means(scores, metric).reindex(index=ranks.index, columns=order)
    around = [bootstrap_interval(means[m].to_numpy(float)) for m in order]
    answered = dataset_means(scores, "success") if answered is None else answered
    share = answered.reindex(index=ranks.index, columns=order).mean()
    place = {m: i for i, m in enumerate(order)}
    tested = zip(found.pairs["a"], found.pairs["b"], found.pairs["p"], strict=True)
    return {
        "methods": order,
        "rank": [short(ranks[m].mean()) for m in order],
        "rank_low": [short(low) for low, _ in spread],
        "rank_high": [short(high) for _, high in spread],
        "place": [short(found.ranks[m]) for m in order],
        "mean": [short(means[m].mean()) for m in order],
        "low": [short(low) for low, _ in around],
        "high": [short(high) for _, high in around],
        "share": [short(share[m]) for m in order],
        "unit": "dataset",
        "problems": found.units,
        "of": len(table.datasets),
        "left_out": list(table.left_out),
        "p": short(found.p_value),
        "difference": short(found.difference),
        "pairs": [[place[a], place[b], short(p)] for a, b, p in tested],
        "possible": found.possible,
        "needed": units_needed(len(found.pairs)),
        "win_methods": order,
        "wins": [[short(v) for v in line] for line in wins.mean(0)[at][:, at]],
    }


def rankings(
    scores: pd.DataFrame, pairs: pd.DataFrame
) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Return {paradigm: {model: {metric: ranking}}}; "all" stands for every model.

    Under the paradigm "all" every classification method is ranked with every other that was
    asked about the same rows.

    Args:
        scores: with a column `paradigm`.
        pairs: lines of `PAIR_COLUMNS`.
    """
    out: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    scores, pairs = _coded(scores, pairs)
    groups = dict(iter(scores.groupby("paradigm")))
    classification = scores[scores["paradigm"] != "regression"]
    if len(classification):
        groups[EVERY] = classification
    for paradigm, part in groups.items():
        places = part[["dataset", "model"]].drop_duplicates()
        mine = pairs.merge(places, on=["dataset", "model"])
        models = [EVERY, *part["model"].unique()]
        out[str(paradigm)] = {
            str(m): _by_metric(_of_model(part, m), _of_model(mine, m)) for m in models
        }
    return out


def _coded(*tables: pd.DataFrame) -> list[pd.DataFrame]:
    """Return tables whose names are numbers of one alphabetical list, quick to find."""
    kinds = {}
    for name in ("dataset", "model", "metric", "method", "a", "b"):
        known = [t[name].unique() for t in tables if name in t]
        kinds[name] = pd.CategoricalDtype(sorted(set().union(*known)))
    return [t.astype({n: k for n, k in kinds.items() if n in t}) for t in tables]


def _of_model(table: pd.DataFrame, model: str) -> pd.DataFrame:
    return table if model == EVERY else table[table["model"] == model]


def _by_metric(scores: pd.DataFrame, pairs: pd.DataFrame) -> dict[str, dict[str, Any]]:
    methods = [str(m) for m in scores["method"].unique()]
    known = set(pairs["metric"].unique())
    other = sorted(m for m in known - set(RANKED) - set(ROWS_OF.values()) if m in METRICS)
    answered = dataset_means(scores, "success")
    found = {m: ranking(pairs, scores, m, methods, answered) for m in (*RANKED, *other)}
    return {m: r for m, r in found.items() if r is not None}


def short(value: Any) -> float | None:
    """Return a number with five digits for JSON; None for what is not finite.

    >>> short(0.1234567), short(math.inf)
    (0.12346, None)
    """
    number = float(value)
    return float(f"{number:.5g}") if math.isfinite(number) else None
