"""Where a class is dense: the components of a Gaussian mixture, cut off at a density."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cel.solvers.ellipsoid import Ellipsoids

__all__ = ["ClassDensity", "RadiusRule", "fit_density"]

RadiusRule = Literal["paper", "reference"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassDensity:
    """A Gaussian mixture and the ellipsoids in which its largest component exceeds exp(threshold).

    Attributes:
        ellipsoids: one per component; a squared radius <= 0 means that it is nowhere dense enough.
        constant: (m,) c_j = -2 log pi_j + d log 2 pi + log det Sigma_j.
        threshold: log-density.
    """

    ellipsoids: Ellipsoids
    constant: Tensor
    threshold: float

    def log_density(self, x: Tensor) -> Tensor:
        """Return max_j log pi_j N(x | mu_j, Sigma_j) of shape (n,)."""
        return -0.5 * (self.ellipsoids.mahalanobis(x) + self.constant).amin(1)


def fit_density(
    x: np.ndarray,
    *,
    sizes: tuple[int, ...],
    criterion: Literal["bic", "cv"],
    regularisation: float,
    quantile: float,
    threshold: float | None,
    rule: RadiusRule,
    seed: int,
) -> ClassDensity:
    """Fit the mixture of one class to rows (n, d) and cut it off.

    With rule "paper", r_j = delta' - c_j for delta' = -2 log delta; with "reference" the r_j of
    the authors' programs: the largest Mahalanobis distance of the rows whose component density is
    *below* delta, which hardly constrains anything.
    """
    weights, means, covariances = _mixture(x, sizes, criterion, regularisation, seed)
    _, log_det = np.linalg.slogdet(covariances)
    constant = torch.as_tensor(
        -2 * np.log(np.clip(weights, 1e-300, None)) + x.shape[1] * math.log(2 * math.pi) + log_det
    )
    ball = Ellipsoids.of(
        torch.as_tensor(means), torch.as_tensor(covariances), torch.ones(len(means))
    )
    loss = ball.mahalanobis(torch.as_tensor(x)) + constant  # (n, m): -2 log density
    if threshold is None:
        threshold = float(np.quantile(-0.5 * loss.amin(1).numpy(), quantile))
    cut = -2 * threshold
    radius = cut - constant
    if rule == "reference":
        beyond = torch.where(loss >= cut, loss - constant, torch.full_like(loss, -1.0))
        radius = beyond.amax(0)
    # One training row is its own mean: its ellipsoid is that point, not nothing.
    radius = torch.where(radius.abs() < 1e-9, torch.full_like(radius, 1e-9), radius)
    ellipsoids = Ellipsoids(ball.mean, ball.vectors, ball.precision, radius)
    return ClassDensity(ellipsoids=ellipsoids, constant=constant, threshold=threshold)


def _mixture(
    x: np.ndarray, sizes: tuple[int, ...], criterion: str, regularisation: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (weights (m,), means (m, d), covariances (m, d, d)) of the best mixture."""
    n, d = x.shape
    if n < 2:
        return np.ones(1), x[:1], regularisation * np.eye(d)[None]
    fitting = sorted({min(s, max(1, n // 2)) for s in sizes})
    few = x if n <= _FOR_CHOICE else x[np.linspace(0, n - 1, _FOR_CHOICE).astype(int)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an EM run cut short is a usable mixture
        scores = [_score(few, s, criterion, regularisation, seed) for s in fitting]
        best = fitting[int(np.argmin(scores))]
        model = _gaussians(best, regularisation, seed).fit(x)
    return model.weights_, model.means_, model.covariances_


_FOR_CHOICE = 2000  # rows used to choose the number of components


def _gaussians(size: int, regularisation: float, seed: int) -> Any:
    from sklearn.mixture import GaussianMixture

    return GaussianMixture(size, reg_covar=regularisation, random_state=seed, max_iter=100)


def _score(x: np.ndarray, size: int, criterion: str, regularisation: float, seed: int) -> float:
    """Return what the best size makes smallest."""
    if criterion == "bic":
        return float(_gaussians(size, regularisation, seed).fit(x).bic(x))
    order = np.random.default_rng(seed).permutation(len(x))
    losses = []
    for held_out in np.array_split(order, min(5, len(x))):
        rest = np.setdiff1d(order, held_out)
        if len(rest) < max(2, size):
            return math.inf
        losses.append(-_gaussians(size, regularisation, seed).fit(x[rest]).score(x[held_out]))
    return float(np.mean(losses))
