"""Flows and mixed densities by hand give the bytes of autograd, and only where they are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cel.models.generative import MaskedAutoregressiveFlow, MixedDensity, NeuralSplineFlow
from cel.models.generative.flows import flow_by_hand, masked_by_hand
from cel.models.generative.flows.bijections import Affine, Shift, Spline
from cel.models.generative.flows.flow import Flow
from cel.models.generative.flows.flow_by_hand import FlowByHand
from cel.models.generative.flows.masked import autoregressive_degrees, coupling_degrees
from cel.models.generative.flows.masked_by_hand import (
    MaskedByHand,
    Workspace,
    same_inside,
    same_narrow,
    same_padded,
)
from cel.models.generative.mixed.mixed_by_hand import MixedByHand
from cel.models.generative.mixed.mixed_net import MixedNet
from cel.models.inputs import read_rows
from cel.models.training import loop
from cel.models.training.by_hand import _ByGraph, gradients, negated
from cel.models.training.many import fit_many
from cel.space import Feature, FeatureSpace

pytestmark = pytest.mark.usefixtures("one_thread")


def names(letter, count):
    return tuple(f"{letter}{i}" for i in range(count))


SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="b", kind="categorical", columns=tuple(range(1, 19)),
                categories=names("b", 18)),
        Feature(name="c", kind="integer", columns=(19,), step=1 / 7),
        Feature(name="d", kind="categorical", columns=(20, 21), categories=names("d", 2)),
        Feature(name="e", columns=(22,)),
        Feature(name="f", columns=(23,)),
    )
)  # fmt: skip


def rows(kind, n, target, seed=0):
    """Rows with 3 classes, with 2 values or with nothing to condition on."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0.5, 0.2, (n, 5)).astype(np.float32)
    x[:, 4] += x[:, 0] * x[:, 1]
    space = None
    if kind is MixedDensity:
        wide = np.zeros((n, 24), dtype=np.float32)
        wide[:, [0, 22, 23]] = x[:, [0, 1, 4]]
        wide[:, 1:19] = np.eye(18)[(rng.random(n) ** 2 * 18).astype(int)]
        wide[:, 19] = rng.integers(0, 8, n).astype(np.float32) / np.float32(7)
        wide[:, 20:22] = np.eye(2)[(x[:, 0] > 0.5).astype(int)]
        x, space = wide, SPACE
    y = {"class": rng.integers(0, 3, n), "value": 5 + 2 * x[:, :2], "none": None}[target]
    return read_rows(x, y, space, None)


def learned(kind, data, count=1, **settings):
    """Return weights and losses as bytes."""
    options = {"epochs": 3, "batch_size": 64} | settings
    models = [kind(random_state=s, **options) for s in range(count)]
    fit_many(models, [data] * count)
    out = [t.numpy().tobytes() for m in models for t in m.module_.state_dict().values()]
    return out + [m.history_.drop(columns="seconds").to_numpy().tobytes() for m in models]


CASES = [
    (MaskedAutoregressiveFlow, {"preset": "paper"}),
    (MaskedAutoregressiveFlow, {"hidden": 13, "n_hidden": 1, "transforms": 3, "noise": 0.0}),
    (MaskedAutoregressiveFlow, {"hidden": 5, "n_hidden": 3, "transforms": 1, "tail": 0.0}),
    (MaskedAutoregressiveFlow, {"limit": 0.7, "batch_size": 48}),
    (NeuralSplineFlow, {}),
    (NeuralSplineFlow, {"hidden": 3, "bins": 3, "bound": 1.0, "batch_size": 33}),
    (NeuralSplineFlow, {"hidden": 3, "n_hidden": 1, "batch_size": 25}),
    (MixedDensity, {"preset": "paper"}),
    (MixedDensity, {"hidden": 11, "dropout": 0.0, "noise": 0.0, "transforms": 3}),
    (MixedDensity, {"flow": "affine", "hidden": 10}),
    (
        MixedDensity,
        {"preset": "paper", "flow": "affine", "transforms": 8, "n_hidden": 4, "hidden": 16},
    ),
]


@pytest.mark.parametrize("target", ["class", "value", "none"])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_both_paths_give_the_same_bytes(monkeypatch, kind, settings, target):
    """Also with a last batch of one row, and for the losses of rows that judge."""
    data, taken = rows(kind, 302, target), []
    monkeypatch.setattr(loop, "gradients", lambda *a: taken.append(gradients(*a)) or taken[-1])
    here = learned(kind, data, **settings)
    assert [type(t) for t in taken] == [MixedByHand if kind is MixedDensity else FlowByHand]
    monkeypatch.setattr(loop, "gradients", _ByGraph)
    assert here == learned(kind, data, **settings)


ROUNDED = {
    "same_inside": masked_by_hand,
    "same_padded": masked_by_hand,
    "same_narrow": flow_by_hand,
}


@pytest.mark.parametrize("check", ROUNDED)
@pytest.mark.parametrize("settings", [{}, {"flow": "affine", "hidden": 16}])
def test_products_that_would_round_otherwise_are_made_as_autograd_makes_them(
    monkeypatch, settings, check
):
    """Where the short way is refused, the long one gives the same bytes."""
    data, asked = rows(MixedDensity, 302, "class"), []
    here = learned(MixedDensity, data, **settings)
    monkeypatch.setattr(ROUNDED[check], check, lambda *shape: asked.append(shape))
    assert here == learned(MixedDensity, data, **settings)
    assert asked


