"""DiCE against dice-ml: counterfactuals per CPU-second, how far away and how many changes.

Both sides explain the same network on the same rows with sets of ten. dice-ml gets the raw table
(categories as categories, features that cannot change held fixed) and a model that encodes it;
the seconds of that encoding are taken off. Directions and relations between features are kept by
us and are not known to dice-ml. Both sides count only points that the network puts into the wanted
class and that differ from the row and from each other.
"""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import torch

from cel.cf_methods import METHODS
from cel.space.distances import changed_features

SETS = 10
SECONDS = 30.0


class RawModel:
    """The network as a model of raw tables."""

    def __init__(self, split, model):
        self.split, self.model, self.seconds = split, model, 0.0
        self.labels = {n: {str(c): c for c in cs} for n, cs in _labels(split).items()}

    def encode(self, frame):
        started = time.process_time()
        like = self.split.train.frame.dtypes
        columns = {
            n: frame[n].astype(str).map(self.labels[n]) if n in self.labels else frame[n].astype(t)
            for n, t in like.items()
        }
        frame = pd.DataFrame(columns)
        x = self.split.pipeline.transform(frame)
        self.seconds += time.process_time() - started
        return x

    def predict_proba(self, frame):
        return self.model.predict_proba(self.encode(frame))

    def predict(self, frame):
        return self.predict_proba(frame).argmax(1)


def _labels(split):
    return {f.name: f.categories for f in split.raw_space if f.categories}


def _raw(split, x):
    """Return rows as a raw table; dice-ml wants categories as strings."""
    frame = split.pipeline.inverse_transform(x)
    return frame.astype(dict.fromkeys(_labels(split), str))


def _quality(x, sets, model, position, space):
    """Return count, mean L1 and mean share of changed features of the real counterfactuals."""
    distinct = [np.unique(c, axis=0) for c in sets]
    points = np.concatenate(distinct)
    if not len(points):
        return 0, np.nan, np.nan
    rows = np.repeat(x[: len(sets)], [len(c) for c in distinct], 0)
    good = (model.predict_proba(points).argmax(1) == position) & (points != rows).any(1)
    before, after = torch.as_tensor(rows[good]), torch.as_tensor(points[good])
    changed = changed_features(before, after, space).float().mean()
    return int(good.sum()), float((before - after).abs().sum(1).mean()), float(changed)


def theirs(method, split, model, pool, position):
    """Run dice-ml row by row until the time is used up."""
    import dice_ml
    from raiutils.exceptions import UserConfigValidationException

    wrapped = RawModel(split, model)
    frame = _raw(split, split.train.X)
    frame["outcome"] = model.predict_proba(split.train.X).argmax(1)
    numbers = [f.name for f in split.raw_space if not f.categories]
    data = dice_ml.Data(dataframe=frame, continuous_features=numbers, outcome_name="outcome")
    explainer = dice_ml.Dice(
        data,
        dice_ml.Model(model=wrapped, backend="sklearn", model_type="classifier"),
        method=method,
    )
    mutable = [f.name for f in split.raw_space if f.mutable]
    wrapped.seconds, used, sets = 0.0, 0.0, []
    while used < SECONDS and len(sets) < len(pool):
        started, row = time.process_time(), _raw(split, pool[len(sets) : len(sets) + 1])
        extra = {"random_seed": 0} if method == "random" else {}
        try:
            answer = explainer.generate_counterfactuals(
                row, total_CFs=SETS, desired_class=position, features_to_vary=mutable,
                verbose=False, **extra,
            )  # fmt: skip
            found = answer.cf_examples_list[0].final_cfs_df
        except UserConfigValidationException:
            found = None
        used += time.process_time() - started
        sets.append(found)
    seconds = used - wrapped.seconds
    sets = [wrapped.encode(s) if s is not None and len(s) else pool[:0] for s in sets]
    return seconds, sets


def ours(method, split, model, rows, goal):
    """Run DiCE on all rows at once."""
    search = METHODS.get("dice")(model, method=method, total_CFs=SETS).fit(split)
    search.explain(rows[:1], goal)
    started = time.process_time()
    result = search.explain(rows, goal)
    seconds = time.process_time() - started
    return seconds, [s[~np.isnan(s).any(1)] for s in result.x_sets]


def compare(dataset, split, model, pool, rows, goal):
    """Return one line per search: dice-ml on some rows, ours on all."""
    position = list(split.target.classes).index(goal)
    lines = []
    for method in ("random", "genetic"):
        line = {"dataset": dataset, "search": method}
        for side, x, (seconds, sets) in (
            ("dice-ml", pool, theirs(method, split, model, pool, position)),
            ("ours", rows, ours(method, split, model, rows, goal)),
        ):
            count, l1, changed = _quality(x, sets, model, position, split.space)
            line |= {
                f"{side} rows": len(sets), f"{side} CFs/row": count / len(sets),
                f"{side} CFs/s": count / seconds, f"{side} L1": l1, f"{side} sparsity": changed,
            }  # fmt: skip
        line["ratio"] = line["ours CFs/s"] / line["dice-ml CFs/s"]
        print(line, flush=True)
        lines.append(line)
    return lines
