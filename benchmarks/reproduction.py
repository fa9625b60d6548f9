"""Print or write docs/reproduction.md from the shipped scores of suite `paper`.

    python benchmarks/reproduction.py             # shipped scores
    python benchmarks/reproduction.py runs/paper  # a run
    python benchmarks/reproduction.py --write     # writes the page

Counts by verdict and table, the placebo, and what every experiment did to the cells it is about.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd

from cel.benchmark import collect, load_suite, open_run
from cel.benchmark.experiment_outcomes import experiment_outcomes, shipped_experiments
from cel.benchmark.experiments import experiment_scores, experiments
from cel.benchmark.shipped import shipped_cells
from cel.benchmark.side_by_side import compare_with_paper, verdict_counts
from cel.benchmark.verdicts import CELLS_SURE, MORE, SURE, placebo, reproduced
from cel.cf_methods.variants import named
from cel.metrics.significance import least_p

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"


def read():
    runs = [a for a in sys.argv[1:] if a != "--write"]
    if runs:
        store, plan = open_run(runs[0])
        return collect(store, plan), experiment_scores(store, plan)
    return shipped_experiments()


def line(*values):
    return "| " + " | ".join(str(v) for v in values) + " |"


def show(table, head):
    body = zip(table.index, table.to_numpy(), strict=True)
    out = [line(head, *table.columns), line(*["---"] * (1 + len(table.columns)))]
    return [*out, *(line(name, *values) for name, values in body), ""]


def with_sum(counts):
    return pd.concat([counts, counts.sum().to_frame("**all**").T])


def follows(row):
    """What became of an experiment, in words."""
    if row.kept is None:
        return "not run"
    if not row.explained:
        return f"dropped: gives none of {row.tried}"
    if row.kept:
        return f"**kept**: explains {row.explained}"
    return f"dropped: gives {row.explained}, not clearly more than by accident"


def effects(found):
    """The table of experiments."""
    reasons = {e.name: e.reason for e in experiments()}
    lines = {}
    for row in found.itertuples():
        shares = [f"{row.right} of {row.cells}", f"{row.wrong} of {row.wrong_cells}"]
        told = [row.tried, row.explained, *shares, f"{row.p:.2g}"]
        if row.kept is None:
            told = [""] * 5
        lines[row.Index] = [row.datasets, row.about, *told, follows(row), reasons[row.Index]]
    names = ["datasets", "cells", "tried", "as printed", "right", "wrong", "p", "what follows",
             "what is imitated"]  # fmt: skip
    return pd.DataFrame.from_dict(lines, orient="index", columns=names)


def ran(found):
    """A sentence about the experiments that have no scores, and those without all their cells."""
    none = [f"`{n}`" for n in found.index[found["kept"].isna()]]
    some = found[found["kept"].notna() & (found["tried"] < found["about"])]
    told = [f"Not run: {', '.join(none)}." if none else "All of them were run."]
    if len(some):
        parts = (f"`{r.Index}` ({r.about - r.tried})" for r in some.itertuples())
        told.append(f"Cells without a score of the experiment: {', '.join(parts)}.")
    kept = int(found["kept"].eq(True).sum())
    told.append(f"Kept: {kept} of {int(found['kept'].notna().sum())} that were run.")
    return " ".join(told) + "\n"


def methods_part(table, wrong, found):
    """One line per method: whether it is reproduced, what differs, and what was tried."""
    clear = reproduced(wrong)
    differing = table["verdict"].isin(["better", "worse", "explained", "unexplained", "missing"])
    differing &= table["mean_paper"].notna() & (table["metric"] != "time_s")
    lines = {}
    for method, part in table[differing].groupby("our_method"):
        records = part.to_dict("records")
        told = []
        for experiment in experiments():
            row = found.loc[experiment.name]
            if row["kept"] is None or not any(experiment.claims(r) for r in records):
                continue
            told.append(f"{experiment.name}" if row["kept"] else f"({experiment.name})")
        explained = int((part["verdict"] == "explained").sum())
        yes = "reproduced" if clear.get(method, False) else "**not reproduced**"
        row = wrong.loc[method]
        ahead = f"{row['ahead']:.0f} of {row['datasets']:.0f}"
        lines[method] = [yes, ahead, len(part), explained, ", ".join(told) or "nothing"]
    names = ["", "ahead on datasets", "cells that differ", "explained",
             "experiments about them (dropped ones in brackets)"]  # fmt: skip
    return pd.DataFrame.from_dict(lines, orient="index", columns=names)


def placebo_part(wrong):
    """The table of right and wrong pairings."""
    out = wrong.round({"right": 3, "wrong": 3}).astype(object)
    for name in ("cells", "wrong_cells", "datasets", "ahead"):
        out[name] = wrong[name].astype(int).astype(object)
    out["p"] = [f"{p:.2g}" for p in wrong["p"]]
    return out


def reproduced_part(wrong):
    """Who is claimed as reproduced, who is not, and who could not be."""
    named = wrong.drop(index="all")
    clear = reproduced(named)
    yes, no = ([f"`{m}`" for m in named.index[side]] for side in (clear, ~clear))
    few = [f"`{m}`" for m in named.index if least_p(int(named.loc[m, "datasets"]), 1) >= SURE]
    out = [f"Reproduced by this measure: {', '.join(yes) or 'none'}.",
           f"Not reproduced: {', '.join(no) or 'none'}."]  # fmt: skip
    if few:
        out.append(f"With the datasets that print has, {', '.join(few)} could not be.")
    return " ".join(out) + "\n"


def missing_part(table):
    """Printed values that no cell of ours stands beside, by method and dataset."""
    lost = table[table["verdict"] == "missing"]
    told = []
    for method, part in lost.groupby("our_method"):
        where = part.groupby("dataset")["our_model"].agg(lambda m: ", ".join(sorted(set(m))))
        told.append(f"- `{method}`: " + "; ".join(f"{d} ({m})" for d, m in where.items()))
    return told


def head(scores):
    """The protocol, and what the scores are of."""
    suite = load_suite("paper")
    most = int(scores.loc[scores["metric"] == "rows", "value"].max())
    rows = most * len(suite.folds)
    quantile = suite.metric_params["prob_plausibility"]["quantile"]
    error = 100 * 0.5 / np.sqrt(rows)
    told = HEAD.format(most=most, rows=rows, error=error, quantile=quantile)
    return told.replace("SETTINGS", settings_text(suite))


def settings_text(suite):
    """What lines of the suite set besides what their names stand for."""
    parts = []
    for spec in suite.methods:
        known = named(spec.label)[1]
        more = {k: v for k, v in spec.params.items() if k not in known or known[k] != v}
        if more:
            parts.append(f"`{spec.label}` ({', '.join(f'{k}={v!r}' for k, v in more.items())})")
    told = "Settings of the printed runs, beyond those of the names in [methods.md](methods.md): "
    return textwrap.fill(
        f"{told}{'; '.join(parts)}.", 99, break_long_words=False, break_on_hyphens=False
    )


def counts(scores):
    """What is there, and why other cells are not."""
    cells = scores.groupby(["dataset", "model", "method", "fold"]).ngroups
    sets = sorted(scores["dataset"].unique())
    known = shipped_cells("paper")
    refused = int(((known["state"] != "done") & (known["reason"] != "")).sum())
    blank = int(((known["state"] != "done") & (known["reason"] == "")).sum())
    about = f"{scores['method'].nunique()} lines on {len(sets)} datasets ({', '.join(sets)})"
    folds, models = scores["fold"].nunique(), ", ".join(sorted(scores["model"].unique()))
    return COUNTS.format(cells=cells, about=about, folds=folds, models=models, refused=refused,
                         blank=blank)  # fmt: skip


def page():
    """The whole page."""
    scores, tried = read()
    found = experiment_outcomes(scores, tried)
    dropped = list(found.index[found["kept"].eq(False)])
    table = compare_with_paper(scores, tried, dropped=dropped)
    trivial = (table["mean_ours"] == 1) & (table["mean_paper"] == 1)
    ones = int((trivial & (table["verdict"] == "agrees")).sum())
    wrong = placebo(table)
    parts = [
        head(scores), counts(scores),
        *show(with_sum(verdict_counts(table, "table")), "table"),
        f"{ones} of the agreeing cells are 1.00 = 1.00 (coverage or validity).\n", "By metric:\n",
        *show(with_sum(verdict_counts(table, "metric")), "metric"), "By method:\n",
        *show(with_sum(verdict_counts(table, "our_method")), "method"), MISSING,
        *missing_part(table), "", PLACEBO.format(more=MORE, sure=SURE),
        *show(placebo_part(wrong), "method"), reproduced_part(wrong), TRIED,
        *show(methods_part(table, wrong, found), "method"),
        EXPERIMENTS.format(more=MORE, sure=CELLS_SURE), *show(effects(found), "experiment"),
        ran(found), UNTRIED,
    ]  # fmt: skip
    return "\n".join(parts).rstrip() + "\n"


HEAD = """# Beside the printed tables

