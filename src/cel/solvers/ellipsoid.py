"""Exact Euclidean projection onto ellipsoids, for many points at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

from cel.search.memo import LastOf

__all__ = ["CLOSE", "Ellipsoids"]

_NEWTON = 60
CLOSE = 1e-13


@dataclass(frozen=True, eq=False)
class Ellipsoids:
    """The sets `{x : (x - mean_j)' precision_j (x - mean_j) <= radius_j}`, j = 1..m.

    Attributes:
        mean: (m, d) centres.
        vectors: (m, d, d) orthonormal axes, in columns.
        precision: (m, d) eigenvalues of the inverse covariances.
        radius: (m,) squared radii.

    >>> ball = Ellipsoids.of(torch.zeros(1, 2), torch.eye(2)[None], torch.ones(1))
    >>> x, _ = ball.project(torch.tensor([[3.0, 4.0]]).double(), torch.tensor([0]))
    >>> x
    tensor([[0.6000, 0.8000]], dtype=torch.float64)
    """

    mean: Tensor
    vectors: Tensor
    precision: Tensor
    radius: Tensor

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor, radius: Tensor) -> Ellipsoids:
        """Build from covariances (m, d, d), in float64."""
        values, vectors = torch.linalg.eigh(covariance.to(torch.float64))
        precision = 1 / values.clamp(min=1e-300)
        return cls(mean.to(torch.float64), vectors, precision, radius.to(torch.float64))

    @classmethod
    def join(cls, parts: Sequence[Ellipsoids], d: int) -> Ellipsoids:
        """Return the ellipsoids of all parts, of which there may be none, in d columns."""
        one = torch.zeros(0, d, dtype=torch.float64)
        none = cls(one, one[:, None].expand(0, d, d), one, one.sum(-1))
        names = [f.name for f in fields(cls)]
        return cls(*(torch.cat([getattr(e, n) for e in (none, *parts)]) for n in names))

    def __len__(self) -> int:
        return len(self.mean)

    def select(self, which: Tensor) -> Ellipsoids:
        """Return some of the ellipsoids, by positions or a mask."""
        return Ellipsoids(*(getattr(self, f.name)[which] for f in fields(self)))

    def to(self, device: torch.device) -> Ellipsoids:
        """Return the ellipsoids on a device."""
        return Ellipsoids(*(getattr(self, f.name).to(device) for f in fields(self)))

    def mahalanobis(self, x: Tensor) -> Tensor:
        """Return squared distances (n, m) of points (n, d) to all centres."""
        local = torch.einsum("nmd,mde->nme", x[:, None, :] - self.mean, self.vectors)
        return (local.square() * self.precision).sum(-1)

    def own_mahalanobis(self, x: Tensor, which: Tensor) -> Tensor:
        """Return squared distances (n,) of each point to the centre of its own ellipsoid."""
        local = self._turn(x - self.mean[which], which, back=False)
        return (local.square() * self.precision[which]).sum(-1)

    def support(self, v: Tensor, which: Tensor) -> Tensor:
        """Return max of v.x over each point's ellipsoid, shape (n,); v is (n, d)."""
        local = self._turn(v, which, back=False)
        width = (self.radius[which] * (local.square() / self.precision[which]).sum(-1)).sqrt()
        return (v * self.mean[which]).sum(-1) + width

    def project(
        self,
        v: Tensor,
        which: Tensor,
        start: Tensor | None = None,
        close: float = CLOSE,
    ) -> tuple[Tensor, Tensor]:
        """Return (projections (n, d), multipliers (n,)).

        With y in the axes of the ellipsoid and e its precisions, the projection is y / (1 + t e)
        for the t >= 0 at which `S(t) = sum e y^2 / (1 + t e)^2` equals the radius. Newton's method
        on 1 / sqrt(S), which is concave, climbs to t from any point on its left, and reaches the
        left side in one step from the right.

        Args:
            v: (n, d) points.
            which: (n,) ellipsoid of each point; sorted indices are faster.
            start: (n,) multipliers of a nearby projection.
            close: relative error of the radius at which points have arrived.
        """
        mean, e, r = self._own(which)
        y = self._turn(v - mean, which, back=False)
        ey2 = e * y.square()
        outside = ey2.sum(-1) > r
        t = torch.zeros_like(r) if start is None else start
        for _ in range(_NEWTON):
            scale = 1 / (1 + t[:, None] * e)
            terms = ey2 * scale.square()
            total = terms.sum(-1)
            slope = (terms * e * scale).sum(-1)
            gap = (total / r).sqrt() - 1
            if bool((~outside | (gap.abs() < close)).all()):
                break
            t = torch.where(outside, (t + total * gap / slope.clamp(min=1e-300)).clamp(min=0), t)
        t = torch.where(outside, t, torch.zeros_like(t))
        shrunk = y / (1 + t[:, None] * e)
        moved = mean + self._turn(shrunk, which, back=True)
        return torch.where(outside[:, None], moved, v), t

    @cached_property
    def _own(self) -> LastOf[tuple[Tensor, Tensor, Tensor]]:
        """(n,) ellipsoids -> their centres (n, d), precisions (n, d) and squared radii (n,)."""
        return LastOf(lambda which: (self.mean[which], self.precision[which], self.radius[which]))

    @cached_property
    def _parts(self) -> LastOf[list[tuple[int, slice | Tensor]]]:
        """(n,) ellipsoids -> (ellipsoid, its points) of every ellipsoid that has some."""
        return LastOf(self._divide)

    def _divide(self, which: Tensor) -> list[tuple[int, slice | Tensor]]:
        sizes = torch.bincount(which, minlength=len(self)).tolist()
        sorted_ = bool((which[1:] >= which[:-1]).all())
        order = None if sorted_ else which.argsort(stable=True)
        out: list[tuple[int, slice | Tensor]] = []
        begin = 0
        for j, size in enumerate(sizes):
            part = slice(begin, begin + size)
            if size:
                out.append((j, part if order is None else order[part]))
            begin += size
        return out

    def _turn(self, x: Tensor, which: Tensor, *, back: bool) -> Tensor:
        """Rotate points into the axes of their ellipsoids, or back."""
        out = torch.empty_like(x)
        for j, here in self._parts(which):
            axes = self.vectors[j]
            out[here] = x[here] @ (axes.T if back else axes)
        return out
