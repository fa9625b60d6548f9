"""Short ways of training give the bytes of the long ones, on one thread of a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cel.models.generative import MaskedAutoregressiveFlow, MixedDensity
from cel.models.generative.flows.bijections import Spline
from cel.models.generative.flows.flow import Flow
from cel.models.generative.mixed.categorical import CategoricalNet
from cel.models.generative.mixed.category_terms import CategoryTerms
from cel.models.training import loop
from cel.models.training.by_hand import _ByGraph
from cel.models.training.many import fit_many
from cel.preprocessing.blocks import Blocks
from cel.space import Feature, FeatureSpace

pytestmark = pytest.mark.usefixtures("one_thread")


def same(a, b):
    """Equal to the byte, but for the sign of zeros."""
    return torch.equal(a, b) and not a.isnan().any()


def choices(sizes, n, soft, seed=0):
    """Rows of one-hot blocks; `soft` shares some of them between two neighbours."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for size in sizes:
        first = torch.randint(size, (n,), generator=generator)
        part = torch.zeros(n, size)
        part[torch.arange(n), first] = 1.0
        if soft and size > 1:
            share = torch.rand(n, generator=generator) * (first < size - 1)
            part[torch.arange(n), first] -= share
            part[torch.arange(n), (first + 1).clamp(max=size - 1)] += share
        parts.append(part)
    return torch.cat(parts, 1)


SIZES = [(9, 7, 15, 6, 2, 42, 16), (12, 2, 3, 12), (2, 8), (3, 16, 5), (70, 20, 33), (7, 2, 5)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("n", [1, 37, 512])
@pytest.mark.parametrize("soft", [False, True])
def test_terms_of_chosen_categories_are_those_of_the_table(sizes, n, soft):
    compare(sizes, choices(sizes, n, soft))


@pytest.mark.parametrize("sizes", [(42, 16), (11, 5)], ids=str)
def test_every_place_of_the_table_rounds_as_it_did(sizes):
    compare(sizes, torch.rand(5000, sum(sizes), generator=torch.Generator().manual_seed(0)))


def compare(sizes, onehot):
    """Values and gradients of random logits by both ways."""
    net = CategoricalNet(sizes)
    assert net.terms.serves(onehot), "an unknown CPU takes the long way"
    generator = torch.Generator().manual_seed(len(onehot))
    by = torch.randn(len(onehot), generator=generator)
    logits = 3 * torch.randn(onehot.shape, generator=generator)
    found = []
    for short in (False, True):
        given = logits.clone().requires_grad_()
        net._logits = lambda *_, g=given: g
        net.terms.serves = lambda _, s=short: s
        value = net(onehot)
        found.append((value.detach(), *torch.autograd.grad(value, given, by)))
    assert same(found[0][0], found[1][0])
    assert same(found[0][1], found[1][1])


def test_one_variable_or_one_category_takes_the_long_way():
    for sizes, floor in (((5,), 1e-3), ((1, 1), 1e-3), ((2, 3), 0.0)):
        blocks = Blocks(sizes)
        terms = CategoryTerms(blocks, torch.zeros(len(sizes), 1), floor)
        assert not terms.serves(torch.zeros(1, sum(sizes)))
    net = CategoricalNet((2, 3))
    assert not net.terms.serves(torch.zeros(1, 5, dtype=torch.float64))
    assert not net.terms.serves(torch.zeros(1, 5, requires_grad=True))


SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="b", kind="categorical", columns=tuple(range(1, 35)),
                categories=tuple(f"b{i}" for i in range(34))),
        Feature(name="c", kind="integer", columns=(35,), step=1 / 7),
        Feature(name="d", kind="categorical", columns=(36, 37), categories=("x", "y")),
        Feature(name="e", columns=(38,)),
    )
)  # fmt: skip


def table(n, seed):
    rng = np.random.default_rng(seed)
    x = np.zeros((n, 39), dtype=np.float32)
    x[:, 0], x[:, 38] = rng.random(n), rng.normal(0.5, 0.1, n)
    x[:, 1:35] = np.eye(34)[(rng.random(n) ** 2 * 34).astype(int)]
    x[:, 35] = rng.integers(0, 8, n).astype(np.float32) / np.float32(7)  # a grid, up to rounding
    x[:, 36:38] = np.eye(2)[(x[:, 0] > rng.random(n)).astype(int)]
    return x, (x[:, 38] > 0.5).astype(int)


def trained(count, kind=MixedDensity, **settings):
    """Weights and histories of a few epochs."""
    models = [kind(epochs=3, batch_size=100, random_state=s, **settings) for s in range(count)]
    rows = [table(330 + s, s) for s in range(count)]
    fit_many(models, [_fit_rows(*r) for r in rows])
    out = [m.history_[["train_loss", "valid_loss"]].to_numpy().tolist() for m in models]
    return out, [t for m in models for t in m.module_.state_dict().values()]


def _fit_rows(x, y):
    from cel.models.inputs import read_rows

    return read_rows(x, y, SPACE, None)


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("count", [1, 2])
def test_mixed_densities_learn_the_same_bytes_either_way(monkeypatch, preset, count):
    now, weights = trained(count, preset=preset)
    monkeypatch.setattr(CategoryTerms, "serves", lambda *_: False)
    before, plain = trained(count, preset=preset)
    assert now == before
    assert all(same(a, b) for a, b in zip(weights, plain, strict=True))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (MaskedAutoregressiveFlow, {"preset": "paper"}),
        (MaskedAutoregressiveFlow, {"n_hidden": 1, "transforms": 1, "noise": 0.0}),
        (MixedDensity, {"flow": "affine", "hidden": 16}),
    ],
)
def test_a_chain_of_affine_maps_learns_the_same_bytes(monkeypatch, kind, settings):
    monkeypatch.setattr(loop, "gradients", _ByGraph)
    now, weights = trained(1, kind, **settings)
    monkeypatch.setattr(Flow, "_chained", lambda *_: False)
    before, plain = trained(1, kind, **settings)
    assert now == before
    assert all(same(a, b) for a, b in zip(weights, plain, strict=True))


@pytest.mark.parametrize("d", [1, 4, 14, 37])
@pytest.mark.parametrize("shape", [(1,), (33,), (2, 512)], ids=str)
@pytest.mark.parametrize("bins", [2, 8])
def test_splines_as_one_node_have_the_bytes_of_the_graph(d, shape, bins):
    generator = torch.Generator().manual_seed(d)
    bijection = Spline(bins)
    x = 3 * torch.randn(*shape, d, generator=generator)
    x[..., 0] = torch.tensor([-5.0, 5.0, 0.0, 4.9999, 7.0]).repeat(shape[-1])[: shape[-1]]
    params = torch.randn(*shape, bijection.n_params, d, generator=generator)
    by = torch.randn(2, *shape, d, generator=generator)
    found = []
    for way in (bijection.forward, bijection.fused):
        given = x.clone().requires_grad_(), params.clone().requires_grad_()
        out = way(*given)
        found.append((*(t.detach() for t in out), *torch.autograd.grad(out, given, tuple(by))))
    for a, b in zip(*found, strict=True):
        assert same(a, b)
