"""Descent over codes judges rows; nearest rows in parts are those of the whole."""

import pytest
import torch

from cel.search import Adam, Budget
from cel.search.latent import latent_search
from cel.search.nearest_rows import nearest


def run(**changes):
    asked = {"steps": 12, "patience": None, "stop_at_first": False} | changes
    seen = []

    def decode(z, rows):
        return torch.cat([z, 2 * z + rows[:, None]], 1)

    def accept(x, rows):
        seen.append(x[:, 0].tolist())
        return x.round(decimals=2), x[:, 0] > 0.5

    found, codes = latent_search(
        lambda z, rows: (z[:, 0] - 2) ** 2,
        torch.tensor([[0.0], [9.0]]),
        like=torch.zeros(2, 2),
        decode=decode,
        accept=accept,
        cost=lambda x, rows: (x[:, 1] - 3.0).abs(),
        stepper=Adam(0.25),
        **asked,
    )
    return found, codes, seen


def test_the_cheapest_decoded_row_is_kept_as_it_is_seen_with_its_code():
    found, codes, seen = run()
    assert found.ok.tolist() == [True, True]
    assert found.x.tolist() == found.x.round(decimals=2).tolist()
    assert codes.shape == (2, 1)
    torch.testing.assert_close(codes[:, 0], found.x[:, 0], atol=0.01, rtol=0)
    passed = [v[0] for v in seen[:13] if v[0] > 0.5]
    nearest_to = min(passed, key=lambda z: abs(2 * z - 3.0))
    assert float(codes[0]) == pytest.approx(nearest_to, abs=1e-6)
    torch.testing.assert_close(found.cost, (found.x[:, 1] - 3).abs())


def test_rows_end_at_the_first_answer_or_without_patience_or_with_the_budget():
    first, codes, _ = run(stop_at_first=True)
    assert float(codes[0]) == pytest.approx(0.73, abs=0.03)
    assert float(codes[1]) == pytest.approx(8.75, abs=1e-4)  # after the first step
    whole = len(run(steps=60)[2])
    assert len(run(steps=60, patience=3)[2]) < whole
    nothing, codes, _ = run(budget=Budget(max_queries=0))
    assert first.ok.all()
    assert not nothing.ok[0]
    assert codes[0].isnan().all()


@pytest.mark.parametrize(("k", "p"), [(1, 2.0), (3, 2.0), (2, 1.0), (9, 2.0)])
def test_nearest_rows_equal_sorting_all_distances(k, p):
    torch.manual_seed(0)
    x, pool = torch.rand(7, 3), torch.rand(5, 3)
    every = (x[:, None] - pool).abs().pow(p).sum(-1).pow(1 / p)
    value, index = every.sort(1)
    for chunk in (1, 10, 2**24):
        d, i = nearest(x, pool, k, p=p, chunk=chunk)
        assert d.shape == (7, min(k, 5))
        torch.testing.assert_close(d, value[:, :k])
        assert i.tolist() == index[:, :k].tolist()


def test_the_earlier_of_two_rows_at_the_same_distance_wins():
    pool = torch.tensor([[5.0], [1.0], [-1.0], [1.0]])
    d, i = nearest(torch.tensor([[0.0]]), pool)
    assert (d.tolist(), i.tolist()) == ([[1.0]], [[1]])


def test_parts_hold_no_more_distances_than_asked(monkeypatch):
    sizes, cdist = [], torch.cdist

    def counted(a, b, **more):
        sizes.append(len(a) * len(b))
        return cdist(a, b, **more)

    monkeypatch.setattr(torch, "cdist", counted)
    nearest(torch.rand(9, 2), torch.rand(5, 2), chunk=20)
    assert sizes == [20, 20, 5]
    assert nearest(torch.rand(2, 2), torch.rand(0, 2))[0].shape == (2, 0)
