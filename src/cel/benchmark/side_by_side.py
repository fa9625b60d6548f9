"""Two tables side by side, cell by cell, with verdicts that know about noise."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark.experiments import experiments
from cel.benchmark.printed_values import paper_results
from cel.benchmark.score_tables import summarise
from cel.benchmark.verdicts import AGREES, direction_of, verdicts

__all__ = ["compare_runs", "compare_with_paper", "paper_results", "verdict_counts"]

KEYS = ["dataset", "model", "method", "metric"]
TIMES = ("time_s",)  # of another machine: not comparable


def compare_with_paper(
    scores: pd.DataFrame, tried: pd.DataFrame | None = None, *, dropped: Collection[str] = ()
) -> pd.DataFrame:
    """Put every printed cell beside ours.

    Verdicts: *agrees* (within two pooled standard errors and within 10 %), *noise* (within the
    errors only), *better* and *worse* (differs, and nobody has an explanation), *explained* (a
    registered experiment that imitates the suspected cause gives a score that agrees with print),
    *unexplained* (differs, and the experiments about the cell do not give the printed value, or
    give it no more often than by accident),
    *not_comparable* (times), *ours_only* (the printed cell is blank), *missing* (we have none, and
    no experiment gives the printed value).

    Args:
        scores: of suite `paper`.
        tried: scores of experiments, with a column `experiment`; see `experiment_scores`.
        dropped: experiments that explain nothing, as they give printed values no more often than
            by accident; see `dropped_experiments`.
    """
    keys = ["dataset", "our_model", "our_method", "our_metric"]
    ours = _summary(scores)
    table = paper_results().merge(
        ours[[*keys, "mean", "std", "folds"]], on=keys, how="left", suffixes=("_paper", "_ours")
    )
    there = set(zip(ours["dataset"], ours["our_model"], strict=True))
    pairs = zip(table["dataset"], table["our_model"], strict=True)
    table = table[[p in there for p in pairs]].reset_index(drop=True)
    table["direction"] = [direction_of(m) for m in table["metric"]]
    table["verdict"], table["reason"] = _verdicts(table), ""
    table.loc[table["metric"].isin(TIMES), "verdict"] = "not_comparable"
    table.loc[table["mean_paper"].isna(), "verdict"] = "ours_only"
    table.loc[table["mean_ours"].isna(), "verdict"] = "missing"
    table.loc[table["folds"] == 1, "reason"] = "one fold: our deviation is not known"
    if tried is not None and len(tried):
        _explain(table, tried, dropped)
    _add_found(table, scores)
    return table.drop(columns="direction")


def _add_found(table: pd.DataFrame, scores: pd.DataFrame) -> None:
    """Note the share of rows that means over found rows cover: ours, and the printed validity."""
    cells = table[table["metric"] == "validity"]
    printed = ["table", "dataset", "our_method"]
    keys = cells[printed].itertuples(index=False, name=None)
    shares = {
        "ours": (["dataset", "our_model", "our_method"], _found(scores)),
        "paper": (printed, dict(zip(keys, cells["mean_paper"], strict=True))),
    }
    for side, (names, share) in shares.items():
        places = table[names].itertuples(index=False, name=None)
        table[f"found_{side}"] = [share.get(p, np.nan) for p in places]


def _found(scores: pd.DataFrame) -> dict[tuple[Any, ...], float]:
    """(dataset, model, method) -> share of explained rows with a verified answer."""
    part = scores[scores["metric"] == "success"]
    means = part.groupby(["dataset", "model", "method"])["value"].mean()
    return {tuple(k): float(v) for k, v in means.items()}  # type: ignore[arg-type]


def _summary(scores: pd.DataFrame) -> pd.DataFrame:
    return summarise(scores).rename(
        columns={"model": "our_model", "method": "our_method", "metric": "our_metric"}
    )


def _verdicts(table: pd.DataFrame) -> np.ndarray:
    names = ("mean_ours", "std_ours", "folds", "mean_paper", "std_paper", "direction")
    return verdicts(*(table[n].to_numpy(float) for n in names))


def _explain(table: pd.DataFrame, tried: pd.DataFrame, dropped: Collection[str]) -> None:
    """Give differing cells the outcome of the experiments about them."""
    keys = ["dataset", "our_model", "our_method", "our_metric"]
    known = {e.name: e for e in experiments()}
    found: dict[str, dict[Any, tuple[float, float, float]]] = {}
    for name, part in tried.groupby("experiment"):
        lines = _summary(part)
        places = lines[keys].itertuples(index=False, name=None)
        values = zip(lines["mean"], lines["std"], lines["folds"], strict=True)
        found[str(name)] = dict(zip(places, values, strict=True))
    records: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    for i in np.flatnonzero(table["verdict"].isin(["better", "worse", "missing"])):
        line = records[i]
        about = [n for n in found if n in known and known[n].claims(line)]
        done = {n: found[n].get(tuple(line[k] for k in keys)) for n in about}
        outcomes = {n: _agrees(line, v) for n, v in done.items() if v is not None}
        good = [n for n, yes in outcomes.items() if yes and n not in dropped]
        if good:
            table.loc[i, "verdict"] = "explained"
            table.loc[i, "reason"] = f"{good[0]}: {known[good[0]].reason}"
        elif outcomes:
            if line["verdict"] != "missing":
                table.loc[i, "verdict"] = "unexplained"
            table.loc[i, "reason"] = f"tried without success: {', '.join(outcomes)}"


def _agrees(line: dict[str, Any], value: tuple[float, float, float]) -> bool:
    print_ = line["mean_paper"], line["std_paper"], line["direction"]
    (said,) = verdicts(*(np.array([float(v)]) for v in (*value, *print_)))
    return bool(said == AGREES)


def compare_runs(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Put two runs side by side; the verdict says how the second stands to the first."""
    from cel.metrics import METRICS

    a, b = summarise(first), summarise(second)
    table = a.merge(b, on=KEYS, how="outer", suffixes=("_first", "_second"))
    verdicts = []
    for line in table.to_dict("records"):
        if pd.isna(line["mean_first"]) or pd.isna(line["mean_second"]):
            verdicts.append("missing")
            continue
        name = line["metric"]
        better = METRICS.get(name).better if name in METRICS else "none"
        folds = int(min(line["folds_first"], line["folds_second"]))
        spread = np.hypot(
            np.nan_to_num(line["std_first"]), np.nan_to_num(line["std_second"])
        ) / np.sqrt(folds)
        gap = line["mean_second"] - line["mean_first"]
        if abs(gap) <= 2 * spread + 1e-9:
            verdicts.append("equal")
        elif better == "none":
            verdicts.append("differs")
        else:
            verdicts.append("better" if (gap > 0) == (better == "higher") else "worse")
    for side, scores in (("first", first), ("second", second)):
        share = _found(scores)
        places = table[KEYS[:3]].itertuples(index=False, name=None)
        table[f"found_{side}"] = [share.get(p, np.nan) for p in places]
    return table.assign(verdict=verdicts)


def verdict_counts(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Count verdicts per table, metric or method."""
    return pd.crosstab(table[by], table["verdict"])
