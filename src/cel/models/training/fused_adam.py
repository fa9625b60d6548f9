"""Adam whose steps on the CPU are one call of its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["FusedAdam"]


class FusedAdam(torch.optim.AdamW):
    """Fused Adam with decoupled weight decay, for CUDA graphs and for many short steps.

    Args:
        parameters: what learns, all on one device.
        lr: step size.
        weight_decay: coefficient of the decay.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> weight.grad = torch.tensor([3.0, -0.2])
    >>> FusedAdam([weight], lr=0.25, weight_decay=0.0).move()
    >>> weight.tolist()
    [0.75, 1.25]
    """

    def __init__(self, parameters: Sequence[Tensor], *, lr: float, weight_decay: float) -> None:
        self.cuda = parameters[0].is_cuda
        self._steps: Tensor | None = None
        rate: Any = torch.tensor(lr, device=parameters[0].device) if self.cuda else lr
        super().__init__(
            parameters, lr=rate, weight_decay=weight_decay, fused=True, capturable=self.cuda
        )

    def set_lr(self, lr: float) -> None:
        """Change the step size, in place where a graph reads it."""
        group = self.param_groups[0]
        if self.cuda:
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr

    @torch.no_grad()
    def move(self) -> None:
        """Do what `step` does; without its preparations, where all is prepared."""
        group = self.param_groups[0]
        params: list[Tensor] = group["params"]
        states = [self.state[p] for p in params]
        grads = [p.grad for p in params if p.grad is not None]
        if self.cuda or len(grads) < len(params) or not all(states):
            self.step()
            return
        if self._steps is None:  # in one place, where one addition counts for all
            self._steps = torch.stack([s["step"] for s in states])
            for s, step in zip(states, self._steps, strict=True):
                s["step"] = step
        steps, means, squares = (
            [s[name] for s in states] for name in ("step", "exp_avg", "exp_avg_sq")
        )
        self._steps.add_(1)
        torch._fused_adamw_(
            params, grads, means, squares, [], steps, lr=group["lr"],
            beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
            weight_decay=group["weight_decay"], amsgrad=False, maximize=False,
        )  # fmt: skip
