"""The module of `GMM`: one Gaussian mixture per class."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cel.models.generative.background import draw_broad, log_broad, mix

__all__ = ["MixtureNet"]


class MixtureNet(nn.Module):
    """Mixtures over rows, or over rows joined with values; unused components weigh nothing.

    Args:
        n_groups: number g of mixtures.
        n_components: most components k of one mixture.
        n_in: columns d of a row.
        n_values: columns c of a value, 0 for none.
        background: share of the broad law.
    """

    def __init__(
        self, *, n_groups: int, n_components: int, n_in: int, n_values: int, background: float
    ) -> None:
        super().__init__()
        self.n_groups, self.n_in, self.background = n_groups, n_in, background
        size, width = (n_groups, n_components), n_in + n_values
        self.log_weights = _constant(torch.full(size, -math.inf))
        self.means = _constant(torch.zeros(*size, width))
        self.factors = _constant(torch.eye(width).expand(*size, -1, -1).clone())

    def set_mixture(self, k: int, weights: Tensor, means: Tensor, covariances: Tensor) -> None:
        """Set mixture `k`; `factors` are the Cholesky factors of its covariances."""
        count = len(weights)
        self.log_weights[k, :count] = weights.log().to(self.means)
        self.means[k, :count] = means.to(self.means)
        self.factors[k, :count] = torch.linalg.cholesky(covariances).to(self.means)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p(x | context), (n,)."""
        wide = x.double()
        if context is None:
            return self._of(0, wide).to(x.dtype)
        if self.means.shape[-1] > self.n_in:
            joint = torch.cat((wide, context.double()), 1)
            log_p = self._log_mixture(0, joint) - self._log_values(context.double()).logsumexp(1)
            return self._mixed(0, wide, log_p).to(x.dtype)
        out = wide.new_zeros(len(x))
        for k in range(self.n_groups):
            own = (context[:, k] > 0.5).nonzero()[:, 0]
            if len(own):
                out = out.index_copy(0, own, self._of(k, wide[own]))
        return out.to(x.dtype)

    @torch.no_grad()
    def sample(self, n: int, context: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draw (n, d) rows."""
        device = generator.device
        by_value = context is not None and self.means.shape[-1] > self.n_in
        group = torch.zeros(n, dtype=torch.long, device=device)
        if context is not None and not by_value:
            group = context.argmax(1)
        log_w = self._log_values(context.double()) if by_value and context is not None else None
        p = (self.log_weights[group].double() if log_w is None else log_w).softmax(1)
        part = torch.multinomial(p, 1, generator=generator)[:, 0]
        z = torch.randn((n, self.means.shape[-1]), generator=generator, device=device).double()
        mean, factor = self.means[group, part].double(), self.factors[group, part].double()
        if by_value and context is not None:
            x = self._given_values(mean, factor, context.double(), z)
        else:
            x = mean + (factor @ z[:, :, None])[:, :, 0]
        loc, scale = self._broad(group)
        broad = draw_broad(n, loc, scale, generator)
        heavy = torch.rand(n, generator=generator, device=device) < self.background
        return torch.where(heavy[:, None], broad, x[:, : self.n_in]).to(self.means.dtype)

    def _of(self, k: int, x: Tensor) -> Tensor:
        return self._mixed(k, x, self._log_mixture(k, x))

    def _mixed(self, k: int, x: Tensor, log_p: Tensor) -> Tensor:
        loc, scale = self._broad(torch.tensor([k], device=x.device))
        return mix(log_p, log_broad(x, loc, scale), self.background)

    def _broad(self, group: Tensor) -> tuple[Tensor, Tensor]:
        """Return the centre and spread (n, d) of the mixtures of some classes."""
        weight = self.log_weights[group].double().exp()[..., None]
        means, factors = self.means[group].double(), self.factors[group].double()
        variances = factors.square().sum(-1)
        loc = (weight * means).sum(-2)
        spread = (weight * (variances + (means - loc[..., None, :]).square())).sum(-2).sqrt()
        return loc[..., : self.n_in], spread[..., : self.n_in]

    def _log_mixture(self, k: int, rows: Tensor) -> Tensor:
        return _log_parts(rows, self.log_weights[k], self.means[k], self.factors[k]).logsumexp(1)

    def _log_values(self, values: Tensor) -> Tensor:
        """Return log w_k N(y; ...), (n, k): the marginals of the value columns."""
        cov = self.factors[0].double() @ self.factors[0].double().mT
        own = torch.linalg.cholesky(cov[:, self.n_in :, self.n_in :])
        return _log_parts(values, self.log_weights[0], self.means[0, :, self.n_in :], own)

    def _given_values(self, mean: Tensor, factor: Tensor, values: Tensor, z: Tensor) -> Tensor:
        """Draw joint rows and shift them so that the value columns are as asked (Matheron)."""
        joint = mean + (factor @ z[:, :, None])[:, :, 0]
        cov = factor @ factor.mT
        gap = values - joint[:, self.n_in :]
        inner: Tensor = torch.linalg.solve(cov[:, self.n_in :, self.n_in :], gap[:, :, None])
        return joint[:, : self.n_in] + (cov[:, : self.n_in, self.n_in :] @ inner)[:, :, 0]


def _log_parts(rows: Tensor, log_weights: Tensor, means: Tensor, factors: Tensor) -> Tensor:
    """Return log w_k N(row; m_k, L_k L_k'), (n, k)."""
    gap = rows[None] - means[:, None].double()  # (k, n, d)
    factors = factors.double()
    z: Tensor = torch.linalg.solve_triangular(factors, gap.mT, upper=False)
    log_det = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = 0.5 * rows.shape[1] * math.log(2 * math.pi)
    return (log_weights.double() - log_det - constant) - 0.5 * z.square().sum(-2).T


def _constant(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)
