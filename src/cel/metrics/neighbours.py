"""What the training rows around a counterfactual say about it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.errors import ConfigError
from cel.metrics._gower import gower_matrix
from cel.metrics.base import metric
from cel.metrics.evaluation import chunks
from cel.protocols import Task

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["connectedness", "discriminative_power", "nn_distance", "ynn"]

TIE = 1e-6  # squared distances closer than this are equal


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{name} must be at least 1, got {value}")


def _index(x: np.ndarray) -> Any:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors().fit(x)


def _of_class(ev: Evaluation, position: int) -> np.ndarray:
    return np.asarray(ev.x_train[ev.y_train == position])


@metric(
    "ynn",
    better="higher",
    unit="share",
    rows="found",
    needs={"train"},
    meaning="How many of the nearest training rows already have the wanted outcome.",
    formula="mean over the k nearest training rows z of x' of 1[f(z) = target]",
    reference="Pawelczyk et al. (CARLA), 2021",
)
def ynn(ev: Evaluation, k: int = 5) -> np.ndarray:
    """Share of the k nearest training rows with the target outcome."""
    _at_least_one("k", k)
    index = ev.shared("neighbours", lambda: _index(ev.x_train))
    near = index.kneighbors(
        ev.cf.astype(ev.x_train.dtype), min(k, len(ev.x_train)), return_distance=False
    )
    wanted = ev.target[:, None]
    return np.asarray(ev.achieved(ev.y_train[near], wanted).mean(1))


@metric(
    "nn_distance",
    undefined="no training row has the target outcome",
    better="lower",
    unit="share",
    rows="found",
    needs={"train"},
    meaning="How far the nearest real row with the wanted outcome is from the answer.",
    formula="min over training rows z with f(z) = target of gower(x', z)",
    reference="Guidotti, 2022",
)
def nn_distance(ev: Evaluation) -> np.ndarray:
    """Gower's distance to the nearest training row of the target outcome."""
    cf, target = ev.cf, ev.target
    out = [
        _nearest(ev, cf[part], target[part])
        for part in chunks(len(ev), len(ev.x_train) * 4)  # several such matrices live at once
    ]
    return np.concatenate(out)


def _nearest(ev: Evaluation, cf: np.ndarray, target: np.ndarray) -> np.ndarray:
    apart = gower_matrix(cf, ev.x_train, ev.space)
    apart[~ev.achieved(ev.y_train[None], target[:, None])] = np.inf
    best = apart.min(1)
    return np.where(np.isinf(best), np.nan, best)


@metric(
    "connectedness",
    undefined="the target class has no more than k training rows",
    better="higher",
    unit="share",
    rows="found",
    needs={"train"},
    tasks={Task.CLASSIFICATION},
    meaning="How many answers hang together with a crowd of real rows of the wanted outcome.",
    formula="share within eps of a core row: a training row of the target class with at least k "
    "others of that class within eps; eps = the quantile of the k-th neighbour distances",
    reference="Laugel et al., 2019; Ester et al. (DBSCAN), 1996",
)
def connectedness(ev: Evaluation, k: int = 5, quantile: float = 0.95) -> np.ndarray:
    """1 where a counterfactual would join a cluster of its target class."""
    _at_least_one("k", k)
    out = np.full(len(ev), np.nan)
    for wanted in np.unique(ev.target):
        members = _of_class(ev, wanted)
        if len(members) <= k:
            continue
        eps, index = ev.shared(
            "connected_rows",
            partial(_core_rows, members, k, quantile),
            (k, quantile, int(wanted)),
            model=True,
        )
        rows = ev.target == wanted
        apart, _ = index.kneighbors(ev.cf[rows].astype(members.dtype), 1)
        out[rows] = apart[:, 0] <= eps
    return out


def _core_rows(x: np.ndarray, k: int, quantile: float) -> tuple[float, Any]:
    apart = _index(x).kneighbors(n_neighbors=k)[0][:, -1]
    eps = float(np.quantile(apart, quantile))
    return eps, _index(x[apart <= eps])


@metric(
    "discriminative_power",
    undefined="no training row has either class",
    better="higher",
    unit="share",
    rows="found",
    needs={"train"},
    tasks={Task.CLASSIFICATION},
    meaning="How well the row and its answer alone tell the two outcomes apart nearby.",
    formula="accuracy of 1-NN on {x, x'} over the k training rows of either class that are "
    "nearest to x; a tie counts one half",
    reference="Mothilal, Sharma and Tan, 2020; Guidotti, 2022",
)
def discriminative_power(ev: Evaluation, k: int = 10) -> np.ndarray:
    """Accuracy of the nearest of {x, x'} on local rows of both classes."""
    _at_least_one("k", k)
    origin = ev.result.y_origs[ev.positions]
    right = np.zeros(len(ev))
    total = np.zeros(len(ev))
    for position in np.unique(np.concatenate([origin, ev.target])):
        members = _of_class(ev, position)
        if not len(members):
            continue
        index = ev.shared(
            "class_neighbours", partial(_index, members), (int(position),), model=True
        )
        for wanted in (False, True):
            rows = np.flatnonzero((ev.target if wanted else origin) == position)
            right[rows] += _hits(ev.x[rows], ev.cf[rows], index, members, k, wanted)
            total[rows] += min(k, len(members))
    return np.where(total > 0, right / np.maximum(total, 1), np.nan)


def _hits(
    x: np.ndarray, cf: np.ndarray, index: Any, members: np.ndarray, k: int, wanted: bool
) -> np.ndarray:
    """Count local rows of one class that are nearer to their own side."""
    if not len(x):
        return np.zeros(0)
    size = min(k, len(members))
    near = index.kneighbors(x.astype(members.dtype), size, return_distance=False)
    out = np.zeros(len(x))
    for part in chunks(len(x), size * x.shape[1]):
        around = members[near[part]].astype(np.float64)
        home = np.square(around - x[part, None]).sum(-1)
        away = np.square(around - cf[part, None]).sum(-1)
        lead = home - away if wanted else away - home
        out[part] = np.where(np.abs(lead) <= TIE, 0.5, lead > 0).sum(1)
    return out
