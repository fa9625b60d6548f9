"""What follows from an experiment: it is kept if it gives printed values, or it is dropped."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark.experiments import DERIVED, experiments
from cel.benchmark.score_tables import summarise
from cel.benchmark.shipped import shipped_table
from cel.benchmark.side_by_side import compare_with_paper
from cel.benchmark.verdicts import agreeing_pairs, beyond_accident

__all__ = ["dropped_experiments", "experiment_outcomes", "shipped_experiments"]

COLUMNS = [
    "datasets", "about", "tried", "explained", "right", "cells", "wrong", "wrong_cells", "p",
    "kept",
]  # fmt: skip


def experiment_outcomes(scores: pd.DataFrame, tried: pd.DataFrame) -> pd.DataFrame:
    """Return what every registered experiment did to the cells that it is about.

    An imitation can meet a printed value by accident. How often that happens is seen where its
    scores stand beside *other* printed methods of the same table, dataset, model and metric. An
    experiment is kept if it gives the right values clearly more often than wrong ones.

    Args:
        scores: of suite `paper`.
        tried: scores of experiments, with a column `experiment`.

    Returns:
        One line per experiment: datasets (on which it was run), about (cells that it is about and
        that differ, or that are missing on our side), tried (those of them that it has scores of),
        explained (those that then agree); of those that are not 1 on both sides: cells, right (how
        many agree), wrong_cells, wrong (how many agree with another printed method), p; kept (None
        if it was not run).
    """
    before = compare_with_paper(scores)
    lost = (before["verdict"] == "missing") & before["mean_paper"].notna()
    lost &= before["metric"] != "time_s"
    differing = before[before["verdict"].isin(["better", "worse"]) | lost]
    records: list[dict[str, Any]] = differing.to_dict("records")  # type: ignore[assignment]
    printed = before.dropna(subset=["mean_paper"])
    names = set(tried["experiment"]) if len(tried) else set()
    lines = {}
    for experiment in experiments():
        about = differing[np.array([experiment.claims(r) for r in records], dtype=bool)]
        if experiment.name not in names:
            lines[experiment.name] = [0, len(about), 0, 0, 0, 0, 0, 0, np.nan, None]
            continue
        part = tried[tried["experiment"] == experiment.name]
        counts = _counts(about, part, printed)
        kept, p = beyond_accident(*counts[2:])
        lines[experiment.name] = [
            part["dataset"].nunique(), len(about), *counts, p, kept,
        ]  # fmt: skip
    return pd.DataFrame.from_dict(lines, orient="index", columns=COLUMNS).rename_axis("experiment")


def _counts(about: pd.DataFrame, part: pd.DataFrame, printed: pd.DataFrame) -> list[int]:
    """Tried, explained; right and its cells, wrong and its cells."""
    keys = ["dataset", "our_model", "our_method", "our_metric"]
    lines = summarise(part).dropna(subset=["mean"])
    lines = lines.rename(
        columns={
            "model": "our_model", "method": "our_method", "metric": "our_metric",
            "mean": "mean_ours", "std": "std_ours",
        }
    )  # fmt: skip
    places = about[["table", "metric", *keys]]
    ours = places.merge(lines[[*keys, "mean_ours", "std_ours", "folds"]], on=keys)
    every = agreeing_pairs(ours, printed, trivial=True)
    pairs = every[(every["mean_ours"] != 1) | (every["mean_paper"] != 1)]
    sides = [pairs[pairs["right"] == side]["agrees"] for side in (True, False)]
    explained = int(every.loc[every["right"], "agrees"].sum())
    return [len(ours), explained, *(int(v) for s in sides for v in (s.sum(), len(s)))]


def shipped_experiments() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the shipped scores of suite `paper`, and those of its experiments.

    What an experiment only derives from the scores is derived here.
    """
    scores, tried = shipped_table("paper"), shipped_table("paper", "experiments")
    there = set(tried["experiment"]) if len(tried) else set()
    derived = [
        DERIVED[e.derive](scores).assign(experiment=e.name)
        for e in experiments()
        if e.derive and not e.is_run and e.name not in there
    ]
    return scores, pd.concat([tried, *derived], ignore_index=True)


@lru_cache(maxsize=1)
def dropped_experiments() -> frozenset[str]:
    """Return the experiments that the shipped scores do not bear out."""
    with np.errstate(over="ignore"):  # some printed deviations are as large as a double can be
        found = experiment_outcomes(*shipped_experiments())
    return frozenset(str(n) for n in found.index[found["kept"].eq(False)])