`cel run paper` computes the cells of the paper's ten tables by the printed protocol: models
trained as the paper says, one column per category, no constraint honoured, the targets that were
run (local methods class 0, global and group methods class 1) and the quantile of plausibility that
was run ({quantile}). Logistic regression is convex and solved to the optimum. Densities are the
printed flow; beside categories it is the law of a row's numbers given its categories, whose own
law has layers of that size. Up to {most} rows of a fold are explained ({rows:,} of a dataset): a
share of rows has a standard error of at most {error:.1f} points on datasets that have so many.
SETTINGS
`cel compare RUN --with paper` puts every printed value beside ours.
`python benchmarks/reproduction.py` prints this page from the shipped scores.

*agrees*: within two pooled standard errors and within 10 %. *noise*: within the errors only, which
says little. *better*, *worse*: differs, and no experiment was run about the cell. *explained*: an
experiment that imitates the suspected cause gives a score that agrees with print, and it does so
clearly more often than by accident. *unexplained*: experiments about the cell were run and do not.
*not_comparable*: times, of another machine. *ours_only*: blank in print. *missing*: printed, and
no row of ours was answered, or the published algorithm does not work for the model, and no
experiment gives the printed value. A missing or infinite deviation, or that of one fold, is no
band.
"""
COUNTS = """## Counts

