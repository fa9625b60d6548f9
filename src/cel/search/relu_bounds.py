"""Bounds of ReLU networks over sets of inputs, thousands of sets at a time, in float64.

A network is a list of layers (W (out, in), b (out,)); between two layers negative numbers become
zero. A set of inputs is known by its support function: how large `w.x` becomes in it.

*Interval bounds* carry boxes through the layers. *Linear bounds* replace each undecided ReLU by
two lines that hold it in and go back to the inputs, where the support function is exact (Zhang et
al., 2018, "CROWN"). Neurons whose side is given are exact; where all are, so is the bound.

Bounds are rounded outwards by 1e-9 (1 + |bound|), a million times what sums of this size lose in
float64, so that they hold for certain as long as no term of a sum exceeds 1e5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "Layers",
    "LinearForms",
    "NeuronBounds",
    "SupportFunction",
    "bound_neurons",
    "box_support",
    "forward",
    "interval_bounds",
    "linear_forms",
    "margin_floors",
    "outward",
]

OUTWARD = 1e-9

Layers = Sequence[tuple[Tensor, Tensor]]
"""(W (out, in), b (out,)) of each layer, float64."""

SupportFunction = Callable[[Tensor], Tensor]
"""Directions (s, r, d) -> (s, r): the largest `w.x` over each of s sets."""


def outward(bound: Tensor) -> Tensor:
    """Return upper bounds, raised by more than rounding may have taken from them."""
    return bound + OUTWARD * (1 + bound.abs())


def box_support(lower: Tensor, upper: Tensor) -> SupportFunction:
    """Return the support function of boxes with corners (s, d)."""

    def largest(w: Tensor) -> Tensor:
        corner = torch.where(w > 0, upper[:, None], lower[:, None])
        return torch.where(w == 0, 0.0, w * corner).sum(-1)

    return largest


def forward(layers: Layers, x: Tensor) -> list[Tensor]:
    """Return what every layer gives for inputs (n, d), before its ReLU; the last is the output.

    >>> first = torch.tensor([[1.0], [-1.0]]), torch.zeros(2)
    >>> layers = [first, (torch.ones(1, 2), torch.ones(1))]
    >>> [z.tolist() for z in forward(layers, torch.tensor([[2.0]]))]
    [[[2.0, -2.0]], [[3.0]]]
    """
    out, hidden = [], x
    for number, (weight, bias) in enumerate(layers):
        hidden = (hidden.relu() if number else hidden) @ weight.T + bias
        out.append(hidden)
    return out


@dataclass(frozen=True, eq=False)
class NeuronBounds:
    """Where the inputs of the ReLUs of s networks-over-a-set lie.

    Attributes:
        low: (s, n) smallest values, one tensor for each hidden layer.
        high: (s, n) largest values.
        empty: (s,) bool, sets in which no input has the sides that were asked for.
    """

    low: tuple[Tensor, ...]
    high: tuple[Tensor, ...]
    empty: Tensor

    def lines(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return slope and height of the upper line, and the slope of the lower one, (s, n)."""
        low, high = self.low[layer], self.high[layer]
        on, off = low >= 0, high <= 0
        wide = torch.where(on | off, torch.ones_like(low), high - low)
        upper = torch.where(on, 1.0, torch.where(off, 0.0, high / wide))
        height = torch.where(on | off, 0.0, -upper * low)
        lower = torch.where(on, 1.0, torch.where(off, 0.0, (high > -low).to(low)))
        return upper, height, lower

    def gaps(self, layer: int) -> Tensor:
        """Return (s, n) how far the upper line is from the ReLU at worst; 0 if it is decided."""
        low, high = self.low[layer], self.high[layer]
        open_ = (low < 0) & (high > 0)
        return torch.where(open_, -low * high / (high - low).clamp(min=1e-300), 0.0)

    @property
    def undecided(self) -> Tensor:
        """(s,) number of ReLUs that may be on either side."""
        parts = zip(self.low, self.high, strict=True)
        total = torch.zeros(len(self.empty), dtype=torch.int64)
        for low, high in parts:
            total = total + ((low < 0) & (high > 0)).sum(1)
        return total


