"""How much has to change: distances and counts between a row and its counterfactual.

A one-hot block counts as one feature; a = numeric features / all features. Numbers are scaled, so
that distances are in units of the training range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cel.metrics.base import metric
from cel.space import distances

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["gower", "hamming", "jaccard", "l1", "l2", "mad", "mad_scale", "sparsity"]


@metric(
    "sparsity",
    better="lower",
    unit="share",
    rows="found",
    meaning="Which part of the features has to change.",
    formula="(number of changed features) / p; a number changed when it moved by more than 1e-6 "
    "of its range, a category when it is another one",
    reference="Mothilal, Sharma and Tan, 2020",
)
def sparsity(ev: Evaluation) -> np.ndarray:
    """Share of changed features."""
    return np.asarray(distances.changed_features(ev.x, ev.cf, ev.space).mean(1))


@metric(
    "l1",
    better="lower",
    unit="range",
    rows="found",
    meaning="The sum of all changes of numbers.",
    formula="sum over numeric features of |x'_j - x_j|",
)
def l1(ev: Evaluation) -> np.ndarray:
    """City-block distance over numeric features."""
    return np.asarray(distances.l1(ev.x, ev.cf, ev.space))


@metric(
    "l2",
    better="lower",
    unit="range",
    rows="found",
    meaning="The straight-line distance over the numbers.",
    formula="sqrt(sum over numeric features of (x'_j - x_j)^2)",
)
def l2(ev: Evaluation) -> np.ndarray:
    """Euclidean distance over numeric features."""
    return np.asarray(distances.l2(ev.x, ev.cf, ev.space))


def mad_scale(ev: Evaluation) -> np.ndarray:
    """Median absolute deviations of the training rows, (d,), fitted once."""
    return ev.shared("mad", lambda: distances.mad_scale(ev.x_train, ev.space), (ev.space,))


@metric(
    "mad",
    better="lower",
    unit="deviations",
    rows="found",
    needs={"train"},
    meaning="The sum of all changes of numbers, each in units of how much people usually differ.",
    formula="sum over numeric features of |x'_j - x_j| / MAD_j; MAD from training rows, else "
    "their standard deviation, else the range",
    reference="Wachter, Mittelstadt and Russell, 2017",
)
def mad(ev: Evaluation) -> np.ndarray:
    """Distance in median absolute deviations."""
    return np.asarray(distances.mad(ev.x, ev.cf, ev.space, mad_scale(ev)))


@metric(
    "hamming",
    better="lower",
    unit="share",
    rows="found",
    meaning="Which part of the categorical features has to change; 0 without such features.",
    formula="(number of categorical features that differ) / (number of categorical features)",
)
def hamming(ev: Evaluation) -> np.ndarray:
    """Share of categorical features that differ."""
    return np.asarray(distances.hamming(ev.x, ev.cf, ev.space))


@metric(
    "jaccard",
    better="lower",
    unit="share",
    rows="found",
    meaning="How little the sets of categories before and after have in common.",
    formula="2c / (q + c) with c of the q categorical features different",
    reference="Jaccard, 1912",
)
def jaccard(ev: Evaluation) -> np.ndarray:
    """Jaccard distance of the sets of (feature, category) pairs."""
    return np.asarray(distances.jaccard(ev.x, ev.cf, ev.space))


@metric(
    "gower",
    better="lower",
    unit="share",
    rows="found",
    meaning="The average change of a feature, from 0 (none) to 1 (across its whole range).",
    formula="(1/p) [sum over numbers of |x'_j - x_j| / range_j + number of other categories]",
    reference="Gower, 1971",
)
def gower(ev: Evaluation) -> np.ndarray:
    """Gower's distance."""
    return np.asarray(distances.gower(ev.x, ev.cf, ev.space))


NUMBER: dict[str, tuple[Callable[[Evaluation], np.ndarray], str]] = {
    "l2": (l2.function, "L2"),
    "l1": (l1.function, "L1"),
    "mad": (mad.function, "MAD"),
}
CATEGORY: dict[str, tuple[Callable[[Evaluation], np.ndarray], str]] = {
    "hamming": (hamming.function, "Hamming"),
    "jaccard": (jaccard.function, "Jaccard"),
}


def _mixed(number: str, category: str) -> None:
    """Register one pair of a numeric and a categorical distance."""
    (first, one), (second, two) = NUMBER[number], CATEGORY[category]

    def pair(ev: Evaluation) -> np.ndarray:
        return np.asarray(distances.mixed(first(ev), second(ev), ev.space))

    pair.__qualname__ = f"{number}_{category}"
    metric(
        f"{number}_{category}",
        better="lower",
        rows="found",
        needs={"train"} if number == "mad" else frozenset(),
        meaning=f"{one} over the numbers and {two} over the categories, weighted by their counts.",
        formula=f"a * {number} + (1 - a) * {category}, a = numeric features / p",
    )(pair)


for _number in NUMBER:
    for _category in CATEGORY:
        _mixed(_number, _category)


@metric(
    "sparsity_encoded",
    better="lower",
    unit="share",
    rows="found",
    meaning="Sparsity counted over one-hot columns; only to compare with published tables.",
    formula="(number of changed encoded columns) / (number of encoded columns)",
)
def sparsity_encoded(ev: Evaluation) -> np.ndarray:
    """Share of changed columns."""
    width = ev.space.vector("upper") - ev.space.vector("lower")
    unit = np.where(width > 0, width, 1.0)
    return np.asarray((np.abs(ev.cf - ev.x) > distances.CHANGE * unit).mean(1))


@metric(
    "l2_hamming_encoded",
    better="lower",
    rows="found",
    meaning="L2-Hamming counted over one-hot columns; only to compare with published tables.",
    formula="a * l2 + (1 - a) * (share of one-hot columns that differ), "
    "a = numeric columns / encoded columns",
)
def l2_hamming_encoded(ev: Evaluation) -> np.ndarray:
    """The mixed distance of the printed tables."""
    share = len(ev.space.numeric_columns) / ev.space.width
    categories = distances.encoded_hamming(ev.x, ev.cf, ev.space)
    return np.asarray(share * l2.function(ev) + (1 - share) * categories)