{cells:,} cells of the suite have scores: {about}, models {models}, {folds} folds.
{refused} cells have none, with a reason (the method refuses the model or the dataset); {blank}
have neither.
`cel report --shipped paper` shows every cell.
"""
MISSING = """Printed values without a score of ours:
"""
PLACEBO = """## The placebo

How often does our method agree with its printed namesake (right), and how often with *another*
printed method of the same table, dataset, model and metric (wrong)? Cells that are 1 on both sides
and times are left out. Both shares are taken on every dataset; "ahead" counts those on which the
right one is larger, p is the exact signed-rank test with datasets as units, two-sided. A method is
called reproduced if it agrees with its namesake at least {more} times as often and p is below
{sure}.
"""
TRIED = """What was tried about the cells that differ, method by method:
"""
EXPERIMENTS = """## Experiments

A reason counts only when its imitation gives the printed value, cell by cell, and not by accident.
`cel compare RUN --with paper --experiments` runs them in the folder of the run, with its models.
"Cells" are those that an experiment is about and that differ, or that are missing on our side;
"tried" are those that it has scores of, "as printed" those that then agree. The same scores beside
*other* printed methods show what agrees by accident (right and wrong, without cells that are 1 on
both sides). An experiment is kept if it gives right values at least {more} times as often as wrong
ones and beyond chance (Fisher's exact test over cells, one-sided, {sure}, strict because cells of
one dataset resemble each other). What is dropped explains nothing: its cells count as unexplained.
"""
UNTRIED = """What no experiment explains is better, worse, unexplained or missing, not excused.
"""


def main():
    text = page()
    if "--write" in sys.argv:
        PAGE.write_text(text)
        print(f"wrote {PAGE.name}")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
