"""The maps of a flow's transforms and their gradients without a graph.

Gradients that come in and go out are those of the mean of log p; what is left for the network in
`by_out` is the gradient of the loss, which has the other sign.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cel.models.generative.flows.bijections import Affine, Spline
from cel.models.generative.flows.fused_spline import Curve
from cel.models.generative.flows.masked_by_hand import Workspace

__all__ = ["AffineByHand", "SplineByHand"]


class AffineByHand:
    """z = (x - m) exp(-a), see `Affine`.

    Args:
        bijection: the map.
        space: where the networks of the transforms write.
        shape: of the rows, (n, d).
        count: number of transforms that are kept; with one, each overwrites the one before.
    """

    def __init__(
        self, bijection: Affine, space: Workspace, shape: tuple[int, int], count: int
    ) -> None:
        d = shape[1]
        self.limit, self.share = bijection.limit, float(torch.ones(()) / shape[0])
        self.shift, self.raw = space.out[:, :d], space.out[:, d:]
        self.to_shift, self.to_raw = space.by_out[:, :d], space.by_out[:, d:]
        self.kept = [(torch.empty(shape), torch.empty(shape)) for _ in range(count)]
        self.slopes, self.by_raw = torch.empty(shape), torch.empty(shape)

    def forward(self, t: int, z: Tensor, slopes: Tensor, out: Tensor) -> Tensor:
        """Write the image of `z` to `out` and return the sum of slopes."""
        soft, shrink = self.kept[t % len(self.kept)]
        # Negative: one division by it gives the log-slope, two of them leave no sign.
        torch.abs(self.raw, out=soft).div_(-self.limit).sub_(1)
        torch.div(self.raw, soft, out=shrink)
        torch.add(slopes, shrink, out=self.slopes)
        torch.sub(z, self.shift, out=out).mul_(shrink.exp_())
        return self.slopes

    def backward(self, t: int, by: Tensor, out: Tensor) -> Tensor:
        """Fill the gradient of shifts and scales, return that of `z`."""
        soft, shrink = self.kept[t]
        torch.mul(by, out, out=self.by_raw).add_(self.share).div_(soft)
        torch.div(self.by_raw, soft, out=self.to_raw)
        return torch.mul(by, shrink, out=self.to_shift)


class SplineByHand:
    """A monotone spline, see `Spline`; arguments as for `AffineByHand`."""

    def __init__(
        self, bijection: Spline, space: Workspace, shape: tuple[int, int], count: int
    ) -> None:
        n, d = shape
        self.bound = bijection.bound
        parts = (bijection.n_params, d)
        self.params, self.to_params = (t.view(n, *parts) for t in (space.out, space.by_out))
        self.by_slope = torch.full(shape, float(-torch.ones(()) / n))
        self.count, self.curves = count, dict[int, Curve]()

    def forward(self, t: int, z: Tensor, slopes: Tensor, out: Tensor) -> Tensor:
        """Write the image of `z` to `out` and return the sum of slopes."""
        self.curves[t % self.count] = curve = Curve(z, self.params, self.bound)
        out.copy_(curve.y)
        return slopes + curve.slope

    def backward(self, t: int, by: Tensor, out: Tensor) -> Tensor:
        """Fill the gradient of the free numbers, return that of `z`."""
        curve, to_params = self.curves[t], self.to_params
        by_x = curve.backward(by.neg(), self.by_slope, to_params, wanted=t > 0)
        return by.zero_() if by_x is None else by_x.neg_()
