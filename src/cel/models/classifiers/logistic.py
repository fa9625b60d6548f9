"""Multinomial logistic regression at its optimum."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from cel.errors import ConfigError
from cel.models.base import ClassifierPytorchMixin, PytorchBase, TrainOptions
from cel.models.classifiers._newton import minimise
from cel.models.known_layers import LinearMixin
from cel.models.layers import Linear
from cel.models.training.jobs import Job, Outcome

__all__ = ["LogisticRegression"]


class LogisticRegression(LinearMixin, ClassifierPytorchMixin, PytorchBase):
    """Softmax of an affine map, solved to convergence.

    Minimises `mean(-log p(y | x)) + l2 / 2 * ||W||^2` over weights W (K, d) and biases by Newton's
    method in float64. Two classes have one weight vector w, the difference of the two rows of W,
    and it is w that is penalised. This is scikit-learn's problem with `C = 1 / (l2 * n)`.

    Args:
        l2: weight of the penalty; it keeps the solution finite where classes can be separated.
        options: see `PytorchBase`; the settings of the training loop do not apply.

    >>> model = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
    >>> W, b = model.linear_()
    >>> bool(W[1, 0] > W[0, 0])
    True
    """

    name = "lr"
    closed_form = True

    def __init__(self, *, l2: float = 1e-6, **options: Unpack[TrainOptions]) -> None:
        super().__init__(**options)
        self.l2 = l2

    def _build(self, n_in: int, n_out: int) -> nn.Module:
        if not self.l2 > 0:
            raise ConfigError(f"l2 must be positive, got {self.l2!r}")
        return Linear(n_in, n_out)

    def _solve(self, job: Job) -> Outcome:
        x, y = job.train
        x = torch.cat([x.double(), x.new_ones(len(x), 1).double()], 1)
        theta, outcome = minimise(x, y, self.n_outputs_, self.l2)
        self._set(job.module, theta)
        return outcome

    def _set(self, module: nn.Module, theta: Tensor) -> None:
        """Write (K, d + 1) coefficients into the module; biases come last."""
        assert isinstance(module, Linear)
        with torch.no_grad():
            module.weight.copy_(theta[:, :-1])
            module.bias.copy_(theta[:, -1])
