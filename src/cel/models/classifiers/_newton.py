"""Newton's method for penalised softmax regression."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.models.training.jobs import Outcome

__all__ = ["minimise"]

TOLERANCE = 1e-9  # of the gradient's largest entry
MOST_STEPS = 200
LARGEST_HESSIAN = 3000


def minimise(x: Tensor, y: Tensor, classes: int, l2: float) -> tuple[Tensor, Outcome]:
    """Return the optimal (K, d + 1) coefficients; the last column of `x` is the constant.

    Two classes are solved for the one vector that tells them apart, more of them for all K.
    """
    if classes == 2:
        sign = torch.tensor([[-0.5], [0.5]], dtype=x.dtype, device=x.device)
        problem = _Problem(x, y, l2, sign)
    else:
        problem = _Problem(x, y, l2, torch.eye(classes, dtype=x.dtype, device=x.device))
    theta, outcome = _newton(problem) if problem.size <= LARGEST_HESSIAN else _lbfgs(problem)
    return problem.mix @ theta, outcome


class _Problem:
    """Mean cross entropy of logits `x (mix @ theta)'` plus the penalty on theta.

    Args:
        x: (n, p) rows with a constant last column.
        y: (n,) class positions.
        l2: weight of the penalty on all but the last column.
        mix: (K, q) how the q unknown vectors make the K classes.
    """

    def __init__(self, x: Tensor, y: Tensor, l2: float, mix: Tensor) -> None:
        self.x, self.mix = x, mix
        self.truth = torch.nn.functional.one_hot(y, len(mix)).to(x.dtype)
        self.ridge = torch.full((x.shape[1],), l2, dtype=x.dtype, device=x.device)
        self.ridge[-1] = 0.0
        self.shape = (mix.shape[1], x.shape[1])
        self.size = mix.shape[1] * x.shape[1]

    def loss(self, theta: Tensor) -> Tensor:
        """Objective at theta (q, p)."""
        logits = self.x @ (self.mix @ theta).T
        entropy = logits.logsumexp(1) - (logits * self.truth).sum(1)
        return entropy.mean() + 0.5 * (self.ridge * theta.square()).sum()

    def gradient(self, theta: Tensor) -> Tensor:
        """(q, p) gradient of the objective."""
        p = (self.x @ (self.mix @ theta).T).softmax(1)
        error = (p - self.truth) @ self.mix
        return error.T @ self.x / len(self.x) + self.ridge * theta

    def hessian(self, theta: Tensor) -> Tensor:
        """(q p, q p) second derivatives, block by block."""
        p = (self.x @ (self.mix @ theta).T).softmax(1)
        q, width = self.shape
        out = torch.empty(q, width, q, width, dtype=p.dtype, device=p.device)
        mean = p @ self.mix
        for i in range(q):
            for j in range(i, q):
                weight = p @ (self.mix[:, i] * self.mix[:, j]) - mean[:, i] * mean[:, j]
                block = self.x.T @ (weight[:, None] * self.x) / len(p)
                out[i, :, j], out[j, :, i] = block, block
            out[i, :, i] += torch.diag(self.ridge)
        return out.view(self.size, self.size)


def _newton(problem: _Problem) -> tuple[Tensor, Outcome]:
    theta = problem.x.new_zeros(problem.shape)
    outcome = Outcome(reason="solved")
    # Softmax logits may shift together, so the Hessian is singular without a little more.
    floor = 1e-10 * torch.eye(problem.size, dtype=theta.dtype, device=theta.device)
    value = problem.loss(theta)
    for step in range(1, MOST_STEPS + 1):
        gradient = problem.gradient(theta)
        _note(outcome, step, float(value))
        if float(gradient.abs().max()) < TOLERANCE:
            break
        whole = problem.hessian(theta) + floor
        direction = -torch.linalg.solve(whole, gradient.reshape(-1)).view(problem.shape)
        slope, length = float((gradient * direction).sum()), 1.0
        while length > 1e-8:
            tried = problem.loss(theta + length * direction)
            if float(tried) <= float(value) + 1e-4 * length * slope + 1e-15:
                break
            length /= 2
        theta, value = theta + length * direction, tried
    return theta, outcome


def _lbfgs(problem: _Problem) -> tuple[Tensor, Outcome]:
    """Solve wide problems without a Hessian."""
    theta = problem.x.new_zeros(problem.shape)
    outcome = Outcome(reason="solved")
    solver = torch.optim.LBFGS(
        [theta],
        max_iter=5000,
        history_size=50,
        tolerance_grad=TOLERANCE,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        theta.grad = problem.gradient(theta)
        value = problem.loss(theta)
        _note(outcome, len(outcome.history) + 1, float(value))
        return value

    solver.step(closure)  # type: ignore[no-untyped-call]
    return theta.detach(), outcome


def _note(outcome: Outcome, step: int, loss: float) -> None:
    outcome.add({"epoch": step, "train_loss": loss, "valid_loss": loss}, 0.0)
