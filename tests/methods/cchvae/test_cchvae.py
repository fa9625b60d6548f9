"""C-CHVAE: shells and autoencoder."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional

from cel.cf_methods.local_methods.cchvae import CCHVAE
from cel.cf_methods.row_codes import fit_codes, unfitted_vae
from cel.models.generative.vae.vae_net import VAENet
from cel.models.inputs import read_rows
from cel.search import Budget, RowStreams
from cel.search.shells import grow_shells, shared_ways
from cel.space import Feature, FeatureSpace
from cel.testing.problems import PROBLEMS


def shells(center, judge, **changes):
    settings = {"step": 0.5, "samples": 400, "limit": torch.full((len(center),), 3.0)} | changes
    streams = RowStreams.of(center, 0)
    return grow_shells(center, judge, like=center, rng=streams, **settings)


def test_shells_follow_each_other_without_gaps(deviation):
    center, seen = torch.tensor([[0.5, -0.5, 0.0]]), []

    def judge(points, rows):
        seen.append((points - center[rows][:, None]).norm(dim=-1))
        return points, torch.full(points.shape[:2], torch.inf)

    found = shells(center, judge)
    assert not found.ok.any()
    assert len(seen) == 6
    for number, radius in enumerate(seen):
        beyond = torch.maximum(0.5 * number - radius, radius - 0.5 * (number + 1))
        deviation(beyond, oracle="radii of the shells", limit=1e-5, unit="absolute")


def test_shared_directions_fill_the_shells_of_every_row(deviation):
    """Rows take stretches of their own: uniform over the sectors, inside the radii of a shell."""
    ways = shared_ways(2**14, torch.zeros(1, 2), 2.0)
    seen = []

    def judge(points, rows):
        seen.append(points)
        return points, torch.full(points.shape[:2], torch.inf)

    center = torch.arange(8.0).reshape(4, 2)
    shells(center, judge, samples=4000, ways=ways)
    radius = (seen[1] - center[:, None]).norm(dim=-1)
    first = (seen[0] - center[:, None]).norm(dim=-1)
    assert first.max() <= radius.min() + 1e-4, "shells do not overlap"
    assert first.min() < 0.1 * first.max()
    away = seen[0] - center[:, None]
    assert not torch.equal(away[0], away[1]), "rows differ"
    assert not torch.equal(away[0].sort(0).values, (seen[1] - center[:, None])[0].sort(0).values)
    sector = ((torch.atan2(away[..., 1], away[..., 0]) / torch.pi + 1) * 4).long().clamp(max=7)
    share = torch.stack([(sector == k).double().mean() * 8 for k in range(8)])
    deviation.absolute(share, 1.0, oracle="uniform law on 8 sectors", limit=0.1, unit="relative")


def test_directions_are_uniform(deviation):
    center, ways = torch.zeros(1, 2), []

    def judge(points, rows):
        ways.append(torch.atan2(points[..., 1], points[..., 0]).flatten())
        return points, torch.full(points.shape[:2], torch.inf)

    shells(center, judge, samples=4000)
    counts = torch.histc(torch.cat(ways), 8, -np.pi, np.pi)
    share = counts / counts.mean()
    deviation.absolute(share, 1.0, oracle="uniform law on 8 sectors", limit=0.1, unit="relative")


def test_each_row_ends_at_its_own_shell(deviation):
    center = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    bar = torch.linspace(0.2, 1.8, 30)

    def judge(points, rows):
        rise = (points - center[rows][:, None])[..., 0]
        cost = (points - center[rows][:, None]).norm(dim=-1)
        return points, cost.masked_fill(rise < bar[rows, None], torch.inf)

    found = shells(center, judge, samples=2000)
    assert found.ok.all()
    assert (found.cost >= bar - 1e-5).all()
    assert (found.cost <= (bar / 0.5).floor() * 0.5 + 1.0).all()
    some = torch.arange(0, 30, 7)

    def judge_some(points, rows):
        return judge(points, some[rows])

    alone = shells(center[some], judge_some, samples=2000)
    deviation.absolute(alone.x, found.x[some], oracle="rows in a batch", limit=1e-6)


def test_a_budget_ends_the_growth():
    """A budget of no time ends the growth of shells at once."""
    center = torch.zeros(2, 2)

    def judge(points, rows):
        return points, torch.full(points.shape[:2], torch.inf)

    budget = Budget(seconds=0.0)
    assert not shells(center, judge, limit=torch.full((2,), 1e9), budget=budget).ok.any()


def test_training_is_reproducible_and_leaves_the_random_state_alone():
    x = torch.rand(200, 4, generator=torch.Generator().manual_seed(1))
    before = torch.get_rng_state()
    settings = {
        "steps": 12,
        "batch_size": 50,
        "lr": 1e-2,
        "beta": 0.1,
        "latent": 2,
        "hidden": (8,),
    }
    space = FeatureSpace.continuous(4)
    a, b = (fit_codes(x, space, seed=3, **settings) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(a.encode(x), b.encode(x))
    other = fit_codes(x, space, seed=4, **settings)
    assert not torch.equal(a.encode(x), other.encode(x))


@pytest.mark.parametrize("n", [30, 120, 527, 5000])
def test_the_autoencoder_sees_as_many_batches_as_it_says(n):
    """Small tables are passed over often, looks at validation rows are few."""
    x = torch.rand(n, 3, generator=torch.Generator().manual_seed(0))
    settings = {"latent": 2, "hidden": (4,), "batch_size": 256, "lr": 1e-3, "beta": 0.1}
    vae = unfitted_vae(x, steps=1000, seed=0, device="cpu", **settings)
    job = vae.prepare(read_rows(x, None, FeatureSpace.continuous(3), None))
    batches = -(-len(job.train[0]) // 256)
    look = job.schedule.passes * batches
    assert 10 <= look < 10 + batches
    assert 1000 <= job.schedule.epochs * look < 1000 + look
    assert job.schedule.patience * look >= 250
    brief = unfitted_vae(x, steps=3, seed=0, device="cpu", **settings)
    assert brief.epochs * brief.passes == max(1, -(-3 // batches))


def test_an_autoencoder_that_learns_no_more_ends_early():
    """Held-out rows of pure noise gain nothing after a while; the best weights are kept."""
    x = torch.rand(60, 6, generator=torch.Generator().manual_seed(0))
    settings = {"latent": 6, "hidden": (64,), "batch_size": 256, "lr": 1e-2, "beta": 0.1}
    vae = unfitted_vae(x, steps=1000, seed=0, device="cpu", **settings)
    history = vae.fit(x).history_
    best = int(history["valid_loss"].argmin()) + 1
    assert len(history) < 60 < vae.epochs
    assert len(history) - best <= vae.patience
    assert history["valid_loss"].iloc[-1] > history["valid_loss"].min()


@pytest.mark.parametrize("size", [0.1, 1.0, 30.0, 100.0, 1e4])
@pytest.mark.parametrize("n", [1, 2000])
def test_categories_by_logits_are_those_by_probabilities(size, n):
    """Logits of all sizes, neighbours among the numbers of the computer, and equal ones."""
    blocks = range(4), range(4, 6), range(6, 11)
    features = [
        Feature(
            name=f"f{b[0]}",
            kind="categorical",
            columns=tuple(b),
            categories=tuple("abcde"[: len(b)]),
        )
        for b in blocks
    ]
    net = VAENet(
        FeatureSpace(tuple(features)), n_context=0, latent=2, hidden=(4,), beta=1.0, samples=2,
        noise=0.1, bounded=True,
    )  # fmt: skip
    logits = size * torch.randn(n, 11, generator=torch.Generator().manual_seed(0))
    chances = net._padded(logits).softmax(-1)
    plain = functional.one_hot(chances.argmax(-1), 5).to(chances)
    kept = logits.clone()
    found = net._likeliest(logits)
    assert found is not None
    assert torch.equal(found, net.blocks.flat(plain))
    assert torch.equal(logits, kept)
    best = logits[:, 4:6].amax(1)
    logits[:, 4], logits[:, 5] = best, torch.nextafter(best, torch.tensor(torch.inf))
    chances = net._padded(logits).softmax(-1)
    plain = functional.one_hot(chances.argmax(-1), 5).to(chances)
    assert torch.equal(net._categories(logits, hard=True), net.blocks.flat(plain))
    logits[0, 4] = logits[0, 5]
    assert net._likeliest(logits) is None


def test_mixed_rows_are_answered_and_differ_from_each_other():
    problem = PROBLEMS["mixed"]()
    result = problem.fitted(CCHVAE, steps=300).explain(problem.x, target=1)
    assert result.found.mean() >= 0.75
    answers = result.x_cfs[result.found]
    assert len(np.unique(answers, axis=0)) == len(answers)


ANSWERS = """
import sys
import numpy as np
from cel.cf_methods.local_methods.cchvae import CCHVAE
from cel.testing.problems import PROBLEMS

problem = PROBLEMS["mixed"]()
method = problem.fitted(CCHVAE, steps=200)
np.savez(sys.argv[1], x=method.explain(problem.x, target=1).x_cfs)
"""


@pytest.mark.slow
def test_answers_do_not_depend_on_the_instructions_of_the_processor(tmp_path):
    """Training adds rounding up; with or without vector instructions the answers are the same."""
    found = []
    for name, setting in (("plain", {"ATEN_CPU_CAPABILITY": "default"}), ("vectors", {})):
        env = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"} | setting
        path = tmp_path / f"{name}.npz"
        subprocess.run([sys.executable, "-c", ANSWERS, str(path)], env=env, check=True)
        found.append(np.load(path)["x"])
    assert np.isfinite(found[0]).any()
    np.testing.assert_allclose(found[0], found[1], atol=1e-3, equal_nan=True)
