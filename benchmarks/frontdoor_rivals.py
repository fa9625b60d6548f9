"""Other libraries at the same door: dice-ml, NICEx and treecf on a LightGBM model of a raw table.

Each rival is a function (problem, rows, limit) -> (answers, seconds): a frame with one line per
row that it was asked about, all of it missing where it has no answer, and its CPU seconds. What
the rivals cannot be told is left out, and the checks of the caller count what breaks. A rival that
is not installed says so and is left out: pip install 'ce-library[baselines]'; NICEx asks for an
old numpy and works with a new one: pip install --no-deps NICEx.
"""

from __future__ import annotations

import os
import time
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

import cel
from cel.space.distances import mad_scale

BETA = 0.05  # of treecf: what a changed column costs


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, its training table and what answers must keep (nothing, if all are empty)."""

    model: object
    train: pd.DataFrame
    immutable: tuple = ()
    increasing: tuple = ()
    ranges: dict = None

    @cached_property
    def encoder(self):
        """What encodes rows for the measures."""
        return cel.wrap(lambda rows: None, self.train, classes=[0, 1])

    @cached_property
    def units(self):
        """What one unit of the cost is in the codes of each column that has an order."""
        pipeline, space = self.encoder.pipeline_, self.encoder.space_
        x, codes = pipeline.transform(self.train), self.codes(self.train)
        scale, out = mad_scale(x, space), {}
        for j, n in enumerate(self.train):
            columns = space[n].columns
            if len(columns) == 1:
                own = x[:, columns[0]]
                out[n] = float(scale[columns[0]] * np.ptp(codes[:, j]) / np.ptp(own))
            else:
                out[n] = 1.0
        return out

    @property
    def labels(self):
        return [n for n in self.train if isinstance(self.train[n].dtype, pd.CategoricalDtype)]

    @property
    def numbers(self):
        return [n for n in self.train if n not in self.labels]

    def codes(self, frame):
        """The table as floats, labels as their codes."""
        return np.stack([
            (frame[n].cat.codes if n in self.labels else frame[n]).to_numpy(float) for n in frame
        ], 1)  # fmt: skip

    def table(self, codes):
        """Floats (n, d) as the table that the model takes."""
        columns = {}
        for j, n in enumerate(self.train):
            like = self.train[n].dtype
            if n in self.labels:
                columns[n] = pd.Categorical.from_codes(codes[:, j].astype(int), dtype=like)
            else:
                columns[n] = np.round(codes[:, j]).astype(like)
        return pd.DataFrame(columns)


def scattered(problem, rows, codes, seconds):
    """Answers (k, d) of the first rows, NaN for none, as a table with their index."""
    known = ~np.isnan(codes).any(1)
    out = problem.table(np.where(known[:, None], codes, 0)).astype(object)
    out[~known] = None
    out.index = rows.index[: len(codes)]
    return out, seconds


def treecf_side(problem, rows, limit, backend, budget_s=2.0):
    """treecf with the same units, and the same rules in its own words.

    Labels that the model takes as numbers (LightGBM does so with ordered ones) are numbers for
    it, too. The others have no order there: one that may only rise is restricted, row by row, to
    the codes from its own one on, by one explainer for each; a step of it costs it 1, like any
    change of a label, where the measures count its ranks.
    """
    import treecf

    background, names = problem.codes(problem.train), list(problem.train)
    try:
        read = treecf.Explainer(problem.model, background=background)
    except treecf.TreecfError as error:
        raise NotImplementedError(str(error)) from error
    labels = {names[j] for j in read.ir.categorical}
    rules = [treecf.Freeze(n) for n in problem.immutable]
    rules += [treecf.Monotone(n, "increase") for n in problem.increasing if n not in labels]
    rules += [treecf.Range(n, lo, hi) for n, (lo, hi) in (problem.ranges or {}).items()]
    rising = [n for n in problem.increasing if n in labels]
    asked = problem.codes(rows.iloc[:limit])
    own = asked[:, [names.index(n) for n in rising]].astype(int)
    units = {n: 1.0 if n in labels else problem.units[n] for n in names}
    explainers = {}
    for levels in map(tuple, np.unique(own, axis=0)):
        more = [
            treecf.AllowedCategories(n, list(range(k, len(problem.train[n].cat.categories))))
            for n, k in zip(rising, levels, strict=True)
        ]
        explainers[levels] = treecf.Explainer(
            problem.model, background=background, constraints=rules + more, normalizers=units,
            value_policy={n: "integer" for n in names if n not in labels},
        )  # fmt: skip
    target = treecf.Target.probability(range=(0.5 + 1e-4, 1.0))
    started = time.process_time()
    answers = [
        explainers[tuple(k)].explain(r, target, backend=backend, sparsity_weight=BETA, seed=0,
                                     time_budget_s=budget_s)
        for r, k in zip(asked, own, strict=True)
    ]  # fmt: skip
    seconds = time.process_time() - started
    out = np.full(asked.shape, np.nan)
    for i, answer in enumerate(answers):
        values = getattr(answer, "x_cf", None)
        if values is not None:
            out[i] = np.asarray(values, dtype=float).ravel()
    return scattered(problem, rows, out, seconds)


def nicex_side(problem, rows, limit, reward):
    from nice import NICE

    codes = problem.codes(problem.train)
    names = list(problem.train)

    def ask(x):
        return problem.model.predict_proba(problem.table(np.asarray(x, dtype=float)))

    explainer = NICE(
        predict_fn=ask, X_train=codes, y_train=ask(codes).argmax(1), optimization=reward,
        cat_feat=[names.index(n) for n in problem.labels],
        num_feat=[names.index(n) for n in problem.numbers],
    )  # fmt: skip
    asked = problem.codes(rows.iloc[:limit])
    started = time.process_time()
    found = [np.asarray(explainer.explain(r[None]), dtype=float).ravel() for r in asked]
    seconds = time.process_time() - started
    return scattered(problem, rows, np.stack(found), seconds)


class _WithText:
    """The model as dice-ml asks it: labels as text."""

    def __init__(self, problem):
        self.problem = problem

    def predict_proba(self, frame):
        like = self.problem.train.dtypes
        columns = {n: pd.Series(frame[n].to_numpy()) for n in self.problem.train}
        for n in columns:
            known = {str(c): c for c in like[n].categories} if n in self.problem.labels else None
            values = columns[n].map(known) if known else columns[n].astype(float).round()
            columns[n] = values.astype(like[n])
        return self.problem.model.predict_proba(pd.DataFrame(columns))

    def predict(self, frame):
        return self.predict_proba(frame).argmax(1)


def dice_side(problem, rows, limit, search):
    import dice_ml
    from raiutils.exceptions import UserConfigValidationException

    text = dict.fromkeys(problem.labels, str)
    model = _WithText(problem)
    frame = problem.train.astype(text)
    frame["outcome"] = model.predict(problem.train)
    data = dice_ml.Data(
        dataframe=frame, continuous_features=problem.numbers, outcome_name="outcome"
    )
    made = dice_ml.Model(model=model, backend="sklearn", model_type="classifier")
    explainer = dice_ml.Dice(data, made, method=search)
    free = [n for n in problem.train if n not in problem.immutable]
    asked = rows.iloc[:limit].astype(text)
    out = np.full((len(asked), len(problem.train.columns)), np.nan)
    started = time.process_time()
    for i in range(len(asked)):
        row = asked.iloc[i : i + 1]
        inside = {n: [lo, hi] for n, (lo, hi) in (problem.ranges or {}).items()}
        for n in set(problem.increasing) & set(problem.numbers):
            inside[n] = [float(row[n].iloc[0]), float(problem.train[n].max())]
        extra = {"random_seed": 0} if search == "random" else {}
        try:
            with open(os.devnull, "w") as quiet, redirect_stderr(quiet):  # progress bars
                answer = explainer.generate_counterfactuals(
                    row, total_CFs=1, desired_class=1, features_to_vary=free,
                    permitted_range=inside or None, verbose=False, **extra,
                )  # fmt: skip
            found = answer.cf_examples_list[0].final_cfs_df
        except UserConfigValidationException:
            continue
        if found is not None and len(found):
            first = found.iloc[:1].reset_index(drop=True)
            for j, n in enumerate(problem.train):
                value = first[n].iloc[0]
                if n in problem.labels:
                    known = [str(c) for c in problem.train[n].cat.categories]
                    value = known.index(str(value))
                out[i, j] = float(value)
    return scattered(problem, rows, out, time.process_time() - started)


RIVALS = {
    "treecf genetic": (treecf_side, "genetic", "treecf"),
    "treecf exact": (treecf_side, "exact", "treecf"),
    "NICEx sparsity": (nicex_side, "sparsity", "NICEx"),
    "NICEx proximity": (nicex_side, "proximity", "NICEx"),
    "dice-ml random": (dice_side, "random", "dice-ml"),
    "dice-ml genetic": (dice_side, "genetic", "dice-ml"),
}
"""name -> (function, its setting, distribution)"""
