"""A normalising flow: standardise, transform, score; one module for all flows of the package."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cel.models.generative.flows.affine_chain import affine_chain
from cel.models.generative.flows.bijections import Affine, Bijection
from cel.models.generative.flows.flow_by_hand import FlowByHand
from cel.models.generative.flows.masked import MATRIX, MaskedNet
from cel.models.generative.flows.tails import draw_latent, log_latent

__all__ = ["Flow", "spread"]

SMALLEST_SCALE = 1e-3  # a constant column is not stretched without limit


def spread(x: Tensor) -> Tensor:
    """Return the standard deviation of each column, (1, d); constant columns get a small one."""
    return x.std(0, unbiased=False, keepdim=True).clamp(min=SMALLEST_SCALE)


class Flow(nn.Module):
    """log p(x | c) = log q(z) + sum log |dz/dx| with z = T_t(...T_1((x - m) / s)).

    Every transform applies a bijection to each column, with parameters that a masked network
    computes from the columns of lower rank and from the context. With ranks 1..d that is an
    autoregressive flow, with two ranks a coupling flow. The inverse repeats "compute parameters,
    invert" as often as there are ranks that move.

    Args:
        degrees: (t, d) ranks of the columns in each transform.
        bijection: map of one number.
        n_context: columns of the context, 0 for none.
        hidden: width of hidden layers.
        n_hidden: hidden layers per transform.
        coupling: whether columns of rank 1 stay as they are.
        diagonal: whether a learned scale per column follows the transforms.
        noise: standard deviation of the normal noise added to training rows (smoothing).
        tail: share of heavy tails in the latent law.
    """

    stackable = True
    loc: Tensor
    scale: Tensor
    context_loc: Tensor
    context_scale: Tensor
    moving: Tensor | None

    def __init__(
        self,
        degrees: Tensor,
        bijection: Bijection,
        *,
        n_context: int = 0,
        hidden: int = 16,
        n_hidden: int = 4,
        coupling: bool = False,
        diagonal: bool = False,
        noise: float = 0.0,
        tail: float = 1e-3,
    ) -> None:
        super().__init__()
        self.bijection, self.noise, self.tail = bijection, noise, tail
        self.net = MaskedNet(
            degrees,
            n_context=n_context,
            n_params=bijection.n_params,
            hidden=hidden,
            n_hidden=n_hidden,
        )
        self.n_features = degrees.shape[1]
        self.passes = 1 if coupling else self.n_features
        self.order = None if coupling else degrees.argsort(1).tolist()  # ranks 1..d, a transform
        moving = (degrees == 2)[:, None, None, :] if coupling else None
        self.register_buffer("moving", None if moving is None else moving.float())
        self.register_buffer("loc", torch.zeros(1, self.n_features))
        self.register_buffer("scale", torch.ones(1, self.n_features))
        self.register_buffer("context_loc", torch.zeros(1, n_context))
        self.register_buffer("context_scale", torch.ones(1, n_context))
        self.log_scale = nn.Parameter(torch.zeros(1, self.n_features)) if diagonal else None

    @torch.no_grad()
    def standardise(self, x: Tensor, context: Tensor | None = None) -> None:
        """Take the mean and spread of the training rows (n, d), noise included.

        A `context` (n, c) of values is standardised as well; one-hot classes are left out here.
        """
        self.loc.copy_(x.mean(0, keepdim=True))
        self.scale.copy_((spread(x).square() + self.noise**2).sqrt())
        if context is not None:
            self.context_loc.copy_(context.mean(0, keepdim=True))
            self.context_scale.copy_(spread(context))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p(x | context) of shape (..., n) for rows (..., n, d)."""
        if self.training and self.noise:
            x = x + self.noise * torch.randn_like(x)
        z, slopes = self.transform(x, context)
        return log_latent(z, self.tail) + slopes

    def transform(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the latent numbers (..., n, d) and log |det dz/dx| (..., n)."""
        z = (x - self.loc) / self.scale
        slopes = -self.scale.log().expand_as(z)
        context = self.standard_context(context)
        if isinstance(self.bijection, Affine) and self._chained(x, context):
            z, slopes = affine_chain(self.net, self.bijection.limit, z, slopes, context)
            return z, slopes.sum(-1)
        step = self.bijection.fused if self.training else self.bijection.forward
        for t, weights in enumerate(self.net.weights()):
            z, slope = step(z, self._params(z, context, weights, t))
            slopes = slopes + slope
        if self.log_scale is not None:
            log_scale = 3 * torch.tanh(self.log_scale / 3)
            z, slopes = z * log_scale.exp(), slopes + log_scale
        return z, slopes.sum(-1)

    @torch.no_grad()
    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the rows (n, d) whose latent numbers are `z`."""
        if self.log_scale is not None:
            z = z * (-3 * torch.tanh(self.log_scale / 3)).exp()
        context = self.standard_context(context)
        for t, weights in reversed(list(enumerate(self.net.weights()))):
            x = z
            for _ in range(self.passes):
                x = self.bijection.inverse(z, self._params(x, context, weights, t))
            z = x
        return z * self.scale + self.loc

    def sample(self, n: int, context: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draw (n, d) rows."""
        z = draw_latent((n, self.n_features), self.tail, generator).to(self.loc)
        return self.inverse(z, context)

    def by_hand(self) -> FlowByHand | None:
        """Return steps without a graph, or None where they do not serve."""
        return FlowByHand(self) if type(self) is Flow and FlowByHand.serves(self) else None

    def standard_context(self, context: Tensor | None) -> Tensor | None:
        """Return the context (..., n, c) in units of the training rows."""
        return None if context is None else (context - self.context_loc) / self.context_scale

    def _chained(self, x: Tensor, context: Tensor | None) -> bool:
        """Tell whether the transforms can be one node: training of one model on a CPU."""
        alone = x.dim() == MATRIX and x.device.type == "cpu" and self.training
        given = x.requires_grad or (context is not None and context.requires_grad)
        return alone and not given and self.moving is None and self.log_scale is None

    def _params(
        self, x: Tensor, context: Tensor | None, weights: tuple[Tensor, ...], t: int
    ) -> Tensor:
        params: Tensor = self.net(x, context, weights)
        return params if self.moving is None else params * self.moving[t]
