"""Dequantizers against exact probabilities of discrete rows."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch

from cel.datasets import load_dataset
from cel.datasets.mixed import MixedDistribution
from cel.errors import DataError
from cel.preprocessing.dequantization import (
    NoiseDequantizer,
    UniformDequantizer,
    VariationalDequantizer,
    importance_bound,
    log_logit_normal,
)
from cel.space import Feature, FeatureSpace

KINDS = (UniformDequantizer, NoiseDequantizer, VariationalDequantizer)
EMBEDDED = ("mixed", "wine", "digits", "moons", "diabetes", "synthetic", "blobs")
FILES = ("adult", "german_credit", "law", "heloc", "bank_marketing", "credit_default", "audit")
SPACE = FeatureSpace(
    (
        Feature(name="a", kind="categorical", columns=(3, 0), categories=("u", "v")),
        Feature(name="b", kind="integer", columns=(1,), step=0.25, lower=-1.0, upper=1.0),
        Feature(name="c", columns=(2,)),
        Feature(name="d", kind="categorical", columns=(4, 5, 6), categories=(1, 2, 3)),
        Feature(name="e", kind="ordinal", columns=(7,), step=0.5, categories=(1, 2, 3)),
        Feature(name="f", kind="categorical", columns=(8,), categories=("x", "y", "z")),
    )
)


def make(kind, space):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(space=space)


def stirred(dequantizer):
    """Return a learned dequantizer whose law depends on the row."""
    generator = torch.Generator().manual_seed(3)
    for p in dequantizer.parameters():
        p.data += 0.3 * torch.randn(p.shape, generator=generator)
    return dequantizer


def rows_of_space(n=500, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((n, SPACE.width))
    x[:, [3, 0]] = np.eye(2)[rng.integers(0, 2, n)]
    x[:, 1] = -1 + 0.25 * rng.integers(0, 9, n)
    x[:, 2] = rng.random(n)
    x[:, [4, 5, 6]] = np.eye(3)[rng.integers(0, 3, n)]
    x[:, 7] = 0.5 * rng.integers(0, 3, n)
    x[:, 8] = rng.integers(0, 3, n)
    return torch.from_numpy(x.astype(np.float32))


def check_inverse(dequantizer, x, deviation):
    v, log_q = dequantizer.dequantize(x, torch.Generator().manual_seed(1))
    assert v.shape == x.shape
    assert log_q.shape == (len(x),)
    assert log_q.isfinite().all()
    back = dequantizer.quantize(v)
    assert torch.equal(back, x)
    deviation.absolute(back.detach(), x, oracle="the row itself", limit=0)


@pytest.mark.parametrize("kind", KINDS)
def test_quantize_is_the_exact_inverse(kind, deviation):
    dequantizer = make(kind, SPACE)
    check_inverse(dequantizer, rows_of_space(), deviation)
    v, _ = dequantizer.dequantize(rows_of_space(), torch.Generator().manual_seed(1))
    again, _ = dequantizer.dequantize(rows_of_space(), torch.Generator().manual_seed(1))
    assert torch.equal(v, again), "the same generator gives the same draws"
    assert torch.equal(v[:, 2], rows_of_space()[:, 2]), "continuous columns stay"
    assert (
        (v[:, [0, 1, 3, 4, 5, 6, 7, 8]] != rows_of_space()[:, [0, 1, 3, 4, 5, 6, 7, 8]])
        .any(0)
        .all()
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EMBEDDED)
def test_inverse_on_embedded_cards(name, kind, deviation):
    """Quantizing gives back the rows of the embedded datasets bit for bit."""
    split = load_dataset(name).split()
    check_inverse(make(kind, split.space), torch.tensor(split.test.X[:200]), deviation)


@pytest.mark.data
@pytest.mark.skipif("CEL_DATA" not in os.environ, reason="CEL_DATA does not name the data files")
@pytest.mark.parametrize("name", FILES)
def test_inverse_on_cards_with_files(name, deviation):
    """Quantizing gives back the rows of the datasets with files bit for bit."""
    split = load_dataset(name).split()
    for kind in KINDS:
        check_inverse(make(kind, split.space), torch.tensor(split.test.X[:500]), deviation)


def people():
    """All 168 discrete states of the known mixed dataset, encoded, with their probabilities."""
    split = load_dataset("mixed").split()
    states = MixedDistribution().states()
    frame = states.drop(columns="log_prob").assign(income=3.0, savings=1.0)
    raw = frame[[f.name for f in split.raw_space]]
    x = torch.tensor(split.pipeline.transform(raw)).double()
    return split.space, x, torch.tensor(states["log_prob"].to_numpy())


def closed_form(dequantizer, x, log_p, log_f, log_g):
    """Return a density of v that gives the cell of state x_i the probability exp(log_p_i).

    Inside a cell a block has density k prod f(v_k), and a grid column g((v - x) / h + 1/2) / h.
    """
    cells = dequantizer.cells
    table = {
        tuple(row): float(p) for row, p in zip(np.round(x.numpy(), 6).tolist(), log_p, strict=True)
    }
    keys = list(range(x.shape[1]))

    def log_prob(v):
        back = dequantizer.quantize(v).detach()
        state = np.round(back.numpy()[:, keys], 6)
        u = (v - back)[:, cells.grid] / cells.step + 0.5
        own = torch.tensor([table[tuple(row)] for row in state.tolist()], dtype=v.dtype)
        inside = log_f(v[:, cells.block]).sum(-1) + log_g(u).sum(-1)
        return own + inside + cells.log_ways - cells.log_volume

    return log_prob


def uniform(v):
    return torch.where((v > 0) & (v < 1), 0.0, -math.inf).to(v.dtype)


def logit_normal(v):
    return log_logit_normal(v, 0.8)


def normal(v):
    return -0.5 * v.square() - 0.5 * math.log(2 * math.pi)


INSIDE = {  # densities of block entries and of places in a grid cell
    UniformDequantizer: (uniform, uniform),
    NoiseDequantizer: (logit_normal, logit_normal),
    VariationalDequantizer: (normal, logit_normal),
}


def learn(q, log_prob, x, generator, steps=150):
    optimizer = torch.optim.Adam(q.parameters(), lr=0.02)
    for _ in range(steps):
        loss = -importance_bound(log_prob, q, x, generator=generator).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
def test_bound_on_the_known_states(kind, deviation):
    """The bounds of 168 known states lie below their probabilities and estimate them."""
    space, x, log_p = people()
    dequantizer = make(kind, space)
    if kind is VariationalDequantizer:
        dequantizer = dequantizer.double()
    log_prob = closed_form(dequantizer, x, log_p, *INSIDE[kind])
    generator = torch.Generator().manual_seed(0)
    if kind is VariationalDequantizer:
        learn(dequantizer, log_prob, x, generator)
    with torch.no_grad():
        draws = torch.stack(
            [importance_bound(log_prob, dequantizer, x, generator=generator) for _ in range(300)]
        )
    estimate = draws.logsumexp(0) - math.log(len(draws))
    mass = float(estimate.exp().sum())
    deviation.absolute(mass, 1, oracle="sum over all 168 states", limit=0.02)
    weights = log_p.exp()
    bound, exact = float((weights * draws.mean(0)).sum()), float((weights * log_p).sum())
    assert bound <= exact + 1e-6
    several = draws.reshape(10, 30, -1).logsumexp(1).sub(math.log(30)).mean(0)
    assert bound - 1e-9 <= float((weights * several).sum()) <= exact + 0.02
    if kind is UniformDequantizer:
        assert torch.allclose(draws, log_p.expand_as(draws))


def gaussian_cells(space, x, block_means):
    """Return log p(v) with independent normal columns, and the exact log P of rows `x`."""
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    weight = weight / weight.sum()
    phi = torch.distributions.Normal(0.0, 1.0).cdf
    log_p = torch.zeros(len(x), dtype=torch.float64)
    for feature in space:
        columns = list(feature.columns)
        if feature.one_hot:
            m = torch.tensor(block_means[: len(columns)], dtype=torch.float64)
            top = torch.from_numpy(node)[:, None] + m  # (nodes, k): v_c at its nodes
            others = phi(top[:, :, None] - m)  # (nodes, c, i)
            others[:, range(len(m)), range(len(m))] = 1.0
            shares = (torch.from_numpy(weight)[:, None] * others.prod(-1)).sum(0)
            log_p += (x[:, columns] * shares.log()).sum(1)
        elif feature.step or feature.is_categorical:
            half = 0.5 * (feature.step or 1.0)
            value = x[:, columns[0]]
            log_p += (phi(value + half) - phi(value - half)).log()
        else:
            log_p += normal(x[:, columns[0]])

    def log_prob(v):
        means = torch.zeros(v.shape[1], dtype=v.dtype)
        for feature in space.one_hot_features:
            count = len(feature.columns)
            means[list(feature.columns)] = torch.tensor(block_means[:count], dtype=v.dtype)
        return normal(v - means).sum(-1)

    return log_prob, log_p


def test_learned_dequantizer_tightens_the_bound(deviation):
    x = rows_of_space(200).double()
    log_prob, exact = gaussian_cells(SPACE, x, [0.4, -0.3, 0.1])
    q = stirred(make(VariationalDequantizer, SPACE)).double()
    generator = torch.Generator().manual_seed(0)

    def bound(samples):
        terms = [importance_bound(log_prob, q, x, generator=generator) for _ in range(samples)]
        return torch.stack(terms)

    with torch.no_grad():
        before = bound(200).mean(0)
    learn(q, log_prob, x, generator)
    with torch.no_grad():
        draws = bound(500)
        after = draws.mean(0)
    assert before.mean() + 0.1 < after.mean() < exact.mean()
    assert float((exact - after).mean()) < 0.25
    estimate = draws.logsumexp(0) - math.log(len(draws))
    gap = float((estimate - exact).mean())
    deviation.absolute(gap, 0, oracle="Gauss-Hermite quadrature", limit=0.03, unit="mean nats")


def test_order_of_categories_does_not_change_the_bound(deviation):
    """The law of v is the same for every category: the largest of k uniform numbers is on."""
    block = Feature(name="c", kind="categorical", columns=(0, 1, 2), categories=(1, 2, 3))
    dequantizer = UniformDequantizer(space=FeatureSpace((block,)))
    means = []
    for k in range(3):
        x = torch.eye(3)[k].expand(20_000, -1)
        v, log_q = dequantizer.dequantize(x, torch.Generator().manual_seed(k))
        assert torch.allclose(log_q, torch.tensor(math.log(3)))
        means.append(
            torch.cat((v[:, k : k + 1], v[:, [i for i in range(3) if i != k]]), 1).mean(0)
        )
    for mean in means:  # largest and other two of three uniform numbers
        told = {"oracle": "means of ordered uniform numbers", "limit": 0.01}
        deviation.absolute(mean, [0.75, 0.375, 0.375], **told)


def test_fine_grids_can_be_left_alone_and_widths_are_checked():
    x = rows_of_space(5)
    v, log_q = UniformDequantizer(space=SPACE, coarser_than=0.3).dequantize(x)
    assert torch.equal(v[:, 1], x[:, 1])
    assert math.isclose(float(log_q[0]), math.log(2 * 3 / 0.5), rel_tol=1e-5)
    for kind in KINDS:
        with pytest.raises(DataError, match="9 columns"):
            make(kind, SPACE).dequantize(x[:, :4])
