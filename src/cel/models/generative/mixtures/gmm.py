"""Gaussian mixtures, per class or joint with a value."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from cel.errors import ConfigError
from cel.models.base import TrainOptions
from cel.models.generative.closed_form import ClosedFormDensity
from cel.models.generative.mixtures.mixture_net import MixtureNet
from cel.models.inputs import FitRows
from cel.parameters import check_positive, check_shares

__all__ = ["GMM"]

ROWS_PER_COMPONENT = 5
PATIENCE = 2


class GMM(ClosedFormDensity):
    """p(x | y) = sum_k w_k N(x; m_k, S_k) by expectation maximisation, one mixture per class.

    The number of components is the one with the smallest Bayesian information criterion. For
    values instead of classes, one mixture is fitted to (x, y) and p(x | y) = p(x, y) / p(y). All
    columns count as numbers; the floor on the variances keeps one-hot columns finite. A small
    share of a broad law keeps the log-density of far rows within reason.

    Args:
        n_components: number of components, or the largest one tried with `select`.
        select: "bic" tries 1, 2, 3, 4, 6, 8, ... up to `n_components`; "fixed" takes it as it is.
        covariance: "full" or "diag".
        floor: added to the diagonal of every covariance, in squared encoded units.
        n_init: starts of each fit.
        background: share of the broad law.
        options: `random_state` and `device`; nothing is trained by gradients.
    """

    name = "gmm"
    n_kept_: int

    def __init__(
        self,
        *,
        n_components: int = 8,
        select: Literal["bic", "fixed"] = "bic",
        covariance: Literal["full", "diag"] = "full",
        floor: float = 1e-3,
        n_init: int = 1,
        background: float = 1e-3,
        **options: Unpack[TrainOptions],
    ) -> None:
        super().__init__(**options)
        self.n_components, self.select, self.covariance = n_components, select, covariance
        self.floor, self.n_init, self.background = floor, n_init, background

    def _learn_target(self, rows: FitRows) -> None:
        super()._learn_target(rows)
        self.n_kept_ = self.n_components

    def _build(self, n_in: int, n_out: int) -> MixtureNet:
        self._check()
        return MixtureNet(
            n_groups=n_out if self._by_class else 1,
            n_components=self.n_kept_,
            n_in=n_in,
            n_values=0 if self._by_class else n_out,
            background=self.background,
        )

    def _settle(self, module: nn.Module, x: Tensor, context: Tensor | None) -> None:
        assert isinstance(module, MixtureNet)
        if context is not None and not self._by_class:
            x = torch.cat((x, context), 1)
        rows = x.double().cpu().numpy()
        classes = np.zeros(len(rows), dtype=np.int64)
        if context is not None and self._by_class:
            classes = context.argmax(1).cpu().numpy()
        for k in range(module.n_groups):
            own = rows[classes == k]
            module.set_mixture(k, *self._mixture(own if len(own) else rows))  # unseen class: all

    def _mixture(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights (k,), means (k, d) and covariances (k, d, d) of the best mixture."""
        most = max(min(self.n_components, len(rows) // ROWS_PER_COMPONENT), 1)
        best = self._fit_one(rows, most) if self.select == "fixed" else self._select(rows, most)
        cov = np.asarray(best.covariances_)
        if self.covariance == "diag":
            cov = np.stack([np.diag(c) for c in cov])
        parts = (np.array(a) for a in (best.weights_, best.means_, cov))
        weights, means, covariances = (torch.from_numpy(a) for a in parts)
        return weights, means, covariances

    def _select(self, rows: np.ndarray, most: int) -> Any:
        """Return the mixture with the smallest BIC; two larger ones in a row end the search."""
        scored: list[tuple[float, int, Any]] = []
        for size in _sizes(most):
            model = self._fit_one(rows, size)
            scored.append((float(model.bic(rows)), size, model))
            best = min(scored)
            if len(scored) - scored.index(best) > PATIENCE:
                break
        return best[2]

    def _fit_one(self, rows: np.ndarray, size: int) -> Any:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        if len(rows) == 1:
            rows = np.repeat(rows, 2, axis=0)
        model = GaussianMixture(
            size,
            covariance_type=self.covariance,
            reg_covar=self.floor,
            n_init=self.n_init,
            max_iter=200,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            # a mixture that still moves a little, or that has twin rows, serves as well
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(rows)

    def _check(self) -> None:
        positive = ("n_components", "floor", "n_init")
        check_positive(self, *positive)
        check_shares(self, ("background",))
        for name, known in (("select", ("bic", "fixed")), ("covariance", ("full", "diag"))):
            if getattr(self, name) not in known:
                raise ConfigError(f"unknown {name} {getattr(self, name)!r}; use one of {known}")

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"n_kept_": self.n_kept_}


def _sizes(most: int) -> list[int]:
    """Return 1, 2, 3, 4, 6, 8, 12, 16, ... up to `most`."""
    sizes = [1, 2, 3] + [f * 2**e for e in range(2, 12) for f in (1, 1.5)]
    return [int(s) for s in sizes if s <= most]
