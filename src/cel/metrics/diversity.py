"""How different the alternatives are that one person gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from cel.metrics.base import metric
from cel.metrics.evaluation import chunks
from cel.space import FeatureSpace
from cel.space.distances import changed_features, gower

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["diversity_count", "diversity_dpp", "diversity_pairwise", "set_size"]

Distance = Callable[[np.ndarray, np.ndarray, FeatureSpace], np.ndarray]


def _sets(ev: Evaluation) -> np.ndarray:
    """(s, k, d) alternatives of the selected rows."""
    assert ev.result.x_sets is not None
    return np.asarray(ev.result.x_sets[ev.positions])


def _pairs(ev: Evaluation, distance: Distance) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return first members, second members (q,) and distances (s, q), NaN for padding."""
    sets = _sets(ev)
    first, second = np.triu_indices(sets.shape[1], k=1)
    out = np.full((len(sets), len(first)), np.nan)
    for part in chunks(len(sets), max(len(first), 1) * sets.shape[2]):
        a = sets[part][:, first].reshape(-1, sets.shape[2])
        b = sets[part][:, second].reshape(-1, sets.shape[2])
        there = ~(np.isnan(a).any(1) | np.isnan(b).any(1))
        flat = np.full(len(a), np.nan)
        flat[there] = distance(a[there], b[there], ev.space)
        out[part] = flat.reshape(-1, len(first))
    return first, second, out


def _mean_of_pairs(ev: Evaluation, distance: Distance) -> np.ndarray:
    apart = _pairs(ev, distance)[2]
    number = (~np.isnan(apart)).sum(1)
    return np.asarray(np.nansum(apart, 1) / np.maximum(number, 1))


@metric(
    "set_size",
    better="higher",
    unit="counterfactuals",
    rows="found",
    needs={"sets"},
    meaning="How many verified alternatives a person can choose from.",
    formula="number of counterfactuals in the set of the row",
)
def set_size(ev: Evaluation) -> np.ndarray:
    """Number of alternatives of each row."""
    return np.asarray((~np.isnan(_sets(ev)).any(-1)).sum(1), dtype=np.float64)


@metric(
    "diversity_pairwise",
    better="higher",
    unit="share",
    rows="found",
    needs={"sets"},
    meaning="How far apart two alternatives of the same person are; 0 with a single one.",
    formula="mean over pairs of gower(x'_i, x'_j)",
    reference="Mothilal, Sharma and Tan, 2020",
)
def diversity_pairwise(ev: Evaluation) -> np.ndarray:
    """Mean Gower distance between the alternatives of each row."""
    return _mean_of_pairs(ev, gower)


def _differing_share(a: np.ndarray, b: np.ndarray, space: FeatureSpace) -> np.ndarray:
    return np.asarray(changed_features(a, b, space).mean(1))


@metric(
    "diversity_count",
    better="higher",
    unit="share",
    rows="found",
    needs={"sets"},
    meaning="In which part of the features two alternatives differ; 0 with a single one.",
    formula="mean over pairs of (number of features that differ) / p",
    reference="Mothilal, Sharma and Tan, 2020",
)
def diversity_count(ev: Evaluation) -> np.ndarray:
    """Mean share of differing features between the alternatives of each row."""
    return _mean_of_pairs(ev, _differing_share)


@metric(
    "diversity_dpp",
    better="higher",
    rows="found",
    needs={"sets"},
    meaning="How large the volume is that the alternatives span; 0 with a single one.",
    formula="det K with K_ij = 1 / (1 + gower(x'_i, x'_j))",
    reference="Mothilal, Sharma and Tan, 2020; Kulesza and Taskar, 2012",
)
def diversity_dpp(ev: Evaluation) -> np.ndarray:
    """Determinant of the kernel between the alternatives of each row."""
    first, second, apart = _pairs(ev, gower)
    size = _sets(ev).shape[1]
    kernel = np.tile(np.eye(size), (len(ev), 1, 1))
    alike = np.where(np.isnan(apart), 0.0, 1 / (1 + np.nan_to_num(apart)))
    kernel[:, first, second] = kernel[:, second, first] = alike
    volume = torch.linalg.det(torch.as_tensor(kernel)).clamp(min=0).numpy()
    return np.where((~np.isnan(apart)).any(1), volume, 0.0)