@dataclass(frozen=True, eq=False)
class LinearForms:
    """Upper bounds `slope.x + height` (s, r) of r combinations of a layer.

    Attributes:
        slope: (s, r, d).
        height: (s, r), rounded up.
        blame: for each hidden layer below, (s, r, n) how much each ReLU loosens the bound.
    """

    slope: Tensor
    height: Tensor
    blame: tuple[Tensor, ...] = ()

    def at(self, x: Tensor) -> Tensor:
        """Return the forms (s, r) at one input (s, d) of each set."""
        return (self.slope @ x[..., None])[..., 0] + self.height


def linear_forms(
    layers: Layers, number: int, mix: Tensor, bounds: NeuronBounds, *, blame: bool = False
) -> LinearForms:
    """Bound combinations of a layer from above by linear functions of the input.

    Args:
        layers: the network.
        number: which layer, counted from 0.
        mix: (s, r, n) combinations of its values before the ReLU.
        bounds: of the layers below.
        blame: whether to tell what loosens the bounds.
    """
    weight, bias = layers[number]
    return _carried_down(layers, number, mix @ weight, mix @ bias, bounds, blame=blame)


def _carried_down(
    layers: Layers,
    number: int,
    slope: Tensor,
    height: Tensor,
    bounds: NeuronBounds,
    *,
    blame: bool = False,
) -> LinearForms:
    """Turn forms (s, r, n), (s, r) of what enters a layer into forms of the input."""
    size = height.abs()
    found: list[Tensor] = []
    for at in range(number - 1, -1, -1):
        upper, up, lower = bounds.lines(at)
        rise, fall = slope.clamp(min=0), slope.clamp(max=0)
        part = (rise @ up[..., None])[..., 0]
        height, size = height + part, size + part.abs()
        if blame:
            found.append(slope.abs() * bounds.gaps(at)[:, None])
        slope = rise * upper[:, None] + fall * lower[:, None]
        weight, bias = layers[at]
        part = slope @ bias
        height, size = height + part, size + part.abs()
        slope = slope @ weight
    return LinearForms(slope, height + OUTWARD * (1 + size), tuple(found[::-1]))


def bound_neurons(
    layers: Layers,
    support: SupportFunction,
    sets: int,
    *,
    sides: Tensor | None = None,
    known: NeuronBounds | None = None,
) -> NeuronBounds:
    """Bound the inputs of all ReLUs of a network over sets.

    Args:
        layers: the network; the last layer has no ReLU.
        support: of the sets.
        sets: how many there are.
        sides: (s, h) +1 for ReLUs that are given to be on, -1 for off, 0 for open; all hidden
            layers one after the other.
        known: bounds that hold already, such as those of larger sets.
    """
    low: list[Tensor] = []
    high: list[Tensor] = []
    empty = torch.zeros(sets, dtype=torch.bool)
    start = 0
    for number, (weight, bias) in enumerate(layers[:-1]):
        width = len(bias)
        below = NeuronBounds(tuple(low), tuple(high), empty)
        slope, height = torch.cat([weight, -weight]), torch.cat([bias, -bias])
        forms = _carried_down(
            layers, number, slope.expand(sets, -1, -1), height.expand(sets, -1), below
        )
        top = outward(support(forms.slope) + forms.height)
        most, least = top[:, :width], -top[:, width:]
        if number:  # boxes carried through the layer are sometimes tighter
            box = interval_layer(weight, bias, low[-1].relu(), high[-1].relu())
            least, most = (
                torch.maximum(least, -outward(-box[0])),
                torch.minimum(most, outward(box[1])),
            )
        if known is not None:
            least = torch.maximum(least, known.low[number])
            most = torch.minimum(most, known.high[number])
        if sides is not None:
            side = sides[:, start : start + width]
            least = torch.where(side > 0, least.clamp(min=0), least)
            most = torch.where(side < 0, most.clamp(max=0), most)
        empty = empty | (least > most).any(1)
        low.append(least)
        high.append(torch.maximum(least, most))
        start += width
    return NeuronBounds(tuple(low), tuple(high), empty)


