"""Does an answer survive when the model is trained again?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.errors import CelError, ConfigError, UnsupportedError
from cel.metrics.base import metric
from cel.metrics.references import fingerprint
from cel.protocols import AnyPredictor, Task

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["kept_share", "recorded_labels", "retrain", "retrained_models"]

NOISE = 0.05  # on the numbers of perturbed rows, in encoded units
MODES = {
    "seeds": "the same rows, other random seeds",
    "bootstrap": "rows drawn with replacement",
    "leave_out": "a random tenth of the rows left out",
    "folds": "all but one of as many equal parts of the rows as there are models",
    "perturbed": f"the same rows with normal noise of {NOISE} on their numbers",
}


def retrained_models(ev: Evaluation, mode: str, n_models: int, seed: int) -> list[Any]:
    """Train clones of the model once per fold; raise with the reason when that cannot be done.

    Labels are the recorded outcomes given to `compute(labels=...)`, else the model's predictions.
    """
    least = 2 if mode == "folds" else 1
    if n_models < least:
        raise ConfigError(f"n_models must be at least {least}, got {n_models}")
    labels = recorded_labels(ev)
    key = (mode, n_models, seed, fingerprint(np.asarray(labels)))

    def train() -> list[Any]:
        streams = np.random.SeedSequence(seed).spawn(n_models)
        order = np.random.default_rng(seed).permutation(len(ev.x_train))
        parts = [np.sort(p) for p in np.array_split(order, n_models)]
        return [
            retrain(ev, labels, np.random.default_rng(s), mode=mode, part=p)
            for s, p in zip(streams, parts, strict=True)
        ]

    return ev.shared("retrained_models", train, key, model=True)


def recorded_labels(ev: Evaluation) -> np.ndarray:
    """Return the recorded outcomes of the training rows, else the model's predictions."""
    return np.asarray(ev.y_train if ev.labels is None else ev.labels)


def retrain(
    ev: Evaluation,
    labels: np.ndarray,
    random: np.random.Generator,
    *,
    mode: str = "seeds",
    part: np.ndarray | None = None,
    only: np.ndarray | None = None,
    shown: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> Any:
    """Train one clone of the model.

    Args:
        ev: has the model and the training rows.
        labels: their outcomes.
        random: the source of the model's seed and of all draws.
        mode: one of `MODES`.
        part: the rows that mode "folds" leaves out.
        only: rows to train on, instead of those of the mode.
        shown: what the model is shown of rows (n, d).
    """
    from sklearn.base import clone

    who = type(ev.model).__name__
    try:
        model = clone(ev.model)
    except TypeError as problem:
        raise UnsupportedError(f"{who} cannot be cloned: {_first_line(problem)}") from problem
    seeded = "random_state" in model.get_params()
    if mode == "seeds" and not seeded:
        raise UnsupportedError(f"{who} has no random_state, so other seeds change nothing")
    if seeded:
        model.set_params(random_state=int(random.integers(2**31 - 1)))
    rows = _rows(mode, len(ev.x_train), random, part) if only is None else only
    x = _noisy(ev, random) if mode == "perturbed" else ev.x_train
    try:
        return model.fit(shown(x[rows]), labels[rows])
    except (CelError, ValueError, TypeError) as problem:
        raise UnsupportedError(f"{who} cannot be retrained: {_first_line(problem)}") from problem


def _first_line(problem: Exception) -> str:
    return str(problem).split("\n", 1)[0]


def _noisy(ev: Evaluation, random: np.random.Generator) -> np.ndarray:
    """Training rows with noise on their numbers, inside the bounds of the features."""
    columns = ev.space.numeric_columns
    low, high = ev.space.vector("lower")[columns], ev.space.vector("upper")[columns]
    x, moved = ev.x_train, ev.x_train.copy()
    there = x[:, columns] + random.normal(0.0, NOISE, (len(x), len(columns)))
    low, high = np.minimum(low, x[:, columns]), np.maximum(high, x[:, columns])
    moved[:, columns] = np.clip(there, low, high)
    return np.asarray(moved)


def _rows(mode: str, n: int, random: np.random.Generator, part: np.ndarray | None) -> np.ndarray:
    if mode == "folds":
        assert part is not None
        return np.setdiff1d(np.arange(n), part)
    if mode == "bootstrap":
        return random.integers(n, size=n)
    if mode == "leave_out":
        return np.sort(random.permutation(n)[: n - max(1, round(n / 10))])
    return np.arange(n)


def _outcome(ev: Evaluation, model: AnyPredictor, x: np.ndarray) -> np.ndarray:
    """Predictions as positions, also when a bootstrap sample lost a class."""
    predicted = ev.predict(x, model)
    if ev.task is Task.REGRESSION:
        return predicted
    classes = np.asarray(getattr(model, "classes_", np.arange(predicted.max() + 1)))
    return np.asarray(classes[predicted])


def kept_share(
    ev: Evaluation,
    models: list[Any],
    condition: bool,
    shown: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> np.ndarray:
    """Return the share of models for which each counterfactual keeps its outcome, (n,).

    Args:
        ev: the counterfactuals.
        models: trained again.
        condition: count only models that still say the same about the original row.
        shown: what the models are shown of rows (n, d).
    """
    kept, counts = np.zeros(len(ev)), np.zeros(len(ev))
    origin = ev.result.y_origs[ev.positions]
    for model in models:
        valid = ev.achieved(_outcome(ev, model, shown(ev.cf)), ev.target)
        same = np.ones(len(ev), dtype=bool)
        if condition:
            same = ev.achieved(_outcome(ev, model, shown(ev.x)), origin)
        kept += valid & same
        counts += same
    return np.where(counts > 0, kept / np.maximum(counts, 1), np.nan)


def _one_mode(mode: str) -> None:
    def robust(
        ev: Evaluation, n_models: int = 5, seed: int = 0, condition: bool = False
    ) -> np.ndarray:
        return kept_share(ev, retrained_models(ev, mode, n_models, seed), condition)

    robust.__qualname__ = f"retraining_{mode}"
    metric(
        f"retraining_{mode}",
        better="higher",
        unit="share",
        rows="found",
        undefined="no retrained model keeps the outcome of the original row",
        needs={"model", "train"},
        trains=True,
        meaning=f"How often the answer still holds for a model trained again on {MODES[mode]}.",
        formula="mean over retrained models f' of 1[f'(x') = target]; with condition=true only "
        "over models with f'(x) = f(x)",
        reference="Upadhyay, Joshi and Lakkaraju (ROAR), 2021; Jiang et al. (RobustX), 2025",
    )(robust)


for _mode in MODES:
    _one_mode(_mode)
