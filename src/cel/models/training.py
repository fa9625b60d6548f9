"""The one training loop: seeded mini-batches, early stop, best weights in memory, history as rows.

`train` takes one job, or several of the same shape, which it trains as one batched model (see
`cel.models._stack`), each with its own rows, order and early stop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from cel.models._graphs import GraphedStep
from cel.models._pool import Pool
from cel.models._stack import Stack
from cel.models.jobs import Job, Outcome, RowLoss
from cel.models.schedule import FLOW_PRESETS, PREDICTOR_PRESETS, REGRESSOR_PRESETS, Schedule

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
    """State of one training; `active` lists the jobs that still learn, in stack order."""

    def __init__(self, jobs: Sequence[Job], device: torch.device) -> None:
        self.jobs, self.schedule, self.device = list(jobs), jobs[0].schedule, device
        self.active = list(range(len(self.jobs)))
        self.stack = Stack([j.module for j in jobs])
        self.module = self.stack.module
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.best = [self.stack.by_model(p).clone() for p in self.parameters]
        self.outcomes = [Outcome() for _ in jobs]
        self.generators = [torch.Generator().manual_seed(j.seed) for j in jobs]
        self.rows = Pool([j.train for j in jobs], self.stack.many)
        self.valid = Pool([j.valid for j in jobs], self.stack.many)
        self.cuda = device.type == "cuda"
        lr: Any = self.schedule.lr
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=torch.tensor(lr, device=device) if self.cuda else lr,
            weight_decay=self.schedule.weight_decay,
            fused=True,
            capturable=self.cuda,
        )
        self.graph = GraphedStep(self._step)

    def run(self, report: Report) -> list[Outcome]:
        start = time.perf_counter()
        for epoch in range(1, self.schedule.epochs + 1):
            self._set_lr(epoch)
            fitted, validated = self._epoch(), self._validate()
            seconds = time.perf_counter() - start
            self._record(epoch, fitted, validated, seconds)
            self._stop(seconds)
            report(epoch, self.outcomes)
            if not self.active:
                break
        self._restore()
        return self.outcomes

    def _set_lr(self, epoch: int) -> None:
        if self.schedule.decay == "constant":
            return
        share = (epoch - 1) / self.schedule.epochs
        lr = self.schedule.lr * (0.01 + 0.495 * (1 + math.cos(math.pi * share)))
        for group in self.optimizer.param_groups:
            if self.cuda:
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def _epoch(self) -> list[float]:
        """Make one pass over the rows and return the mean loss of each active model."""
        self.module.train()
        index = self.rows.shuffled(self.generators, self.active)
        size, count = self.schedule.batch_size, index.shape[-1]
        total = torch.zeros(len(self.active), device=self.device)
        for start in range(0, count, size):
            piece = slice(start, start + size)
            weight = self.rows.weight(self.active, piece) if self.stack.many else None
            graphed = self.cuda and weight is None and piece.stop <= count
            step = self.graph if graphed else self._step
            total += step(index[..., piece], weight)
        return [float(v) for v in (total / math.ceil(count / size)).tolist()]

    def _step(self, index: Tensor, weight: Tensor | None) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        rows = self.jobs[0].loss(self.module, *self.rows.batch(index))
        losses = rows.mean(-1) if weight is None else (rows * weight).sum(-1) / weight.sum(-1)
        torch.autograd.backward(losses.sum())
        if self.schedule.clip is not None:
            self._clip(self.schedule.clip)
        self.optimizer.step()
        return losses.detach()

    def _clip(self, limit: float) -> None:
        """Shorten the gradient of each model to the length `limit`."""
        grads = [self.stack.by_model(p.grad) for p in self.parameters if p.grad is not None]
        squares = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0)
        factor = (limit / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for g in grads:
            g.mul_(factor.view(-1, *(1,) * (g.dim() - 1)))

    @torch.no_grad()
    def _validate(self) -> list[float]:
        """Mean loss of each active model on its validation rows, with the same noise each time."""
        self.module.eval()
        index = self.valid.ordered(self.active)
        size = max(EVALUATED_AT_ONCE // len(self.active), 256)
        total = torch.zeros(len(self.active), device=self.device)
        with seeded(self.jobs[0].seed, self.device):
            for start in range(0, index.shape[-1], size):
                piece = slice(start, start + size)
                rows = self.jobs[0].loss(self.module, *self.valid.batch(index[..., piece]))
                weight = self.valid.weight(self.active, piece) if self.stack.many else None
                total += rows.sum(-1) if weight is None else (rows * weight).sum(-1)
        counts = [self.valid.counts[i] for i in self.active]
        return [v / n for v, n in zip(total.tolist(), counts, strict=True)]

    @torch.no_grad()
    def _record(
        self, epoch: int, fitted: list[float], validated: list[float], seconds: float
    ) -> None:
        lr, better = float(self.optimizer.param_groups[0]["lr"]), []
        for k, i in enumerate(self.active):
            row = {"epoch": epoch, "train_loss": fitted[k], "valid_loss": validated[k]}
            if self.outcomes[i].add(row | {"lr": lr, "seconds": seconds}, self.schedule.min_delta):
                better.append(k)
        ids = [self.active[k] for k in better]
        for best, p in zip(self.best, self.parameters, strict=True):
            best[ids] = self.stack.by_model(p)[better]

    def _stop(self, seconds: float) -> None:
        """Let go of the models that are done, and make the stack smaller."""
        limit = self.schedule.time_limit
        keep = []
        for k, i in enumerate(self.active):
            outcome = self.outcomes[i]
            if outcome.diverged:
                outcome.reason = "diverged"
            elif outcome.waited >= self.schedule.patience:
                outcome.reason = "patience"
            elif limit is not None and seconds >= limit:
                outcome.reason = "time"
            else:
                keep.append(k)
        if 0 < len(keep) < len(self.active):
            self.stack.keep(keep, self.optimizer)
            self.graph = GraphedStep(self._step)
        self.active = [self.active[k] for k in keep]

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
