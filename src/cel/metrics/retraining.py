"""Does an answer survive when the model is trained again?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cel.errors import CelError, ConfigError, UnsupportedError
from cel.metrics.base import metric
from cel.metrics.references import fingerprint
from cel.protocols import Task

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["retrained_models"]

MODES = {
    "seeds": "the same rows, other random seeds",
    "bootstrap": "rows drawn with replacement",
    "leave_out": "a random tenth of the rows left out",
}


def retrained_models(ev: Evaluation, mode: str, n_models: int, seed: int) -> list[Any]:
    """Train clones of the model once per fold; raise with the reason when that cannot be done.

    Labels are the recorded outcomes given to `compute(labels=...)`, else the model's predictions.
    """
    if n_models < 1:
        raise ConfigError(f"n_models must be at least 1, got {n_models}")
    labels = ev.y_train if ev.labels is None else ev.labels
    key = (mode, n_models, seed, fingerprint(np.asarray(labels)))

    def train() -> list[Any]:
        streams = np.random.SeedSequence(seed).spawn(n_models)
        return [_retrain(ev, labels, mode, np.random.default_rng(s)) for s in streams]

    return ev.shared("retrained_models", train, key, model=True)


def _retrain(ev: Evaluation, labels: np.ndarray, mode: str, random: np.random.Generator) -> Any:
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
    rows = _rows(mode, len(ev.x_train), random)
    try:
        return model.fit(ev.x_train[rows], labels[rows])
    except (CelError, ValueError, TypeError) as problem:
        raise UnsupportedError(f"{who} cannot be retrained: {_first_line(problem)}") from problem


def _first_line(problem: Exception) -> str:
    return str(problem).split("\n", 1)[0]


def _rows(mode: str, n: int, random: np.random.Generator) -> np.ndarray:
    if mode == "bootstrap":
        return random.integers(n, size=n)
    if mode == "leave_out":
        return np.sort(random.permutation(n)[: n - max(1, round(n / 10))])
    return np.arange(n)


def _outcome(ev: Evaluation, model: Any, x: np.ndarray) -> np.ndarray:
    """Predictions as positions, also when a bootstrap sample lost a class."""
    predicted = ev.predict(x, model)
    if ev.task is Task.REGRESSION:
        return predicted
    classes = np.asarray(getattr(model, "classes_", np.arange(predicted.max() + 1)))
    return np.asarray(classes[predicted])


def _robustness(
    ev: Evaluation, mode: str, n_models: int, seed: int, condition: bool
) -> np.ndarray:
    """Share of retrained models for which each counterfactual keeps its outcome."""
    kept, counts = np.zeros(len(ev)), np.zeros(len(ev))
    origin = ev.result.y_origs[ev.positions]
    for model in retrained_models(ev, mode, n_models, seed):
        valid = ev.achieved(_outcome(ev, model, ev.cf), ev.target)
        same = np.ones(len(ev), dtype=bool)
        if condition:
            same = ev.achieved(_outcome(ev, model, ev.x), origin)
        kept += valid & same
        counts += same
    return np.where(counts > 0, kept / np.maximum(counts, 1), np.nan)


def _one_mode(mode: str) -> None:
    def robust(
        ev: Evaluation, n_models: int = 5, seed: int = 0, condition: bool = False
    ) -> np.ndarray:
        return _robustness(ev, mode, n_models, seed, condition)

    robust.__qualname__ = f"retraining_{mode}"
    metric(
        f"retraining_{mode}",
        better="higher",
        unit="share",
        rows="found",
        undefined="no retrained model keeps the outcome of the original row",
        needs={"model", "train"},
        meaning=f"How often the answer still holds for a model trained again on {MODES[mode]}.",
        formula="mean over retrained models f' of 1[f'(x') = target]; with condition=true only "
        "over models with f'(x) = f(x)",
        reference="Upadhyay, Joshi and Lakkaraju (ROAR), 2021; Jiang et al. (RobustX), 2025",
    )(robust)


for _mode in MODES:
    _one_mode(_mode)