def interval_layer(
    weight: Tensor, bias: Tensor, low: Tensor, high: Tensor, delta: float | Tensor = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the least and largest `W' h + b'` for h in boxes (s, in), (s, out) each.

    Args:
        weight: (out, in), or (s, out, in) for one matrix per set.
        bias: (out,) or (s, out).
        low: (s, in) corners.
        high: (s, in).
        delta: by how much each weight and bias may differ from the given one; one number,
            (s, 1), or (s, out).
    """
    up, down = (low.clamp(min=0), high.clamp(min=0)), ((-high).clamp(min=0), (-low).clamp(min=0))
    below = bool((low < 0).any())  # otherwise, as behind a ReLU, nothing goes down
    if isinstance(delta, Tensor):
        weight = weight.expand(len(low), -1, -1)
        slack: float | Tensor = delta[..., None]
    else:
        slack = delta
    ends = []
    for sign in (1.0, -1.0):  # the largest value is minus the least one of -W, -b
        total = (sign * bias - delta).expand(len(low), -1)
        # What a unit of h brings at least, and a unit of -h.
        sides = [(sign * weight - slack, up)]
        if below:
            sides.append((-sign * weight - slack, down))
        for w, (least, most) in sides:
            total = total + _through(w.clamp(min=0), least) + _through(w.clamp(max=0), most)
        ends.append(sign * total)
    return ends[0], ends[1]


def _through(weight: Tensor, h: Tensor) -> Tensor:
    """Return `W h` (s, out) for one matrix (out, in), or for one per set (s, out, in)."""
    return h @ weight.T if weight.dim() == 2 else (weight @ h[..., None])[..., 0]


def interval_bounds(
    layers: Layers, lower: Tensor, upper: Tensor, *, delta: float = 0.0
) -> tuple[NeuronBounds, tuple[Tensor, Tensor]]:
    """Carry boxes (s, d) through a network whose weights are known up to `delta`.

    Returns:
        bounds of the hidden layers, and the least and largest outputs (s, out).
    """
    low: list[Tensor] = []
    high: list[Tensor] = []
    ends = lower, upper
    for number, (weight, bias) in enumerate(layers):
        if number:
            low.append(ends[0])
            high.append(ends[1])
            ends = ends[0].relu(), ends[1].relu()
        least, most = interval_layer(weight, bias, *ends, delta=delta)
        ends = -outward(-least), outward(most)
    empty = torch.zeros(len(lower), dtype=torch.bool)
    return NeuronBounds(tuple(low), tuple(high), empty), ends


def margin_floors(layers: Layers, x: Tensor, mix: Tensor, delta: float | Tensor) -> Tensor:
    """Bound differences of outputs from below over all weights and biases within `delta`.

    Exact for networks with at most one hidden layer, where every neuron has weights of its own;
    a lower bound for deeper ones.

    Args:
        layers: the network.
        x: (n, d) inputs.
        mix: (n, r, out) differences of outputs; the weights of each output may move.
        delta: largest change of a weight or bias, one number or (n, 1).

    Returns:
        (n, r) lower bounds, rounded down.
    """
    ends = x, x
    for number, (weight, bias) in enumerate(layers[:-1]):
        if number:
            ends = ends[0].relu(), ends[1].relu()
        least, most = interval_layer(weight, bias, *ends, delta=delta)
        ends = -outward(-least), outward(most)
    if len(layers) > 1:
        ends = ends[0].relu(), ends[1].relu()
    weight, bias = layers[-1]
    loss = delta * mix.abs().sum(-1)  # (n, r): all outputs of a difference move at once
    least, _ = interval_layer(mix @ weight, mix @ bias, *ends, delta=loss)
    return -outward(-least)
