"""Rankings of methods over problems, for every paradigm, model and metric."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from cel.report.catalogue import RANKED, metric_info
from cel.report.stats import bootstrap_interval, rank_methods, win_rates

__all__ = ["EVERY", "problem_tables", "ranking", "rankings"]

EVERY = "all"


def problem_tables(scores: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return {metric: problems (dataset, model) x methods}, means over folds.

    Folds of one dataset share training rows, so they are averaged and never counted as
    independent problems (Demsar, 2006).
    """
    wide = scores[scores["metric"].isin(RANKED)].pivot_table(
        index=["dataset", "model"], columns=["metric", "method"], values="value", aggfunc="mean"
    )
    there = set(wide.columns.get_level_values("metric"))
    parts = {m: pd.DataFrame(wide.xs(m, axis=1, level="metric")) for m in RANKED if m in there}
    return {m: p.dropna(how="all").dropna(how="all", axis=1) for m, p in parts.items()}


def ranking(table: pd.DataFrame, metric: str) -> dict[str, Any] | None:
    """Return ranks, intervals, tests and win rates of a table of problems, as JSON values.

    A method with values on less than half of the problems is left out of the ranking and named
    in `left_out`; ranks, means and tests use the problems on which all others have a value.
    None if fewer than two methods or no problem remain.
    """
    lower = metric_info(metric).better == "lower"
    known = table.notna().mean()
    kept = table[list(known.index[known >= 0.5])]
    whole = kept.dropna()
    if kept.shape[1] < 2 or whole.empty:
        return None
    found = rank_methods(kept, lower_is_better=lower)
    names = [str(m) for m in found.ranks.index]
    wins = win_rates(table, lower_is_better=lower)
    order = [*names, *(str(m) for m in table.columns if m not in names)]
    place = {m: i for i, m in enumerate(names)}
    spread = [bootstrap_interval(whole[m].to_numpy(float)) for m in names]
    pairs = zip(found.pairs["a"], found.pairs["b"], found.pairs["p"], strict=True)
    return {
        "methods": names,
        "rank": [short(r) for r in found.ranks],
        "mean": [short(whole[m].mean()) for m in names],
        "low": [short(low) for low, _ in spread],
        "high": [short(high) for _, high in spread],
        "problems": found.problems,
        "of": len(table),
        "left_out": order[len(names) :],
        "p": short(found.p_value),
        "difference": short(found.difference),
        "pairs": [[place[a], place[b], short(p)] for a, b, p in pairs],
        "win_methods": order,
        "wins": [[short(v) for v in line] for line in wins.loc[order, order].to_numpy()],
    }


def rankings(scores: pd.DataFrame) -> dict[str, dict[str, dict[str, Any]]]:
    """Return {paradigm: {model: {metric: ranking}}}; "all" stands for every model.

    Under the paradigm "all" every classification method is ranked with every other.
    """
    out: dict[str, dict[str, dict[str, Any]]] = {}
    groups = dict(iter(scores.groupby("paradigm")))
    classification = scores[scores["paradigm"] != "regression"]
    if len(classification):
        groups[EVERY] = classification
    for paradigm, part in groups.items():
        models = {EVERY: part, **dict(iter(part.groupby("model")))}
        out[str(paradigm)] = {str(m): _by_metric(rows) for m, rows in models.items()}
    return out


def _by_metric(scores: pd.DataFrame) -> dict[str, Any]:
    found = {m: ranking(table, m) for m, table in problem_tables(scores).items()}
    return {m: r for m, r in found.items() if r is not None}


def short(value: Any) -> float | None:
    """Return a number with five digits for JSON; None for what is not finite.

    >>> short(0.1234567), short(math.inf)
    (0.12346, None)
    """
    number = float(value)
    return float(f"{number:.5g}") if math.isfinite(number) else None
