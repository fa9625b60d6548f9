"""The one training loop: seeded mini-batches, early stop, best weights in memory, history as rows.

`train` takes one job, or several of the same shape, which it trains as one batched model (see
`cel.models.training.stack`), each with its own rows, order and early stop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from cel.models.training.by_hand import gradients
from cel.models.training.cuda_graphs import Graphed
from cel.models.training.fused_adam import FusedAdam
from cel.models.training.jobs import Job, Outcome, RowLoss
from cel.models.training.row_pool import RowPool
from cel.models.training.schedule import (
    FLOW_PRESETS,
    PREDICTOR_PRESETS,
    REGRESSOR_PRESETS,
    Schedule,
)
from cel.models.training.stack import Stack

__all__ = [
    "FLOW_PRESETS",
    "PREDICTOR_PRESETS",
    "REGRESSOR_PRESETS",
    "Job",
    "Outcome",
    "RowLoss",
    "Schedule",
    "seeded",
    "train",
]

Report = Callable[[int, list[Outcome]], None]
EVALUATED_AT_ONCE = 32_768  # validation rows over all models of a stack
KEPT_ON_CUDA = 0.75  # a smaller stack means new graphs, which pays for several models only


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch inside the block and leave its global random state as found."""
    device = torch.device(device)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if devices:  # torch.manual_seed would queue a call for CUDA even where none is
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def train(jobs: Sequence[Job], *, progress: bool = False) -> list[Outcome]:
    """Train one job, or a stack of same-shaped jobs as one batched model.

    The schedule and the loss of the first job hold for all. Results depend on the jobs only: the
    global random state is neither read nor changed.
    """
    device = next(jobs[0].module.parameters()).device
    with torch.enable_grad(), seeded(jobs[0].seed, device), _bar(jobs, progress) as report:
        return _Trainer(jobs, device).run(report)