@pytest.mark.parametrize(
    ("check", "shape"),
    [
        (same_inside, (64, 16, 8, 24)),
        (same_padded, (64, 29, 30, 32)),
        (same_narrow, (64, 30, 32, 40, 16)),
    ],
)
def test_products_that_round_otherwise_are_noticed(monkeypatch, check, shape):
    check.cache_clear()
    assert check(*shape), "usual shapes are not copied"
    check.cache_clear()
    plain = torch.mm

    def uneven(a, b, **kept):
        return plain(a, b, **kept).add_(0 if a.is_contiguous() and b.shape[1] > 16 else 1e-6)

    monkeypatch.setattr(torch, "mm", uneven)
    assert not check(*shape)
    check.cache_clear()


def widths(hidden, n):
    """Columns of the first product with 10 outputs, as it is and as it is made for `n` rows."""
    own = MaskedByHand(
        flow(degrees=lambda d, k: autoregressive_degrees(d, 5), hidden=hidden).net, spaced=False
    )
    return own.plain.width, Workspace(own, n).layer.width


def test_first_products_get_a_round_width_where_that_is_little_more_work(monkeypatch):
    monkeypatch.setattr(masked_by_hand, "same_padded", lambda *_: True)
    assert widths(20, 64) == (30, 32)
    assert widths(20, 63) == (30, 30), "few rows"
    assert widths(18, 64) == (28, 28), "14 % more columns"
    assert widths(22, 64) == (32, 32)
    monkeypatch.setattr(masked_by_hand, "same_padded", lambda *_: False)
    assert widths(20, 64) == (30, 30), "rounds otherwise"


@pytest.mark.parametrize(("alike", "columns"), [(True, 16), (False, 3 + 20)])
def test_gradients_of_the_context_are_left_out_where_nothing_else_changes(
    monkeypatch, alike, columns
):
    monkeypatch.setattr(flow_by_hand, "same_narrow", lambda *_: alike)
    kept = FlowByHand(flow(degrees=lambda d, k: autoregressive_degrees(d, 3), n_context=20)).kept(
        64, True
    )
    assert kept.by_inputs.shape == (64, columns)
    assert {b.shape[1] for b in kept.back} == {columns}


@pytest.mark.parametrize("kind", [MaskedAutoregressiveFlow, MixedDensity])
def test_a_stack_learns_by_the_graph(monkeypatch, kind):
    taken = []
    monkeypatch.setattr(loop, "gradients", lambda *a: taken.append(gradients(*a)) or taken[-1])
    learned(kind, rows(kind, 150, "class"), count=2, epochs=1)
    assert {type(t) for t in taken} == {_ByGraph}


def flow(bijection=None, degrees=autoregressive_degrees, kind=Flow, *, hidden=4, **settings):
    return kind(degrees(2, 3), bijection or Affine(), hidden=hidden, n_hidden=2, **settings)


def frozen(module):
    next(module.parameters()).requires_grad_(False)
    return module


@pytest.mark.parametrize(
    "module",
    [
        flow(degrees=coupling_degrees, coupling=True),
        flow(diagonal=True),
        flow(Shift()),
        flow(Spline(bins=1)),
        flow(type("Mine", (Affine,), {})()),
        flow(kind=type("Other", (Flow,), {})),
        flow().double(),
        frozen(flow()),
        torch.nn.Linear(3, 1),
    ],
    ids=["coupling", "diagonal", "shift", "bin", "map", "flow", "double", "frozen", "another"],
)
def test_what_is_not_known_is_left_to_autograd(module):
    loss = MaskedAutoregressiveFlow()._loss
    assert isinstance(gradients(module, loss), _ByGraph)
    assert isinstance(gradients(flow(), loss), FlowByHand)
    assert isinstance(gradients(flow(), lambda m, *batch: -m(*batch)), _ByGraph)
    assert isinstance(gradients(flow(), negated(lambda m, *batch: -m(*batch))), FlowByHand)


@pytest.mark.parametrize("part", ["law", "flow", "floor", "units"])
def test_mixed_densities_with_one_part_or_other_units_are_left_to_autograd(part):
    model = MixedDensity(floor=0.0) if part == "floor" else MixedDensity()
    net = model.prepare(rows(MixedDensity, 100, "class")).module
    assert isinstance(net, MixedNet)
    if part == "units":
        net.flow.context_loc += 1
    elif part != "floor":
        setattr(net, part, None)
    assert isinstance(gradients(net, model._loss), _ByGraph)


def test_batches_of_every_size_keep_their_own_memory():
    """Steps on other numbers of rows in between change nothing."""
    module, data = flow(n_context=2).train(), torch.randn(40, 5)
    steps = FlowByHand(module)
    batches = [(data[:n, :3], data[:n, 3:]) for n in (40, 7, 40, 7)]
    found = []
    for x, context in batches:
        torch.manual_seed(0)
        loss = steps(None, x, context)
        steps.rows(x, context)
        found.append((loss, [p.grad.clone() for p in module.parameters()]))
    for (first, own), (second, again) in zip(found[:2], found[2:], strict=True):
        assert torch.equal(first, second)
        assert all(torch.equal(a, b) for a, b in zip(own, again, strict=True))
