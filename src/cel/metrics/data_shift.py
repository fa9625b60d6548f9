"""Does an answer survive when the data move on, in time or to another place?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.errors import ConfigError, UnsupportedError
from cel.metrics.base import metric
from cel.metrics.retraining import kept_share, recorded_labels, retrain
from cel.protocols import Task
from cel.space import Feature

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["elsewhere", "retraining_shift"]

FEWEST = 5  # rows on the other side


@metric(
    "retraining_shift",
    better="higher",
    unit="share",
    rows="found",
    undefined="no retrained model keeps the outcome of the original row",
    needs={"model", "train"},
    trains=True,
    meaning="How often the answer still holds for a model trained on later rows, or on those of "
    "other places.",
    formula="mean over models f' trained with other seeds on {x: feature(x) above its median} or "
    "{x: feature(x) is not the most frequent category} of 1[f'(x') = target]; f' does not see the "
    "feature",
    reference="Upadhyay, Joshi and Lakkaraju (ROAR), 2021",
)
def retraining_shift(
    ev: Evaluation,
    feature: str | Sequence[str] = (),
    n_models: int = 3,
    seed: int = 0,
    condition: bool = False,
) -> np.ndarray:
    """Share of models of the other side for which each counterfactual keeps its outcome.

    Args:
        ev: the counterfactuals.
        feature: says time or place; of several names the first that the rows have.
        n_models: models trained on the other side, each with its own seed.
        seed: of those seeds.
        condition: count only models that still say the same about the original row.
    """
    if n_models < 1:
        raise ConfigError(f"n_models must be at least 1, got {n_models}")
    names = (feature,) if isinstance(feature, str) else tuple(feature)
    by_name = {f.name: f for f in ev.space}
    here = [by_name[n] for n in names if n in by_name]
    if not here:
        wanted = f"none of {', '.join(map(repr, names))} is one" if names else "none was named"
        raise UnsupportedError(f"needs a feature that says time or place (feature=...); {wanted}")
    rows, labels = elsewhere(ev.x_train, here[0]), recorded_labels(ev)
    _refuse_few(ev, here[0], labels[rows])
    key = (here[0].name, n_models, seed, labels.tobytes())

    def hide(x: np.ndarray) -> np.ndarray:
        # A category that the models never saw would be answered at random.
        out = np.array(x)
        out[:, list(here[0].columns)] = 0.0
        return out

    def train() -> list[Any]:
        streams = np.random.SeedSequence(seed).spawn(n_models)
        return [
            retrain(ev, labels, np.random.default_rng(s), only=rows, shown=hide) for s in streams
        ]

    return kept_share(ev, ev.shared("shifted_models", train, key, model=True), condition, hide)


def elsewhere(x: np.ndarray, feature: Feature) -> np.ndarray:
    """Return the numbers of the rows (n, d) on the other side of a feature.

    That is above the median of a number or an ordered label, and anywhere but in the most
    frequent category otherwise.

    >>> elsewhere(np.array([[0.1], [0.5], [0.9]]), Feature(name="year", columns=(0,)))
    array([2])
    """
    values = x[:, list(feature.columns)]
    if feature.one_hot:
        home = values.sum(0).argmax()
        return np.flatnonzero(values.argmax(1) != home)
    return np.flatnonzero(values[:, 0] > np.median(values[:, 0]))


def _refuse_few(ev: Evaluation, feature: Feature, labels: np.ndarray) -> None:
    classes = len(np.unique(labels)) if ev.task is Task.CLASSIFICATION else 2
    if len(labels) < FEWEST or classes < 2:
        raise UnsupportedError(
            f"the other side of {feature.name!r} has {len(labels)} training rows and "
            f"{classes} classes; too few to train on"
        )
