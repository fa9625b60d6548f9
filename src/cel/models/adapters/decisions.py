"""What a model from outside decides, where that is not simply its likeliest class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

__all__ = ["Rule", "decision_rule", "stated_threshold"]

Rule = float | Literal["likeliest", "labels"]
Said = tuple[np.ndarray, np.ndarray]  # probabilities (n, K), positions of predicted classes (n,)

CLOSE = 1e-6  # probabilities that differ by less are no decision
PAIRS, HALVINGS = 16, 40
SURE = 1e-9  # a threshold of 0 or 1 has no odds


def decision_rule(
    stated: float | None, ask: Callable[[pd.DataFrame], Said], rows: pd.DataFrame
) -> Rule:
    """Return how labels follow from probabilities, as far as some rows tell.

    "likeliest"; or the probability from which on the second of two classes is predicted, as the
    model states it or as it is found between the rows; or "labels" if they follow by no such rule.

    Args:
        stated: what the model says its threshold is; it counts if the rows do not deny it.
        ask: what the model says of raw rows.
        rows: in which it is looked for.

    >>> table = pd.DataFrame({"p": [0.2, 0.6, 0.9]})
    >>> ask = lambda t: (np.stack([1 - t.p, t.p], 1), (t.p >= 0.75).to_numpy().astype(int))
    >>> round(decision_rule(None, ask, table), 9)
    0.75
    """
    proba, told = ask(rows)
    two = proba.shape[1] == 2
    low, high = _between(proba, told)
    if two and stated is not None and low < stated <= high:
        return "likeliest" if abs(stated - 0.5) <= CLOSE else stated
    best = np.sort(proba, axis=1)
    clear = best[:, -1] - best[:, -2] > CLOSE
    if (proba.argmax(1) == told)[clear].all():
        return "likeliest"
    if not two:
        return "labels"
    low, high = _narrowed(ask, rows, proba, told)
    return (low + high) / 2 if low < high else "labels"


def _between(proba: np.ndarray, told: np.ndarray) -> tuple[float, float]:
    """Return the largest probability of the last class without it, the smallest one with it."""
    p = proba[:, -1]
    return float(p[told == 0].max(initial=0.0)), float(p[told == 1].min(initial=1.0))


def _narrowed(
    ask: Callable[[pd.DataFrame], Said], rows: pd.DataFrame, proba: np.ndarray, told: np.ndarray
) -> tuple[float, float]:
    """Halve the way between rows on either side of the threshold, in columns of numbers."""
    low, high = _between(proba, told)
    near = np.argsort(np.abs(proba[:, 1] - (low + high) / 2), kind="stable")
    no, yes = (near[told[near] == k][:PAIRS] for k in (0, 1))
    count = min(len(no), len(yes))
    if not count:
        return low, high
    start, end = (rows.iloc[at[:count]].reset_index(drop=True) for at in (no, yes))
    moved = [c for c in rows if pd.api.types.is_float_dtype(rows[c].dtype)]
    before, after = np.zeros(count), np.ones(count)
    for _ in range(HALVINGS):
        share = (before + after) / 2
        here = start.where(np.repeat(share[:, None] < 0.5, rows.shape[1], 1), end)
        here = here.astype(rows.dtypes.to_dict())
        for name in moved:
            here[name] = start[name] + share * (end[name] - start[name])
        p, said = ask(here)
        before, after = np.where(said == 1, before, share), np.where(said == 1, share, after)
        lower, upper = _between(p, said)
        low, high = max(low, lower), min(high, upper)
    return low, high


def stated_threshold(model: Any, order: Sequence[int] = (0, 1)) -> float | None:
    """Return the threshold of a classifier that has one as its setting, for the second class.

    Args:
        model: the model.
        order: positions of its classes, in its own order.
    """
    found = _stated(model) if len(order) == 2 else None
    if found is None:
        return None
    found = min(max(found, SURE), 1 - SURE)
    return found if order[1] == 1 else float(np.nextafter(1 - found, 1))


def _stated(model: Any) -> float | None:
    """Return the threshold for the model's own second class."""
    if hasattr(model, "get_probability_threshold"):  # CatBoost
        return float(model.get_probability_threshold())
    model = getattr(model, "best_estimator_", model)
    if hasattr(model, "steps"):
        model = model.steps[-1][1]
    found = getattr(model, "best_threshold_", getattr(model, "threshold", None))
    of_second = getattr(model, "pos_label", None) in (None, *_second(model))
    of_proba = getattr(model, "response_method", "") in ("auto", "predict_proba")
    if isinstance(found, int | float) and of_second and of_proba:
        return float(found)
    return None


def _second(model: Any) -> list[Any]:
    return list(getattr(model, "classes_", []))[1:2]
