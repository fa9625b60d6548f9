"""Training steps as CUDA graphs: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["GraphedStep"]

WARM_UP_STEPS = 3  # allocations and lazy initialisations must be over before the capture

Step = Callable[[Tensor, Tensor | None], Tensor]


class GraphedStep:
    """Run `step(index, None)` eagerly a few times, then capture it and replay it.

    All batches must have the shape of the first one. The step reads no host memory, so replaying
    with another index in the same place is the same as running it.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.runs = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.index = torch.empty(0)
        self.loss = torch.empty(0)

    def __call__(self, index: Tensor, weight: Tensor | None) -> Tensor:
        """Make one training step on the rows at `index`."""
        if self.runs < WARM_UP_STEPS:
            self.runs += 1
            return self._aside(index, weight)
        if self.graph is None:
            self._capture(index)
        self.index.copy_(index)
        assert self.graph is not None
        self.graph.replay()
        return self.loss

    def _aside(self, index: Tensor, weight: Tensor | None) -> Tensor:
        """Run eagerly on a side stream, as a later capture asks for."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self.step(index, weight)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _capture(self, index: Tensor) -> None:
        self.index = index.clone()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.step(self.index, None)
