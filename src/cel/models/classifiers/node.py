"""Neural oblivious decision ensembles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from cel.errors import ConfigError
from cel.models.base import ClassifierPytorchMixin, PytorchBase, TrainOptions
from cel.models.classifiers.entmax import entmax15, entmoid15
from cel.models.training.schedule import PREDICTOR_PRESETS

__all__ = ["NODE"]

ROWS_FOR_INIT = 2000


class ObliviousTrees(nn.Module):
    """`T` differentiable trees of depth `D`, each with one soft test per level.

    A level picks a feature by 1.5-entmax, compares it with a threshold by entmoid, and the 2^D
    leaves weigh their responses: (n, d) to (n, T, C).
    """

    def __init__(self, n_in: int, trees: int, depth: int, channels: int) -> None:
        super().__init__()
        self.selector = nn.Parameter(torch.rand(n_in, trees * depth))
        self.threshold = nn.Parameter(torch.zeros(1, trees * depth))
        self.log_width = nn.Parameter(torch.zeros(1, trees * depth))
        self.response = nn.Parameter(torch.randn(trees, 2**depth, channels))
        self.trees, self.depth = trees, depth

    def features(self, x: Tensor) -> Tensor:
        """(n, T D) the soft choice of one feature per level."""
        return x @ entmax15(self.selector, dim=0)

    def leaf_weights(self, x: Tensor) -> Tensor:
        """(T, n, 2^D) share of each row that falls into each leaf; they sum to 1."""
        z = (self.features(x) - self.threshold) * torch.exp(-self.log_width)
        right = entmoid15(z).view(len(x), self.trees, self.depth).transpose(0, 1)
        weight = torch.ones_like(right[..., :1])
        for level in range(self.depth):
            r = right[..., level : level + 1]
            weight = torch.cat([weight * (1 - r), weight * r], -1)
        return weight

    def forward(self, x: Tensor) -> Tensor:
        """(n, d) to (n, T, C)."""
        return torch.bmm(self.leaf_weights(x), self.response).transpose(0, 1)

    @torch.no_grad()
    def fit_to(self, x: Tensor) -> None:
        """Put thresholds at random quantiles of the rows, wide enough to reach all of them."""
        h = self.features(x)
        share = torch.rand(1, h.shape[1]).to(h)
        place = (share * (len(h) - 1)).round().long()
        self.threshold.copy_(h.sort(0).values.gather(0, place))
        self.log_width.copy_(((h - self.threshold).abs().amax(0, keepdim=True) + 1e-6).log())


class DenseTrees(nn.Module):
    """Layers of trees, each fed with the rows and all outputs before it, then averaged."""

    def __init__(self, n_in: int, n_out: int, layers: int, trees: int, depth: int) -> None:
        super().__init__()
        channels = n_out + (layers > 1)
        widths = [n_in + i * trees * channels for i in range(layers)]
        self.layers = nn.ModuleList(ObliviousTrees(w, trees, depth, channels) for w in widths)
        self.n_out = n_out

    def forward(self, x: Tensor) -> Tensor:
        """(n, d) to (n, K)."""
        return self._outputs(x)[..., : self.n_out].mean(1)

    def _outputs(self, x: Tensor, fit: bool = False) -> Tensor:
        found: list[Tensor] = []
        for layer in self.layers:
            seen = torch.cat([x, *(f.flatten(1) for f in found)], 1)
            assert isinstance(layer, ObliviousTrees)
            if fit:
                layer.fit_to(seen)
            found.append(layer(seen))
        return torch.cat(found, 1)

    @torch.no_grad()
    def fit_to(self, x: Tensor) -> None:
        """Initialise every layer on the rows that reach it."""
        self._outputs(x, fit=True)


class NODE(ClassifierPytorchMixin, PytorchBase):
    """Ensemble of differentiable oblivious trees (Popov, Morozov and Babenko, ICLR 2020).

    The soft tests saturate: beyond their width the gradient is exactly zero, so gradient searches
    may stall. Methods that only predict, or a surrogate, serve better there.

    Args:
        trees: trees per layer.
        depth: tests per tree; a tree has 2^depth leaves.
        layers: layers of trees.
        options: see `PytorchBase`.

    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> NODE(trees=16, depth=2, lr=0.1).fit(X, [0, 1, 1, 0]).predict(X)
    array([0, 1, 1, 0])
    """

    name = "node"
    _test_params: ClassVar[Mapping[str, Any]] = {"trees": 8, "depth": 3, "layers": 2}
    presets = PREDICTOR_PRESETS | {
        "default": PREDICTOR_PRESETS["default"].override(lr=1e-2, batch_size=512)
    }

    def __init__(
        self, *, trees: int = 128, depth: int = 4, layers: int = 1, **options: Unpack[TrainOptions]
    ) -> None:
        super().__init__(**options)
        self.trees, self.depth, self.layers = trees, depth, layers

    def _build(self, n_in: int, n_out: int) -> nn.Module:
        for name in ("trees", "depth", "layers"):
            if not getattr(self, name) >= 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        return DenseTrees(n_in, n_out, self.layers, self.trees, self.depth)

    def _initialise(self, module: nn.Module, *tables: Tensor) -> None:
        assert isinstance(module, DenseTrees)
        module.fit_to(tables[0][torch.randperm(len(tables[0]))[:ROWS_FOR_INIT]])
