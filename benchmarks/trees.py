"""Methods for tree ensembles beside other libraries: cost, changes, proofs and CPU time per row.

    CEL_DATA=... OMP_NUM_THREADS=1 python benchmarks/trees.py [adult] [heloc] [--rows 500]
        [--models lightgbm ...] [--methods cells ...] [--seed 0] [--write]

adult: in two settings. FREE: every feature may go anywhere. HARD: sex, race, country, marital
status, relationship, capital gain and capital loss fixed, age and education only up, at most 60
hours a week. Everybody is asked with the same rows of the raw table, and judged on the returned
rows by the user's own model and by the constraints, as in benchmarks/frontdoor.py; slow sides get
the first few of these rows. `optimal` and `impossible` are proved; `cost` is what `cells` and
`exact_tree` minimise: |change| / median absolute deviation, 1 per label and 0.05 per changed
column; `of exact` is the cost over that of `exact_tree` on the rows that both answer; `alone` is
the median CPU time of rows that are asked one at a time. heloc: `exact_tree` and `cells` on HELOC.
One thread, one run; fitting and reading trees are left out. With --write the table goes into
docs/performance.md; with --methods only the lines of these methods are asked for and replaced, and
`exact_tree` is asked for the sake of `of exact`. --seed draws other rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from importlib.metadata import version

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from xgboost import XGBClassifier

import cel
from cel.datasets import load_dataset
from frontdoor import (
    FIXED,
    PAGE,
    RANGES,
    adult,
    broken,
    constrained,
    installed,
    markdown,
    measured,
    put,
    rejected,
)
from frontdoor_rivals import RIVALS, Problem

OURS = {"cells": 500, "exact_tree": 100, "auto": 500, "live_regions": 100, "nice": 100,
        "nearest": 100, "feature_tweak": 40}  # fmt: skip
"""method -> most rows"""
THEIRS = {"treecf genetic": 60, "treecf exact": 30, "NICEx sparsity": 30, "dice-ml random": 8,
          "dice-ml genetic": 4}  # fmt: skip
ALONE = 20  # rows that are asked one at a time


def spaces(space):
    """The two settings as encoded spaces, for scripts that ask methods directly."""
    free = {f.name: {"mutable": True, "direction": "any"} for f in space if not f.is_categorical}
    free |= {f.name: {"mutable": True} for f in space if f.is_categorical}
    hours = space["hours-per-week"]
    top = hours.anchor + hours.step * (RANGES["hours-per-week"][1] - 1)  # begins at one hour
    hard = {n: {"mutable": False} for n in FIXED}
    hard["hours-per-week"] = {"upper": min(top, hours.upper)}
    return {"FREE": space.with_changes(**free), "HARD": space.with_changes(**hard)}


def models(frame, y):
    """Ways to fit the ensembles on a raw table."""
    labels = [n for n in frame if isinstance(frame[n].dtype, pd.CategoricalDtype)]
    ranks = ColumnTransformer([("labels", OrdinalEncoder(), labels)], remainder="passthrough")
    quiet = {"num_leaves": 31, "verbose": -1, "n_jobs": 1, "random_state": 0}
    return {
        "lightgbm": lambda: LGBMClassifier(n_estimators=100, **quiet).fit(frame, y),
        "xgboost": lambda: XGBClassifier(
            n_estimators=100, max_depth=5, enable_categorical=True, n_jobs=1
        ).fit(frame, y),
        "forest": lambda: make_pipeline(
            ranks, RandomForestClassifier(100, max_depth=6, random_state=0)
        ).fit(frame, y),
        "lightgbm 500": lambda: LGBMClassifier(n_estimators=500, **quiet).fit(frame, y),
    }


def judged(problem, rows, answers):
    """Return what answers are worth, by the number of their row: one line each."""
    have = answers.notna().all(axis=1).to_numpy()
    before, after = rows.iloc[: len(answers)][have], answers[have]
    if not len(before):
        return pd.DataFrame(columns=["flips", "kept", "L1", "labels", "cost", "changes"])
    after = after.astype(problem.train.dtypes.to_dict())
    flips = np.asarray(problem.model.predict_proba(after)).argmax(1) == 1
    l1, labels, cost = measured(problem, before, after)
    moved = [(before[n].astype(object) != after[n].astype(object)).to_numpy() for n in after]
    return pd.DataFrame(
        {"flips": flips, "kept": ~broken(problem, before, after), "L1": l1, "labels": labels,
         "cost": cost, "changes": np.sum(moved, 0)}, index=before.index,
    )  # fmt: skip


def line(problem, rows, name, answers, seconds, exact, **more):
    """Return one line of the table, and the costs of good answers by row."""
    each = judged(problem, rows, answers)
    good = each[each["flips"].astype(bool) & each["kept"].astype(bool)]
    cost = good["cost"].astype(float)
    both = [] if exact is None else cost.index.intersection(exact.index)
    told = {
        "method": name, "rows": len(answers), "found": len(good),
        "optimal": more.get("optimal", ""), "impossible": more.get("impossible", ""),
        "denied": int((~each["flips"].astype(bool)).sum()),
        "broken": int((each["flips"].astype(bool) & ~each["kept"].astype(bool)).sum()),
        "L1": good["L1"].astype(float).mean(), "changes": good["changes"].astype(float).mean(),
        "cost": cost.mean(),
        "of exact": cost[both].mean() / exact[both].mean() if len(both) else np.nan,
        "ms": 1e3 * seconds / len(answers), "alone": more.get("alone", np.nan),
    }  # fmt: skip
    shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in told.items()}
    print(shown, flush=True)
    return told, cost


def ask_ours(problem, rows, method, exact):
    """Ask the front door for one method."""
    rules = {n: getattr(problem, n) for n in ("immutable", "increasing", "ranges")}
    explainer = cel.Explainer(problem.model, problem.train, target=1, method=method, **rules)
    explainer.explain(rows.iloc[:2])
    started = time.process_time()
    result = explainer.explain(rows)
    seconds = time.process_time() - started
    more = {}
    if method in ("cells", "exact_tree"):
        each = []
        for i in range(min(ALONE, len(rows))):
            started = time.process_time()
            explainer.explain(rows.iloc[i : i + 1])
            each.append(time.process_time() - started)
        more["alone"] = 1e3 * float(np.median(each))
    proofs = result.proofs()
    if method in ("cells", "exact_tree", "auto"):
        more |= {"optimal": proofs["optimal"], "impossible": proofs["infeasible"]}
    answers = result.to_frame().astype(object).reindex(rows.index)
    return line(problem, rows, method, answers, seconds, exact, **more)


def beside(problem, rows, name, setting, methods, rivals=True):
    """Return the lines of one model and setting."""
    lines, exact = [], None
    order = sorted({*methods, "exact_tree"}, key=lambda m: (m != "exact_tree", [*OURS].index(m)))
    for method in order:
        part = rows.iloc[: OURS[method] // (4 if "500" in name and method != "cells" else 1)]
        told, cost = ask_ours(problem, part, method, exact)
        exact = cost if method == "exact_tree" else exact
        lines.append(told)
    for rival, limit in THEIRS.items() if rivals else ():
        side, how, dist = RIVALS[rival]
        if not installed(dist) or (dist == "NICEx" and setting == "HARD"):
            continue  # not there, or knows no constraints
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answers, seconds = side(problem, rows, limit, how)
        except (ValueError, TypeError, NotImplementedError) as error:
            print(f"{rival} does not take {name}: {type(error).__name__}: {error}", flush=True)
            continue
        told, _ = line(problem, rows, f"{rival} {version(dist)}", answers, seconds, exact)
        lines.append(told)
    return [{"model": name, "setting": setting} | told for told in lines]


def on_adult(options):
    train, y, test = adult()
    out = []
    for name, make in models(train, y).items():
        if name not in options.models:
            continue
        model = make()
        rows = rejected(model, test, options.rows, options.seed)
        for setting, problem in (
            ("FREE", Problem(model, train)), ("HARD", constrained(model, train)),
        ):  # fmt: skip
            if setting in options.settings:
                rivals = not options.ours and options.methods == [*OURS]
                out += beside(problem, rows, name, setting, options.methods, rivals)
    return out


def on_heloc(options):
    split = load_dataset("heloc").split()
    train, y = split.train.frame, split.train.y
    model = models(train, y)["lightgbm"]()
    rows = rejected(model, split.pipeline.inverse_transform(split.test.X), options.rows,
                    options.seed)  # fmt: skip
    problem = Problem(model, train)
    lines, exact = [], None
    for method in ("exact_tree", "cells"):
        told, cost = ask_ours(problem, rows.iloc[:100], method, exact)
        exact = cost if exact is None else exact
        lines.append({"model": "lightgbm on HELOC", "setting": "FREE"} | told)
    return lines


def replaced(table):
    """Return the table of the page with the lines of this run in the place of the old ones."""
    told = PAGE.read_text().split("<!-- trees -->")[1].split("<!-- end of trees -->")[0]
    lines = [[c.strip() for c in one.split("|")[1:-1]] for one in told.strip().splitlines()]
    old = pd.DataFrame([one for one in lines[2:] if len(one) == len(lines[0])], columns=lines[0])
    key = ["model", "setting", "method"]
    new = {tuple(one[key]): one for _, one in table.iterrows()}
    rows = [new.pop(tuple(one[key]), one) for _, one in old.iterrows()]
    return pd.DataFrame([*rows, *new.values()], columns=table.columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument(
        "--models", nargs="*", default=["lightgbm", "xgboost", "forest", "lightgbm 500"]
    )
    parser.add_argument("--settings", nargs="*", default=["FREE", "HARD"])
    parser.add_argument("--methods", nargs="*", default=[*OURS], choices=[*OURS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ours", action="store_true", help="without other libraries")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    parts = options.parts or ["adult", "heloc"]
    lines = on_adult(options) if "adult" in parts else []
    lines += on_heloc(options) if "heloc" in parts else []
    table = pd.DataFrame(lines)
    print(markdown(table))
    if options.write:
        put("trees", replaced(table[table["method"].isin(options.methods)]))


if __name__ == "__main__":
    main()
