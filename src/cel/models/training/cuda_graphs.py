"""Functions of tensors as CUDA graphs: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Graphed"]

WARM_UP_CALLS = 3  # allocations and lazy initialisations must be over before the capture

Function = Callable[[Tensor, Tensor | None], Tensor]


class Graphed:
    """Call `function(index, weight)` eagerly a few times, then capture it and replay it.

    There is one graph for each shape of the arguments. The function must not read host memory, so
    that replaying it with other values in the same place is the same as calling it. What it
    returns is overwritten by the next call.

    Args:
        function: what to call.
        enabled: whether to use graphs at all; they need a CUDA device.
    """

    def __init__(self, function: Function, *, enabled: bool) -> None:
        self.function, self.enabled = function, enabled
        self.calls: dict[tuple[int, ...], int] = {}
        self.graphs: dict[tuple[int, ...], _Graph] = {}

    def __call__(self, index: Tensor, weight: Tensor | None) -> Tensor:
        """Return what the function returns."""
        if not self.enabled:
            return self.function(index, weight)
        key = (*index.shape, int(weight is not None))
        self.calls[key] = self.calls.get(key, 0) + 1
        if self.calls[key] <= WARM_UP_CALLS:
            return self._aside(index, weight)
        if key not in self.graphs:
            self.graphs[key] = _Graph(self.function, index, weight)
        return self.graphs[key].replay(index, weight)

    def _aside(self, index: Tensor, weight: Tensor | None) -> Tensor:
        """Run eagerly on a side stream, as a later capture asks for."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self.function(index, weight)
        torch.cuda.current_stream().wait_stream(stream)
        return result


class _Graph:
    """A captured call with the memory of its arguments and of its result."""

    def __init__(self, function: Function, index: Tensor, weight: Tensor | None) -> None:
        self.index, self.weight = index.clone(), None if weight is None else weight.clone()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = function(self.index, self.weight)

    def replay(self, index: Tensor, weight: Tensor | None) -> Tensor:
        self.index.copy_(index)
        if self.weight is not None and weight is not None:
            self.weight.copy_(weight)
        self.graph.replay()
        return self.result
