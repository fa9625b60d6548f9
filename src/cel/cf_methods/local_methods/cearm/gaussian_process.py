"""One Gaussian process for all rows: shared kernel, shared data, local conditioning."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cel.errors import MissingDependencyError
from cel.space import FeatureSpace

__all__ = ["Process", "spread_out"]

NOISE = 1e-5  # of the variance of the outputs; models are noiseless
_FIT_ITERATIONS = 60
_SURE = 1e-12  # smallest variance
_ROUNDING = 1e-4  # of squared lengths; what products in single precision miss is far less


def spread_out(x: Tensor, size: int) -> Tensor:
    """Return positions of `size` rows that cover `x` (n, d): farthest point first (k-centre).

    >>> spread_out(torch.tensor([[0.0], [0.1], [1.0]]), 2)
    tensor([0, 2])
    """
    if len(x) <= size:
        return torch.arange(len(x), device=x.device)
    chosen = [0]
    distance, length = (x - x[0]).norm(dim=1), x.square().sum(1)
    while len(chosen) < size:
        farthest = int(distance.argmax())
        chosen.append(farthest)
        # Squared distances up to rounding, by one product: few rows are nearer to the new one.
        room = length + length[farthest]
        square = torch.addmv(room, x, x[farthest], alpha=-2)
        at = (square < distance.square() + _ROUNDING * room).nonzero()[:, 0]
        distance[at] = torch.minimum(distance[at], (x[at] - x[farthest]).norm(dim=1))
    return torch.tensor(chosen, device=x.device)


@dataclass(frozen=True, kw_only=True, eq=False)
class Process:
    """A Gaussian process with a Matern 5/2 kernel over rows, one mean per output, float64.

    The outputs share the kernel, hence the posterior variance up to their scale, and one Cholesky
    factor serves them all.

    Attributes:
        x: (n, d) rows evaluated so far.
        y: (n, m) outputs.
        length: (d,) length scales.
        variance: prior variance of the standardised outputs.
        centre: (m,) and
        scale: (m,), the standardisation of the outputs.
        anchored: how many of the first data are never dropped.
    """

    x: Tensor
    y: Tensor
    length: Tensor
    variance: float
    centre: Tensor
    scale: Tensor
    anchored: int = 0

    @classmethod
    def fit(cls, x: Tensor, y: Tensor, space: FeatureSpace, *, fit_rows: int) -> Process:
        """Learn the kernel by maximum likelihood from `fit_rows` rows, spread out over `x`."""
        x, y = x.to(torch.float64), y.to(torch.float64)
        spread = y.std(0, unbiased=False)
        scale = torch.where(spread > 1e-9, spread, torch.ones_like(spread))
        centre = y.mean(0)
        some = spread_out(x, fit_rows)
        target = (y[some] - centre) / scale
        if y.shape[1] > 1:  # the main direction of the outputs stands for all of them
            target = target @ torch.linalg.eigh(target.T @ target)[1][:, -1:]
            target = target / target.std(unbiased=False).clamp(min=1e-9)
        width = torch.as_tensor(space.vector("upper") - space.vector("lower")).to(x)
        width = torch.where((width > 1e-9) & width.isfinite(), width, torch.ones_like(width))
        length, variance = _kernel(x[some] / width, target)
        scaling = {"centre": centre, "scale": scale, "length": length * width}
        return cls(x=x, y=y, variance=variance, anchored=len(x), **scaling)

    def extended(self, x: Tensor, y: Tensor, limit: int) -> Process:
        """Return the process with more data; the oldest go first, but never the training rows."""
        every = torch.cat([self.x, x.to(self.x)]), torch.cat([self.y, y.to(self.y)])
        excess = max(0, len(every[0]) - self.anchored - limit)
        a, b = ((t[: self.anchored], t[self.anchored + excess :]) for t in every)
        return replace(self, x=torch.cat(a), y=torch.cat(b))

    def near(self, x: Tensor, k: int) -> Tensor:
        """Return positions (a, k) of the k data that say most about points (a, d)."""
        a, b = ((t / self.length).float() for t in (x.to(self.x), self.x))
        return torch.cdist(a, b).topk(min(k, len(b)), dim=1, largest=False).indices

    def condition(self, near: Tensor) -> Posterior:
        """Condition on the data (a, k) of each of a rows."""
        x = self.x[near] / self.length  # (a, k, d)
        y = (self.y[near] - self.centre) / self.scale
        gram = self._matern(_squares(x, x))[0]
        eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        factor = torch.linalg.cholesky(gram + NOISE * eye)
        root = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
        return Posterior(self, x, root, root.mT @ (root @ y))

    def _matern(self, square: Tensor) -> tuple[Tensor, Tensor]:
        """Return (kernel, its derivative) as functions of squared distances."""
        r = (5 * square).clamp(min=1e-12).sqrt()
        decay = torch.exp(-r).mul_(self.variance)
        near = (1 + r).mul_(decay)  # of the derivative; the kernel has one term more
        return r.square_().mul_(decay).div_(3).add_(near), near.mul_(-5 / 6)


def _squares(a: Tensor, b: Tensor, known: Tensor | None = None) -> Tensor:
    """Return squared distances (..., m, n) of points (..., m, d) and (..., n, d).

    `known` are the squared lengths (..., n) of b, where they are needed more than once.
    """
    size = b.square().sum(-1) if known is None else known
    ends = a.square().sum(-1, keepdim=True) + size[..., None, :]
    return ends.sub_(2 * a @ b.mT)


@dataclass(frozen=True, eq=False)
class Posterior:
    """The process of each of a rows, conditioned on that row's data."""

    process: Process
    x: Tensor  # (a, k, d) scaled data
    root: Tensor  # (a, k, k) inverse of the Cholesky factor
    weights: Tensor  # (a, k, m)

    @cached_property
    def size(self) -> Tensor:
        """(a, k) squared lengths of the data."""
        return self.x.square().sum(-1)

    def single(self) -> Posterior:
        """Return the same in single precision: good enough for directions, twice as fast."""
        p = self.process
        light = replace(p, x=p.x[:0].float(), length=p.length.float())
        return Posterior(light, self.x.float(), self.root.float(), self.weights.float())

    def __call__(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return (means (a, c, m), standard deviations (a, c, m)) at points (a, c, d)."""
        p = self.process
        mean, variance = _Moments.apply(points.to(p.x) / p.length, self)  # type: ignore[no-untyped-call]
        return p.centre + mean * p.scale, variance.sqrt()[..., None] * p.scale


class _Moments(torch.autograd.Function):
    """Mean and variance at scaled points; their gradients are known in closed form."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, posterior: Posterior) -> tuple[Tensor, Tensor]:
        p = posterior.process
        cross, slope = p._matern(_squares(points, posterior.x, posterior.size))  # (a, c, k)
        half = cross @ posterior.root.mT
        variance = p.variance - half.square().sum(-1)
        ctx.posterior = posterior
        ctx.save_for_backward(points, half, slope, variance)
        return cross @ posterior.weights, variance.clamp(min=_SURE)

    @staticmethod
    def backward(ctx: Any, mean: Tensor, variance: Tensor) -> tuple[Tensor, None]:
        points, half, slope, now = ctx.saved_tensors
        posterior: Posterior = ctx.posterior
        variance = torch.where(now > _SURE, variance, torch.zeros_like(variance))
        pull = mean @ posterior.weights.mT  # d / d kernel
        pull -= 2 * variance[..., None] * (half @ posterior.root)
        pull *= slope  # d / d squared distance
        way = pull.sum(-1, keepdim=True) * points - pull @ posterior.x
        return 2 * way, None


def _kernel(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """Return (length scales (d,), variance) that maximise the marginal likelihood."""
    if importlib.util.find_spec("botorch") is None:
        raise MissingDependencyError("botorch", "bayes")
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from gpytorch.mlls import ExactMarginalLogLikelihood
    from gpytorch.priors import LogNormalPrior

    d = x.shape[1]
    if len(x) < 3 or float(y.abs().max()) < 1e-9:
        return torch.full((d,), 0.5 * d**0.5, dtype=x.dtype, device=x.device), 1.0
    prior = LogNormalPrior(0.5 * torch.tensor(float(d)).log().item(), 1.0)
    start = torch.full((1, d), 0.5 * d**0.5, dtype=x.dtype)
    matern = MaternKernel(nu=2.5, ard_num_dims=d, lengthscale_prior=prior)
    kernel = ScaleKernel(matern).to(x)
    kernel.base_kernel.lengthscale = start.to(x)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.enable_grad():
        warnings.simplefilter("ignore")  # a fit cut short is a usable kernel
        torch.manual_seed(0)  # a fit that fails is tried again from a random start
        model = SingleTaskGP(
            x, y, torch.full_like(y, NOISE), covar_module=kernel, outcome_transform=None
        )
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": _FIT_ITERATIONS}})
    length: Tensor = kernel.base_kernel.lengthscale.detach()[0]
    return length, float(kernel.outputscale.detach())
