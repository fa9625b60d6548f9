"""Bounds of ReLU networks: they hold everywhere, and are exact where they can be."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from cel.search import relu_bounds
from cel.search.relu_bounds import (
    bound_neurons,
    box_support,
    forward,
    interval_bounds,
    linear_forms,
    margin_floors,
)


def network(widths, seed=0):
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise(widths)
    return [
        (torch.as_tensor(rng.normal(size=(b, a))), torch.as_tensor(rng.normal(size=b)))
        for a, b in pairs
    ]


def boxes(count, d, seed=1):
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.normal(size=(2, count, d)), axis=0)
    return torch.as_tensor(ends[0]), torch.as_tensor(ends[1])


def draws(low, high, count, seed=2):
    share = torch.as_tensor(np.random.default_rng(seed).random((count, *low.shape)))
    share[: count // 2] = share[: count // 2].round()  # corners
    return low + share * (high - low)


@pytest.mark.parametrize("widths", [(3, 2), (3, 8, 2), (4, 8, 6, 3), (2, 5, 5, 5, 2)])
def test_bounds_contain_all_values(widths, deviation):
    """100,000 inputs of 20 boxes, half of them corners: no value lies outside."""
    layers = network(widths)
    low, high = boxes(20, widths[0])
    x = draws(low, high, 5000)
    values = forward(layers, x.reshape(-1, widths[0]))
    linear = bound_neurons(layers, box_support(low, high), 20)
    carried, ends = interval_bounds(layers, low, high)
    mix = torch.as_tensor(np.random.default_rng(3).normal(size=(20, 4, widths[-1])))
    forms = linear_forms(layers, len(layers) - 1, mix, linear)
    out = values[-1].reshape(5000, 20, -1)
    above = (mix @ out[..., None])[..., 0] - ((forms.slope @ x[..., None])[..., 0] + forms.height)
    beyond = [above.max(), (out - ends[1]).max(), (ends[0] - out).max()]
    for bounds in (linear, carried):
        for layer, z in enumerate(values[:-1]):
            z = z.reshape(5000, 20, -1)
            beyond += [(z - bounds.high[layer]).max(), (bounds.low[layer] - z).max()]
    deviation(
        max(float(b) for b in beyond), oracle="sampled inputs", limit=0.0, unit="outside a bound"
    )


def test_linear_bounds_are_tighter_than_intervals():
    layers = network((4, 10, 10, 2))
    low, high = boxes(50, 4)
    linear = bound_neurons(layers, box_support(low, high), 50)
    carried, _ = interval_bounds(layers, low, high)
    assert (linear.high[1] <= carried.high[1] + 1e-6).all()
    width = (linear.high[1] - linear.low[1]).sum() / (carried.high[1] - carried.low[1]).sum()
    assert width < 0.9


def test_bounds_of_one_layer_are_its_extremes(deviation):
    """Before the first ReLU everything is linear: the corners of the box attain the bounds."""
    layers = network((3, 6, 2))
    low, high = boxes(10, 3)
    bounds = bound_neurons(layers, box_support(low, high), 10)
    corners = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=torch.float64)
    points = low[:, None] + corners * (high - low)[:, None]
    z = points @ layers[0][0].T + layers[0][1]
    gap = torch.maximum((bounds.high[0] - z.amax(1)).abs(), (bounds.low[0] - z.amin(1)).abs())
    deviation(gap.numpy(), oracle="corners", limit=1e-7, unit="absolute")


def test_given_sides_make_the_bound_exact(deviation):
    """With the sides of all ReLUs given, the form is the network itself there."""
    layers = network((3, 5, 4, 2))
    x = torch.as_tensor(np.random.default_rng(4).normal(size=(30, 3)))
    before = forward(layers, x)
    sides = torch.cat(before[:-1], 1).sign().to(torch.int8)
    support = box_support(x - 2, x + 2)
    bounds = bound_neurons(layers, support, 30, sides=sides)
    mix = torch.eye(2, dtype=torch.float64).expand(30, -1, -1)
    forms = linear_forms(layers, 2, mix, bounds, blame=True)
    deviation((forms.at(x) - before[-1]).abs().numpy(), oracle="the network", limit=1e-7,
              unit="absolute")  # fmt: skip
    assert not bounds.empty.any()
    assert all(float(b.max()) == 0.0 for b in forms.blame)


def test_sides_that_no_input_has_are_noticed():
    layers = [(torch.tensor([[1.0]]).double(), torch.tensor([5.0]).double())] * 2
    support = box_support(torch.zeros(1, 1).double(), torch.ones(1, 1).double())
    off = bound_neurons(layers, support, 1, sides=torch.tensor([[-1]]))
    on = bound_neurons(layers, support, 1, sides=torch.tensor([[1]]))
    assert off.empty.tolist() == [True]
    assert on.empty.tolist() == [False]


def test_bounds_are_rounded_outwards(monkeypatch):
    """In float64 the sum 1 + 2^-60 is 1: below what it bounds, unless it is rounded up."""
    w = torch.tensor([[1.0, 2.0**-60]]).double()
    layers = [(w, torch.zeros(1).double()), (torch.ones(1, 1).double(), torch.zeros(1).double())]
    one = torch.ones(1, 2).double()
    exact = Fraction(1) + Fraction(1, 2**60)

    def upper():
        linear = bound_neurons(layers, box_support(0 * one, one), 1).high[0]
        return [float(linear), float(interval_bounds(layers, 0 * one, one)[0].high[0])]

    assert all(Fraction(u) >= exact for u in upper())
    monkeypatch.setattr(relu_bounds, "OUTWARD", 0.0)
    assert all(Fraction(u) < exact for u in upper())


def moved_weights(layers, delta):
    """All networks whose weights and biases are at the ends of their intervals."""
    flat = torch.cat([t.reshape(-1) for pair in layers for t in pair])
    for signs in itertools.product([-1.0, 1.0], repeat=len(flat)):
        moved = flat + delta * torch.tensor(signs, dtype=torch.float64)
        parts = torch.split(moved, [t.numel() for pair in layers for t in pair])
        shaped = [p.reshape(t.shape) for p, t in zip(parts, (t for q in layers for t in q),
                                                     strict=True)]  # fmt: skip
        yield list(zip(shaped[::2], shaped[1::2], strict=True))


@pytest.mark.parametrize("widths", [(2, 2), (1, 2, 2)])
def test_weight_intervals_are_exact_with_one_hidden_layer(widths, deviation):
    """Equal to the least margin over all corners of the weights."""
    layers = network(widths, seed=5)
    x = torch.as_tensor(np.random.default_rng(6).normal(size=(8, widths[0])))
    mix = torch.tensor([[[1.0, -1.0]]], dtype=torch.float64).expand(8, -1, -1)
    delta = 0.2
    least = torch.full((8,), torch.inf, dtype=torch.float64)
    for moved in moved_weights(layers, delta):
        out = forward(moved, x)[-1]
        least = torch.minimum(least, out[:, 0] - out[:, 1])
    floors = margin_floors(layers, x, mix, delta)[:, 0]
    deviation.absolute(floors, least, oracle="all corner weights", limit=1e-7)
    assert (floors <= least).all()


def test_weight_intervals_hold_for_deep_networks(deviation):
    layers = network((3, 6, 5, 3), seed=7)
    x = torch.as_tensor(np.random.default_rng(8).normal(size=(10, 3)))
    eye = torch.eye(3, dtype=torch.float64)
    mix = torch.stack([eye[0] - eye[1], eye[0] - eye[2]]).expand(10, -1, -1)
    floors = margin_floors(layers, x, mix, 0.05)
    rng = np.random.default_rng(9)
    below = -np.inf
    for _ in range(2000):
        moved = [
            tuple(t + 0.05 * torch.as_tensor(np.sign(rng.normal(size=t.shape))) for t in pair)
            for pair in layers
        ]
        out = (mix @ forward(moved, x)[-1][..., None])[..., 0]
        below = max(below, float((floors - out).max()))
    deviation(below, oracle="sampled weights", limit=0.0, unit="below a floor")
