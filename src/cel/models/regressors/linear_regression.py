"""Linear regression in closed form."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import nn

from cel.errors import ConfigError
from cel.models.base import PytorchBase, RegressionPytorchMixin, TrainOptions
from cel.models.known_layers import LinearMixin
from cel.models.layers import Linear
from cel.models.training.jobs import Job, Outcome

__all__ = ["LinearRegression"]


class LinearRegression(LinearMixin, RegressionPytorchMixin, PytorchBase):
    """Least squares with an intercept, `min mean((y - x W' - b)^2) + ridge * ||W||^2`.

    The tiny ridge picks the shortest solution where columns depend on each other, as the columns
    of a one-hot block do. Solved by QR in float64.

    Args:
        ridge: weight of the penalty.
        options: see `PytorchBase`; the settings of the training loop do not apply.

    >>> model = LinearRegression().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> [round(float(t), 4) for t in model.linear_()]
    [2.0, 1.0]
    """

    name = "linear"
    closed_form = True

    def __init__(self, *, ridge: float = 1e-8, **options: Unpack[TrainOptions]) -> None:
        super().__init__(**options)
        self.ridge = ridge

    def _build(self, n_in: int, n_out: int) -> nn.Module:
        if not self.ridge > 0:
            raise ConfigError(f"ridge must be positive, got {self.ridge!r}")
        return Linear(n_in, n_out)

    def _solve(self, job: Job) -> Outcome:
        x, y = (t.double() for t in job.train)
        centre_x, centre_y = x.mean(0), y.mean(0)
        extra = (self.ridge * len(x)) ** 0.5 * torch.eye(x.shape[1]).to(x)
        left = torch.cat([x - centre_x, extra])
        right = torch.cat([y - centre_y, y.new_zeros(x.shape[1], y.shape[1])])
        weight = torch.linalg.lstsq(left, right, driver="gels").solution.T
        module, outcome = job.module, Outcome(reason="solved")
        assert isinstance(module, Linear)
        with torch.no_grad():
            module.weight.copy_(weight)
            module.bias.copy_(centre_y - weight @ centre_x)
            loss = float(self._loss(module, *job.train).mean())
        outcome.add({"epoch": 1, "train_loss": loss, "valid_loss": loss}, 0.0)
        return outcome
