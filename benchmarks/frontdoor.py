"""`cel.explain` beside other libraries, and beside the single methods that it chooses from.

    CEL_DATA=... OMP_NUM_THREADS=1 python benchmarks/frontdoor.py [rivals] [kinds]
        [--seed 0] [--write]

rivals: Adult, LightGBM of 100 trees with 31 leaves, 500 rejected rows, free and constrained
(sex, race, country, marital status, relationship, capital gain and loss fixed; age and education
only up; at most 60 hours a week), beside dice-ml, NICEx and treecf. kinds: six kinds of model of
3,000 rows of Adult, 100 rejected rows, `auto` beside every single method that takes the model.

Everybody is asked with the same rows of the raw table, and judged on the returned rows by the
user's own model and by the constraints. `L1` is the sum of |change| / training range over numbers,
`labels` the number of changed labels, `cost` what `auto` minimises: |change| / median absolute
deviation, 1 per label and 0.05 per changed column; means over rows with an answer. `proved` are
rows without an answer that are proved to have none. Times are CPU seconds of one process with one
thread: `ms` of the answers (the faster of two calls where one takes less than a second), `ready`
of what is done once (reading the table and the model). With --write the tables go into
docs/performance.md. --seed draws other rows: settings were chosen with those of seed 0 in view.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier

import cel
from cel.datasets import load_dataset
from cel.space.distances import mad_scale
from frontdoor_rivals import RIVALS, Problem

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
FIXED = ("sex", "race", "native-country", "marital-status", "relationship", "capital-gain",
         "capital-loss")  # fmt: skip
UP = ("age", "education")
RANGES = {"hours-per-week": (1, 60)}
FEWER = {"dice-ml random": 20, "dice-ml genetic": 20, "NICEx sparsity": 100,
         "NICEx proximity": 100}  # fmt: skip
SLOW_ROWS = 20  # that are asked where single rows may take seconds
CLOSE = 1.1  # times the cost of `auto`: what counts as the same quality


def measured(problem, before, after):
    """Return L1, changed labels and cost (m,) of answers; both tables have the rows in order."""
    labels = problem.labels
    pipeline = problem.encoder.pipeline_
    space, x = problem.encoder.space_, pipeline.transform(before).astype(float)
    far = np.abs(pipeline.transform(after) - x)
    scale = mad_scale(pipeline.transform(problem.train), space)
    numeric = np.zeros(space.width, dtype=bool)
    numeric[space.numeric_columns] = True
    own = np.array(list(space.names))[space.owner]
    numbers = numeric & ~np.isin(own, labels)
    moved = np.stack(
        [before[n].astype(object).to_numpy() != after[n].astype(object).to_numpy() for n in after],
        1,
    )
    words = moved[:, [n in labels for n in after]].sum(1)
    cost = (far[:, numeric] / scale[numeric]).sum(1) + far[:, ~numeric].sum(1) / 2
    return far[:, numbers].sum(1), words, cost + 0.05 * moved.sum(1)


def broken(problem, before, after):
    """Return (m,) whether an answer breaks a constraint."""
    out = np.zeros(len(before), dtype=bool)
    for n in problem.immutable:
        out |= before[n].astype(object).to_numpy() != after[n].astype(object).to_numpy()
    for n in problem.increasing:
        rank = problem.train[n].dtype
        b, a = (
            f[n].astype(rank).cat.codes if hasattr(problem.train[n], "cat") else f[n]
            for f in (before, after)
        )
        out |= a.to_numpy(float) < b.to_numpy(float)
    for n, (low, high) in (problem.ranges or {}).items():
        values = after[n].to_numpy(float)
        out |= (values < low) | (values > high)
    return out


def line(problem, name, rows, answers, seconds, ready):
    """Judge answers: a frame with one line per row asked about, missing where there is none."""
    asked = len(answers)
    have = answers.notna().all(axis=1).to_numpy()
    before = rows.iloc[:asked][have]
    after = answers[have].astype(problem.train.dtypes.to_dict())
    flips = np.zeros(len(before), dtype=bool)
    if len(before):
        flips = np.asarray(problem.model.predict_proba(after)).argmax(1) == 1
    kept = ~broken(problem, before, after)
    l1, labels, cost = measured(problem, before[flips], after[flips])
    return {
        "method": name, "rows": asked, "found": int(flips.sum()), "denied": int((~flips).sum()),
        "broken": int((~kept & flips).sum()), "L1": l1.mean() if len(l1) else np.nan,
        "labels": labels.mean() if len(l1) else np.nan,
        "cost": cost.mean() if len(l1) else np.nan,
        "ms": 1e3 * seconds / asked, "ready": ready,
        "good": int((kept & flips).sum()),
    }  # fmt: skip


def ours(problem, rows, method="auto", name="cel.explain", **settings):
    """Ask the front door."""
    rules = {n: getattr(problem, n) for n in ("immutable", "increasing", "ranges")}
    told, result = timed(problem, problem.model, name, rows, method=method, **rules, **settings)
    return told | {"proved": int((result.status == "infeasible").sum())}


def timed(problem, model, name, rows, **settings):
    """Make an explainer, warm it up with two rows, and time it on all of them."""
    started = time.process_time()
    explainer = cel.Explainer(model, problem.train, target=1, **settings)
    explainer.explain(rows.iloc[:2])
    ready = time.process_time() - started
    started = time.process_time()
    result = explainer.explain(rows)
    seconds = time.process_time() - started
    if seconds < 1:  # others use the machine, too
        started = time.process_time()
        explainer.explain(rows)
        seconds = min(seconds, time.process_time() - started)
    answers = result.to_frame().astype(object).reindex(rows.index)
    return line(problem, name, rows, answers, seconds, ready), result


# -- beside other libraries ------------------------------------------------------------------


def adult():
    split = load_dataset("adult").split()
    test = split.pipeline.inverse_transform(split.test.X)
    return split.train.frame, split.train.y, test


def constrained(model, train):
    return Problem(model, train, immutable=FIXED, increasing=UP, ranges=RANGES)


def rejected(model, test, count, seed=0):
    below = np.flatnonzero(np.asarray(model.predict_proba(test)).argmax(1) == 0)
    rows = np.random.default_rng(seed).permutation(below)[:count]
    return test.iloc[rows].reset_index(drop=True)


def rivals(count, seed):
    train, y, test = adult()
    model = LGBMClassifier(n_estimators=100, num_leaves=31, verbose=-1, n_jobs=1, random_state=0)
    model.fit(train, y)
    rows = rejected(model, test, count, seed)
    lines = []
    for setting, problem in (
        ("free", Problem(model, train)), ("constrained", constrained(model, train)),
    ):  # fmt: skip
        lines.append({"setting": setting} | shown(ours(problem, rows)))
        for name, (side, how, dist) in RIVALS.items():
            if not installed(dist):
                print(f"{name} is left out: pip install {dist}", flush=True)
                continue
            if dist == "NICEx" and setting == "constrained":
                continue  # knows no constraints
            if name == "dice-ml genetic" and setting == "constrained":
                continue  # twenty rows did not end within ten minutes
            limit = min(count, FEWER.get(name, count))
            if name == "treecf exact" and setting == "constrained":
                limit = min(count, SLOW_ROWS)  # some of them take very long
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answers, seconds = side(problem, rows, limit, how)
            title = f"{name} {version(dist)}"
            told = line(problem, title, rows, answers, seconds, np.nan)
            lines.append({"setting": setting} | shown(told))
    return pd.DataFrame(lines)


def installed(dist):
    module = {"NICEx": "nice", "dice-ml": "dice_ml"}.get(dist, dist)
    try:
        version(dist)
    except PackageNotFoundError:
        return False
    return importlib.util.find_spec(module) is not None


def shown(told):
    print({k: round(v, 4) if isinstance(v, float) else v for k, v in told.items()}, flush=True)
    return told


# -- beside single methods -------------------------------------------------------------------


def kinds(train, y):
    """Six kinds of model of one raw table, as their owners have them."""
    import torch
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
    from xgboost import XGBClassifier

    words = make_column_selector(dtype_include="category")
    steps = list(train["education"].cat.categories)  # an ordered label: its rank
    one_hot = make_column_transformer(
        (make_pipeline(OrdinalEncoder(categories=[steps]), StandardScaler()), ["education"]),
        (OneHotEncoder(handle_unknown="ignore"), [n for n in words(train) if n != "education"]),
        remainder=StandardScaler(),
    )
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    ranks = make_column_transformer((codes, words), remainder="passthrough")
    hidden = make_pipeline(
        one_hot, MLPClassifier((32,), max_iter=300, early_stopping=True, random_state=0)
    ).fit(train, y)
    torch.manual_seed(0)
    return {
        "logistic pipeline": make_pipeline(one_hot, LogisticRegression(max_iter=2000)),
        "forest": make_pipeline(ranks, RandomForestClassifier(100, max_depth=8, random_state=0)),
        "boosting": HistGradientBoostingClassifier(
            categorical_features="from_dtype", random_state=0
        ),
        "XGBoost": XGBClassifier(n_estimators=100, max_depth=5, enable_categorical=True, n_jobs=1),
        "torch module": network(train, y),
        "function": hidden.predict_proba,
    }


def network(train, y):
    """A module over the columns of the table in their order, labels one column per category."""
    import torch
    from torch import nn

    from cel.models.adapters.own_units import OwnUnits

    explainer = cel.wrap(nn.Identity(), train, classes=[0, 1])
    units = explainer._units
    assert isinstance(units, OwnUnits)
    x = units.of_table(train)
    first = nn.Linear(x.shape[1], 32)
    module = nn.Sequential(first, nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    mean, std = x.mean(0), x.std(0).clamp(min=1e-6)
    labels = torch.as_tensor(np.asarray(y), dtype=torch.long)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2, weight_decay=1e-4)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module((x - mean) / std), labels).backward()
        optimizer.step()
    with torch.no_grad():  # the scaling goes into the first layer
        first.bias -= first.weight @ (mean / std)
        first.weight /= std
    return module.eval()


class Judge:
    """What asks any of the models with a table."""

    def __init__(self, model, train):
        self.wrapped = cel.wrap(model, train, classes=[0, 1])
        self.predict_proba = self.wrapped.predict_proba


SINGLE = ("nearest", "nice", "growing_spheres", "dice_closest", "actionable", "cells",
          "exact_tree", "live_regions", "wachter", "wachter_exact", "cem", "cadex")  # fmt: skip


def portfolio(count, seed):
    train, y, test = adult()
    some = np.random.default_rng(1).permutation(len(train))[:3000]
    train, y = train.iloc[some].reset_index(drop=True), np.asarray(y)[some]
    lines = []
    for kind, model in kinds(train, y).items():
        if hasattr(model, "fit"):
            model.fit(train, y)
        judge = Judge(model, train)
        rows = rejected(judge, test, count, seed)
        for setting in ("free", "constrained"):
            lines.append(beside(kind, setting, model, judge, train, rows))
    return pd.DataFrame(lines)


def beside(kind, setting, model, judge, train, rows):
    """Return one line: `auto`, and the best and the fastest single method."""
    rules = {} if setting == "free" else {
        "immutable": FIXED, "increasing": UP, "ranges": RANGES,
    }  # fmt: skip
    problem = Judged(model, judge, train, rules)
    known = {} if hasattr(model, "classes_") else {"classes": [0, 1]}
    auto = problem.ask("auto", rows, known)
    single = []
    for name in SINGLE:
        try:
            single.append(problem.ask(name, rows, known))
        except cel.CelError as error:
            print(f"  {kind}: {name} refuses: {str(error)[:80]}", flush=True)
    best = max(single, key=lambda s: (s["good"], -s["ms"]))
    same = [s for s in single if s["good"] >= best["good"] * 0.999]
    fast = min(same, key=lambda s: s["ms"])
    near = [s for s in same if s["cost"] <= CLOSE * auto["cost"]]
    rival = min(near, key=lambda s: s["ms"]) if near else None
    return {
        "model": kind, "setting": setting, "auto": auto["good"], "proved": auto["proved"],
        "cost": auto["cost"],
        "ms": auto["ms"], "ready": auto["ready"], "best single": best["good"],
        "fastest": fast["method"], "its ms": fast["ms"], "its cost": fast["cost"],
        "fastest as near": rival["method"] if rival else "none",
        "that ms": rival["ms"] if rival else np.nan,
        "ratio": auto["ms"] / rival["ms"] if rival else np.nan,
    }  # fmt: skip


class Judged:
    """One model under some rules."""

    def __init__(self, model, judge, train, rules):
        self.own, self.rules = model, rules
        self.problem = Problem(judge, train, **rules)

    def ask(self, method, rows, known):
        settings = {"method": method, **self.rules, **known}
        told, result = timed(self.problem, self.own, method, rows, **settings)
        return shown(told | {"proved": int((result.status == "infeasible").sum())})


# -- the page --------------------------------------------------------------------------------


def markdown(table):
    def cell(v):
        if isinstance(v, float):
            return "" if np.isnan(v) else f"{v:.3g}"
        return str(v)

    head = list(table.columns)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell(v) for v in row) + " |" for row in table.to_numpy(object)]
    return "\n".join(lines)


def put(name, table):
    """Put a table between its marks in the page."""
    text = PAGE.read_text()
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, rest = text.split(start)
    _, after = rest.split(end)
    PAGE.write_text(f"{before}{start}\n{markdown(table)}\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--kind-rows", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    parts = options.parts or ["rivals", "kinds"]
    if "rivals" in parts:
        table = rivals(options.rows, options.seed).drop(columns=["good"])
        print(markdown(table))
        if options.write:
            put("rivals", table)
    if "kinds" in parts:
        table = portfolio(options.kind_rows, options.seed)
        print(markdown(table))
        if options.write:
            put("kinds" if options.seed == 0 else "kinds of other rows", table)


if __name__ == "__main__":
    main()
