"""ReLU networks as the searches see them: weights in encoded coordinates, checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from cel.errors import UnsupportedError
from cel.models.layers import Network
from cel.search.relu_bounds import forward
from cel.space import FeatureSpace
from cel.space.serialize import space_to_dict

__all__ = ["ReluView", "module_layers", "network_view"]

SILENT = (nn.Dropout, nn.Identity)
PROBES = 64
AGREES = 1e-4  # of 1 + |score|: what 32-bit sums may lose


@dataclass(frozen=True, eq=False)
class ReluView:
    """The layers of a network over encoded rows; a linear model is one without hidden layers.

    Attributes:
        layers: (W (out, in), b (out,)) of each layer, float64, on the CPU; between two of them
            negative numbers become zero.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]

    @property
    def hidden(self) -> int:
        """Number of ReLUs."""
        return sum(len(b) for _, b in self.layers[:-1])

    @property
    def width(self) -> int:
        """Number of inputs."""
        return int(self.layers[0][0].shape[1])

    def __repr__(self) -> str:
        widths = [self.width, *(len(b) for _, b in self.layers)]
        return f"ReluView({'-'.join(map(str, widths))})"

    def scores(self, x: Tensor) -> Tensor:
        """Return the outputs (n, K) of encoded rows (n, d), float64."""
        return forward(self.layers, x.detach().double().cpu())[-1]

    def scope(self, space: FeatureSpace) -> dict[str, str]:
        """Return fingerprints of what a proof speaks of: the space and the network."""
        told = json.dumps(space_to_dict(space), sort_keys=True, default=str)
        weights = sha256()
        for part in self.layers:
            for t in part:
                weights.update(t.contiguous().numpy().tobytes())
        return {
            "space": sha256(told.encode()).hexdigest()[:16],
            "network": weights.hexdigest()[:16],
        }

    def check(self, scores: Callable[[Tensor], Tensor], who: str) -> ReluView:
        """Return the view if it scores random rows as the model does; refuse it otherwise."""
        x = torch.rand(PROBES, self.width, generator=torch.Generator().manual_seed(0)) * 3 - 1
        with torch.no_grad():
            real = scores(x).detach().double().cpu()
        ours = self.scores(x)
        if real.shape != ours.shape or not bool(
            ((real - ours).abs() <= AGREES * (1 + real.abs())).all()
        ):
            raise UnsupportedError(
                f"the layers read from {who} do not score as {who} itself does; use a method that "
                "needs gradients only"
            )
        return self


def module_layers(module: nn.Module, who: str) -> list[tuple[Tensor, Tensor]]:
    """Return the affine layers between the ReLUs of a module, float64.

    Raises:
        UnsupportedError: the module has another layer, or is no plain chain of layers.
    """
    done: list[tuple[Tensor, Tensor]] = []
    now: tuple[Tensor, Tensor] | None = None
    for leaf in _leaves(module, who):
        if isinstance(leaf, nn.Linear):
            weight = leaf.weight.detach().double().cpu().clone()
            bias = weight.new_zeros(len(weight)) if leaf.bias is None else leaf.bias
            step = weight, bias.detach().double().cpu().clone()
            now = step if now is None else (step[0] @ now[0], step[0] @ now[1] + step[1])
        elif isinstance(leaf, nn.ReLU):
            if now is None:
                raise UnsupportedError(f"{who} has a ReLU that no linear layer precedes")
            done.append(now)
            now = None
        elif not isinstance(leaf, SILENT) and not _flat(leaf):
            raise UnsupportedError(
                f"{who} has a {type(leaf).__name__} layer; Linear, ReLU and Dropout can be read"
            )
    if now is None and done:  # a ReLU comes last
        size = len(done[-1][1])
        now = torch.eye(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    if now is None:
        raise UnsupportedError(f"{who} has no linear layer")
    return [*done, now]


def _flat(leaf: nn.Module) -> bool:
    return isinstance(leaf, nn.Flatten) and leaf.start_dim == 1


def _leaves(module: nn.Module, who: str) -> Iterator[nn.Module]:
    """Yield the layers of nested `nn.Sequential` in the order in which they are applied."""
    if isinstance(module, nn.Sequential):
        for part in module:
            yield from _leaves(part, who)
    elif isinstance(module, nn.Linear | nn.ReLU) or not list(module.children()):
        yield module
    else:
        raise UnsupportedError(
            f"{who} holds a {type(module).__name__}, not only nn.Sequential of Linear and ReLU: "
            "in what order its layers are applied is unknown"
        )


def network_view(network: Any, scores: Callable[[Tensor], Tensor], who: str) -> ReluView:
    """Return the view of one of our own networks, whose outputs are scaled and shifted."""
    assert isinstance(network, Network)
    layers = module_layers(network.layers, who)
    weight, bias = layers[-1]
    scale, shift = (t.detach().double().cpu().reshape(-1) for t in (network.scale, network.shift))
    layers[-1] = weight * scale[:, None], bias * scale + shift
    return ReluView(tuple(layers)).check(scores, who)
