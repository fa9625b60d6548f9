"""Random numbers per row against another implementation of the same generator, and their laws."""

import struct

import numpy as np
import pytest
import torch
from scipy import stats

from cel.search import RowStreams
from cel.search.streams import _mix, _mix_number, _mix_words, content_keys, row_keys

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


def test_every_device_scrambles_alike():
    words = [0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF, GOLDEN]
    wanted = [mix(w) for w in words]
    assert [_mix_number(w) for w in words] == wanted
    assert _mix_words(np.array(words, dtype=np.uint64)).tolist() == wanted
    assert _mix(torch.tensor([signed(w) for w in words])).tolist() == [signed(w) for w in wanted]


@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_content_keys_tell_equal_rows_and_no_others(width):
    """Rows of a coarse grid with two values exchanged: what weak keys confuse."""
    generator = torch.Generator().manual_seed(width)
    row = torch.randint(0, 17, (width,), generator=generator) / 16
    i, j = torch.randint(0, width, (2, 4000), generator=generator)
    x = row.repeat(4000, 1)
    at = torch.arange(4000)
    x[at, i], x[at, j] = row[j], row[i]
    x[::2] = -x[::2]  # -0.0 is 0.0
    _, number = x.unique(dim=0, return_inverse=True)
    keys = content_keys(x)
    _, ours = keys.unique(return_inverse=True)
    assert len({*zip(ours.tolist(), number.tolist(), strict=True)}) == len(set(ours.tolist()))
    assert len(set(ours.tolist())) == len(set(number.tolist()))
    assert torch.equal(content_keys(x.double()), keys)
    assert torch.equal(content_keys(x[:3]), keys[:3])
    assert content_keys(x[:0]).shape == (0,)


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
