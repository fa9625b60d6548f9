"""One module out of many: the same network with a leading axis of models."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from cel.errors import UnsupportedError

__all__ = ["Stack"]


class Stack:
    """Same-shaped modules as one that maps inputs (s, n, ...) to outputs (s, n, ...).

    A module class that says `stackable = True` promises that its forward pass also works when each
    of its parameters, and each buffer that differs between the models, has a leading axis of
    models: it uses `cel.models.layers.Linear` or `affine`, keeps row-wise constants as (1, k) and
    acts on the last axes only. Any other module is vectorised by `torch.vmap`. A single module is
    used as it is, without the leading axis.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        first = modules[0]
        self.many = len(modules) > 1
        self.size = len(modules)
        self._axis: list[Tensor] = []
        if not self.many:
            self.module = first
            return
        shapes = [{k: v.shape for k, v in m.state_dict().items()} for m in modules]
        if any(s != shapes[0] for s in shapes) or len({type(m) for m in modules}) > 1:
            raise UnsupportedError("only modules of one class and shape can be stacked")
        if getattr(first, "stackable", False):
            self.module = self._broadcast(modules)
        else:
            self.module = _Vmapped(modules)
            self._axis = [*self.module.parameters(), *self.module.buffers()]

    def by_model(self, tensor: Tensor) -> Tensor:
        """Return a parameter or gradient with its leading axis of models, without history."""
        return tensor.detach() if self.many else tensor.detach().unsqueeze(0)

    @torch.no_grad()
    def keep(self, positions: list[int], optimizer: torch.optim.Optimizer) -> None:
        """Drop all other models, also from the moments that the optimiser holds."""
        for tensor in self._axis:
            tensor.data = tensor.data[positions].clone()
            tensor.grad = None
        for state in optimizer.state.values():
            for name in state:
                if name != "step":
                    state[name] = state[name][positions].clone()
        self.size = len(positions)

    def _broadcast(self, modules: Sequence[nn.Module]) -> nn.Module:
        first = modules[0]
        memo: dict[int, Any] = {}
        for name, parameter in first.named_parameters():
            stacked = torch.stack([m.get_parameter(name).detach() for m in modules])
            memo[id(parameter)] = nn.Parameter(stacked, requires_grad=parameter.requires_grad)
            self._axis.append(memo[id(parameter)])
        for name, buffer in first.named_buffers():
            own = [m.get_buffer(name) for m in modules]
            same = all(torch.equal(buffer, b) for b in own)
            memo[id(buffer)] = buffer.clone() if same else torch.stack(own)
            if not same:
                self._axis.append(memo[id(buffer)])
        return copy.deepcopy(first, memo)


class _Vmapped(nn.Module):
    """A stack of modules that know nothing of stacks."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self._base = [copy.deepcopy(modules[0])]  # in a list, so that it is no submodule
        self._names = [name for name, _ in modules[0].named_parameters()]
        self._buffer_names = [name for name, _ in modules[0].named_buffers()]
        for i, name in enumerate(self._names):
            stacked = torch.stack([m.get_parameter(name).detach() for m in modules])
            wanted = modules[0].get_parameter(name).requires_grad
            self.register_parameter(f"p{i}", nn.Parameter(stacked, requires_grad=wanted))
        for i, name in enumerate(self._buffer_names):
            self.register_buffer(f"b{i}", torch.stack([m.get_buffer(name) for m in modules]))

    def train(self, mode: bool = True) -> _Vmapped:
        """Set the training mode, also of the network that is vectorised."""
        self._base[0].train(mode)
        return super().train(mode)

    def forward(self, *args: Tensor) -> Tensor:
        """Return the outputs of every model on its own inputs."""
        state = {n: getattr(self, f"p{i}") for i, n in enumerate(self._names)}
        state |= {n: getattr(self, f"b{i}") for i, n in enumerate(self._buffer_names)}

        def one(own: dict[str, Tensor], *inputs: Tensor) -> Tensor:
            out: Tensor = functional_call(self._base[0], own, inputs)
            return out

        result: Tensor = torch.vmap(one, randomness="different")(state, *args)
        return result
