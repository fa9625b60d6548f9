"""Does an answer survive every small change of the model's weights?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from cel.errors import ConfigError, UnsupportedError
from cel.metrics.base import metric
from cel.metrics.evaluation import chunks
from cel.protocols import Task

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["certified_margin", "delta_validity", "linear_layers", "worst_margin"]

SILENT = (nn.Dropout, nn.Identity, nn.Flatten)
Layers = list[tuple[Tensor, Tensor]]
LARGEST = 1.0  # change of a weight that is looked at
HALVINGS = 30


@metric(
    "delta_validity",
    better="higher",
    unit="share",
    rows="found",
    needs={"model"},
    tasks={Task.CLASSIFICATION},
    meaning="How many answers provably hold for every model whose weights differ a little.",
    formula="share with min over ||theta' - theta||_inf <= delta of (logit_target - other logits) "
    "> 0, bounded from below by interval arithmetic through linear and ReLU layers",
    reference="Jiang et al., 2023; Gowal et al. (IBP), 2018",
)
def delta_validity(ev: Evaluation, delta: float = 0.005) -> np.ndarray:
    """1 where the worst margin over the bounded weight changes is positive."""
    if delta < 0:
        raise ConfigError(f"delta must not be negative, got {delta}")
    x = torch.as_tensor(ev.cf, dtype=torch.float64)
    holds = _certified(ev, x, torch.full_like(x[:, 0], delta))
    return holds.numpy().astype(np.float64)


@metric(
    "certified_margin",
    better="higher",
    unit="weight",
    rows="found",
    needs={"model"},
    tasks={Task.CLASSIFICATION},
    meaning="How much every weight of the model may change before the answer can fail.",
    formula="largest delta <= 1 for which delta_validity proves the answer, by bisection",
    reference="Jiang et al., 2023; Gowal et al. (IBP), 2018",
)
def certified_margin(ev: Evaluation) -> np.ndarray:
    """The largest proved change of weights of each answer, 0 where none is proved."""
    x = torch.as_tensor(ev.cf, dtype=torch.float64)
    low, high = torch.zeros_like(x[:, 0]), torch.full_like(x[:, 0], LARGEST)
    low = torch.where(_certified(ev, x, high), high, low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        holds = _certified(ev, x, middle)
        low, high = torch.where(holds, middle, low), torch.where(holds, high, middle)
    return low.numpy()


def _certified(ev: Evaluation, x: Tensor, delta: Tensor) -> Tensor:
    """Tell for which rows (n, d) the margin is positive for all weights within delta (n,)."""
    target = torch.as_tensor(ev.target)
    layers = ev.memo(("layers", ev.kind), lambda: linear_layers(ev.model, x))
    width = max(layers[-1][0].numel(), *(len(weight) for weight, _ in layers))
    parts = [worst_margin(layers, x[p], target[p], delta[p]) for p in chunks(len(x), width)]
    return torch.cat(parts) > 0


def linear_layers(model: object, x: Tensor) -> Layers:
    """Read (weight, bias) of each layer, and check on the rows `x` that they are the model."""
    layers = _declared(model) or _chain(model)
    with torch.no_grad():
        told = model.logits(x.to(torch.float32)).to(torch.float64).cpu()  # type: ignore[attr-defined]
    hidden = x
    for i, (weight, bias) in enumerate(layers):
        hidden = hidden @ weight.T + bias
        hidden = hidden.relu() if i < len(layers) - 1 else hidden
    if told.shape != hidden.shape or not torch.allclose(told, hidden, rtol=1e-3, atol=1e-3):
        raise UnsupportedError(f"{type(model).__name__} is not a plain chain of its layers")
    return layers


def _declared(model: object) -> Layers:
    """The one layer of a model that says it is linear."""
    read = getattr(model, "linear_", None)
    parts = read() if callable(read) else None
    if parts is None:
        return []
    weight, bias = parts
    return [(weight.detach().double().cpu(), bias.detach().double().cpu())]


def _chain(model: object) -> Layers:
    """The linear layers of a feed-forward ReLU network, in order."""
    module, who = getattr(model, "module_", None), type(model).__name__
    if not isinstance(module, nn.Module) or not hasattr(model, "logits"):
        raise UnsupportedError(f"{who} has no weights to change (neither module_ nor linear_)")
    layers: Layers = []
    for leaf in (m for m in module.modules() if not list(m.children())):
        if isinstance(leaf, nn.Linear):
            weight = leaf.weight.detach().double().cpu()
            bias = torch.zeros(len(weight)) if leaf.bias is None else leaf.bias.detach().cpu()
            layers.append((weight, bias.double()))
        elif not isinstance(leaf, (nn.ReLU, *SILENT)):
            raise UnsupportedError(f"{who} has a {type(leaf).__name__} layer, which has no bounds")
    if not layers:
        raise UnsupportedError(f"{who} has no linear layer")
    return layers


def worst_margin(layers: Layers, x: Tensor, target: Tensor, delta: float | Tensor) -> Tensor:
    """Return a lower bound (n,) of the target's margin over all weights and biases within delta.

    Delta is one number, or one for each row, (n,).

    With activations inside centre +- radius, (W + E) h + b + e lies within
    |W| radius + delta (sum(|centre| + radius) + 1) of W centre + b.

    >>> one = [(torch.tensor([[0.0], [1.0]]), torch.zeros(2))]
    >>> worst_margin(one, torch.tensor([[2.0]]), torch.tensor([1]), 0.1)
    tensor([1.4000])
    """
    delta = torch.as_tensor(delta, dtype=x.dtype).reshape(-1, 1)
    centre, radius = x, torch.zeros_like(x)
    for weight, bias in layers[:-1]:
        slack = delta * ((centre.abs() + radius).sum(-1, keepdim=True) + 1)
        middle, reach = centre @ weight.T + bias, radius @ weight.abs().T + slack
        low, high = (middle - reach).relu(), (middle + reach).relu()
        centre, radius = (low + high) / 2, (high - low) / 2
    weight, bias = layers[-1]
    slack = 2 * delta * ((centre.abs() + radius).sum(-1, keepdim=True) + 1)
    ahead = weight[target][:, None] - weight[None]  # (n, K, h): the target against every class
    middle = (ahead * centre[:, None]).sum(-1) + bias[target][:, None] - bias[None]
    lowest = middle - (ahead.abs() * radius[:, None]).sum(-1) - slack
    return lowest.scatter(1, target[:, None], torch.inf).amin(-1)
