"""Random numbers per row against another implementation of the same generator, and their laws."""

import struct

import pytest
import torch
from scipy import stats

from cel.search import RowStreams
from cel.search.streams import row_keys

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    """Scramble as SplitMix64 does, in Python's own whole numbers."""
    z %= WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def signed(z):
    z %= WORD
    return z - WORD if z >= WORD // 2 else z


def key(row, seed):
    total = 0
    for place, value in enumerate(row, 1):
        (bits,) = struct.unpack("<i", struct.pack("<f", value))
        total += mix(bits + mix(place * GOLDEN))
    return signed(mix(total + seed * signed(GOLDEN) % 2**62))


def number(key, draw, position):
    start = mix(key + mix((draw + 1) * GOLDEN))
    return (mix(start + position * GOLDEN) >> 40) / 2**24


@pytest.mark.parametrize("seed", [0, 1, 123456])
def test_keys_and_numbers_equal_another_implementation(seed):
    rows = [[0.5, -1.25, 3.0], [0.1, 0.0, -7.5e8], [1e-20, 2.0, 2.0]]
    x = torch.tensor(rows)
    rounded = x.tolist()
    assert row_keys(x, seed).tolist() == [key(r, seed) for r in rounded]
    stream = RowStreams.of(x, seed)
    for draw in range(3):
        drawn = stream.uniform(2, 3).reshape(3, -1).tolist()
        assert drawn == [[number(key(r, seed), draw, i) for i in range(6)] for r in rounded]


def test_keys_know_content_place_and_seed():
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [0.0, 2.0], [-0.0, 2.0]])
    a = row_keys(x, 0).tolist()
    assert a[0] == a[2] != a[1]
    assert a[3] == a[4]
    assert row_keys(x.double(), 0).tolist() == row_keys(x.numpy(), 0).tolist() == a
    assert len({*a, *row_keys(x, 1).tolist(), *row_keys(x, 2).tolist()}) == 9


def test_every_draw_is_new_and_rows_keep_theirs():
    stream = RowStreams.of(torch.rand(4, 3, generator=torch.Generator().manual_seed(0)), 5)
    first, second = stream.uniform(7), stream.uniform(7)
    assert stream.draw == 2
    assert len(stream) == 4
    assert not (first == second).any()
    part = stream.select(torch.tensor([2, 0]))
    assert torch.equal(part.uniform(7), stream.uniform(7)[[2, 0]])
    assert stream.draw == 3


def test_numbers_follow_their_laws():
    stream = RowStreams.of(torch.arange(20.0)[:, None], 3)
    u = stream.uniform(2000).flatten()
    assert 0 <= float(u.min()) < float(u.max()) < 1
    assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-3
    z = stream.normal(1000, 2)
    assert z.shape == (20, 1000, 2)
    assert stats.kstest(z.flatten().numpy(), "norm").pvalue > 1e-3
    assert abs(float(torch.corrcoef(z.flatten(0, 1).T)[0, 1])) < 0.03
    k = stream.integers(7, 2000).flatten()
    assert {*k.tolist()} == set(range(7))
    assert stats.chisquare(torch.bincount(k).numpy()).pvalue > 1e-3


def test_normals_are_box_muller_of_two_draws():
    x = torch.tensor([[0.25]])
    u, v = (number(key([0.25], 9), draw, 0) for draw in (0, 1))
    stream = RowStreams.of(x, 9)
    z = float(stream.normal(1))
    expected = (-2 * torch.log1p(torch.tensor(-u))).sqrt() * torch.cos(
        torch.tensor(2 * torch.pi * v)
    )
    assert z == pytest.approx(float(expected), abs=1e-6)
    assert stream.draw == 2
