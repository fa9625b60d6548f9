"""The best linear autoencoder of the training rows, in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LinearAutoencoder"]


class LinearAutoencoder:
    """Project rows onto their leading principal directions and back.

    Among linear autoencoders of a given width this one has the least squared error (Baldi and
    Hornik, 1989), and it needs no training, so answers do not depend on a seed.

    Args:
        x: (m, d) rows.
        share: share of the variance to keep.

    >>> rows = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    >>> LinearAutoencoder(rows)(torch.tensor([[2.0, 0.0]]))
    tensor([[1., 1.]])
    """

    def __init__(self, x: Tensor, share: float = 0.9) -> None:
        wide = x.double()
        self.mean = wide.mean(0)
        values, vectors = torch.linalg.eigh((wide - self.mean).T @ (wide - self.mean))
        kept = values.flip(0).clamp(min=0).cumsum(0)
        width = int((kept < share * kept[-1]).sum()) + 1
        self.directions = vectors.flip(1)[:, :width]  # (d, width)

    def encode(self, x: Tensor) -> Tensor:
        """Return the codes (n, width) of rows (n, d)."""
        codes: Tensor = (x - self.mean.to(x)) @ self.directions.to(x)
        return codes

    def __call__(self, x: Tensor) -> Tensor:
        """Return the reconstructions of rows (n, d)."""
        rebuilt: Tensor = self.mean.to(x) + self.encode(x) @ self.directions.to(x).T
        return rebuilt