class _Trainer:
    """State of one training; `members` lists the jobs in the stack, in its order.

    A job that is `done` stays in the stack until enough others are done to make it smaller.
    """

    def __init__(self, jobs: Sequence[Job], device: torch.device) -> None:
        self.jobs, self.schedule, self.device = list(jobs), jobs[0].schedule, device
        self.members, self.done = list(range(len(self.jobs))), set[int]()
        self.stack = Stack([j.module for j in jobs])
        self.module = self.stack.module
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.best = [self.stack.by_model(p).clone() for p in self.parameters]
        self.outcomes = [Outcome() for _ in jobs]
        self.generators = [torch.Generator().manual_seed(j.seed) for j in jobs]
        self.rows = RowPool([j.train for j in jobs], self.stack.many)
        self.valid = RowPool([j.valid for j in jobs], self.stack.many)
        self.cuda = device.type == "cuda"
        self.optimizer = FusedAdam(
            self.parameters, lr=self.schedule.lr, weight_decay=self.schedule.weight_decay
        )
        self._capture()

    def _capture(self) -> None:
        self.gradients = gradients(self.module, self.jobs[0].loss)
        self.step = Graphed(self._step, enabled=self.cuda)
        self.judge = Graphed(self._judge, enabled=self.cuda)

    def run(self, report: Report) -> list[Outcome]:
        start = time.perf_counter()
        for epoch in range(1, self.schedule.epochs + 1):
            self._set_lr(epoch)
            fitted, validated = self._epoch(), self._validate()
            seconds = time.perf_counter() - start
            self._record(epoch, fitted, validated, seconds)
            self._stop(seconds)
            report(epoch, self.outcomes)
            if len(self.done) == len(self.jobs):
                break
        self._restore()
        return self.outcomes

    def _set_lr(self, epoch: int) -> None:
        if self.schedule.decay == "constant":
            return
        share = (epoch - 1) / self.schedule.epochs
        self.optimizer.set_lr(self.schedule.lr * (0.01 + 0.495 * (1 + math.cos(math.pi * share))))

    def _epoch(self) -> list[float]:
        """Pass over the rows and return the mean loss of each member."""
        self.module.train()
        size, steps = self.schedule.batch_size, 0
        total = torch.zeros(len(self.members), device=self.device)
        for _ in range(self.schedule.passes):
            index = self.rows.shuffled(self.generators, self.members)
            for k, part in enumerate(torch.split(index, size, dim=-1)):
                piece = slice(k * size, (k + 1) * size)
                weight = self.rows.weight(self.members, piece) if self.stack.many else None
                total += self.step(part, weight)
                steps += 1
        return [float(v) for v in (total / steps).tolist()]

    def _step(self, index: Tensor, weight: Tensor | None) -> Tensor:
        losses = self.gradients(weight, *self.rows.batch(index))
        if self.schedule.clip is not None:
            self._clip(self.schedule.clip)
        self.optimizer.move()
        return losses

    def _clip(self, limit: float) -> None:
        """Shorten the gradient of each model to the length `limit`."""
        grads = [self.stack.by_model(p.grad) for p in self.parameters if p.grad is not None]
        squares = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0)
        factor = (limit / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        if not self.cuda and bool((factor >= 1.0).all()):  # a graph cannot look
            return
        for g in grads:
            g.mul_(factor.view(-1, *(1,) * (g.dim() - 1)))

    @torch.no_grad()
    def _validate(self) -> list[float]:
        """Mean loss of each member on its validation rows, with the same noise each time."""
        self.module.eval()
        index = self.valid.ordered(self.members)
        size = max(EVALUATED_AT_ONCE // len(self.members), 256)
        total = torch.zeros(len(self.members), device=self.device)
        with seeded(self.jobs[0].seed, self.device):
            for start in range(0, index.shape[-1], size):
                piece = slice(start, start + size)
                weight = self.valid.weight(self.members, piece) if self.stack.many else None
                total += self.judge(index[..., piece], weight)
        counts = [self.valid.counts[i] for i in self.members]
        return [v / n for v, n in zip(total.tolist(), counts, strict=True)]

    def _judge(self, index: Tensor, weight: Tensor | None) -> Tensor:
        rows = self.gradients.rows(*self.valid.batch(index))
        return rows.sum(-1) if weight is None else (rows * weight).sum(-1)

    @torch.no_grad()
    def _record(
        self, epoch: int, fitted: list[float], validated: list[float], seconds: float
    ) -> None:
        lr, better = float(self.optimizer.param_groups[0]["lr"]), []
        for k, i in enumerate(self.members):
            row = {"epoch": epoch, "train_loss": fitted[k], "valid_loss": validated[k]}
            row |= {"lr": lr, "seconds": seconds}
            if i not in self.done and self.outcomes[i].add(row, self.schedule.min_delta):
                better.append(k)
        if not better:
            return
        here = torch.tensor(better, device=self.device)
        home = torch.tensor([self.members[k] for k in better], device=self.device)
        for best, p in zip(self.best, self.parameters, strict=True):
            best.index_copy_(0, home, self.stack.by_model(p).index_select(0, here))

    def _stop(self, seconds: float) -> None:
        """Mark the models that are done, and make the stack smaller when it pays."""
        limit = self.schedule.time_limit
        for i in self.members:
            outcome = self.outcomes[i]
            if i in self.done:
                continue
            if outcome.diverged:
                outcome.reason = "diverged"
            elif outcome.waited >= self.schedule.patience:
                outcome.reason = "patience"
            elif limit is not None and seconds >= limit:
                outcome.reason = "time"
            else:
                continue
            self.done.add(i)
        keep = [k for k, i in enumerate(self.members) if i not in self.done]
        most = KEPT_ON_CUDA * len(self.members) if self.cuda else len(self.members) - 1
        if 0 < len(keep) <= most:
            self.stack.keep(keep, self.optimizer)
            self.members = [self.members[k] for k in keep]
            self._capture()

    @torch.no_grad()
    def _restore(self) -> None:
        """Put the best weights into the modules of the jobs."""
        for i, job in enumerate(self.jobs):
            own = [p for p in job.module.parameters() if p.requires_grad]
            for p, best in zip(own, self.best, strict=True):
                p.copy_(best[i])
            job.module.eval()


@contextmanager
def _bar(jobs: Sequence[Job], shown: bool) -> Iterator[Report]:
    """Yield a function that reports an epoch, on a progress bar if one is `shown`."""
    if not shown:
        yield lambda epoch, outcomes: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task(jobs[0].name, total=jobs[0].schedule.epochs)

        def report(epoch: int, outcomes: list[Outcome]) -> None:
            best = min(o.best_loss for o in outcomes)
            bar.update(task, completed=epoch, description=f"{jobs[0].name} loss {best:.4f}")

        yield report
