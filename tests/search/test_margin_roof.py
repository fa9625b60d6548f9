"""Bounds of margins over samples: never too low, and of use."""

import itertools

import pytest
import torch

from cel.benchmark.printed_form import free_space
from cel.cf_methods.local_methods import cchvae
from cel.cf_methods.local_methods.cchvae import CCHVAE
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.search import margin_roof
from cel.search.margin_roof import MarginRoof
from cel.search.shells import grow_shells, shared_ways
from cel.search.streams import RowStreams
from cel.testing.problems import PROBLEMS


def network(n_in, n_out, seed):
    torch.manual_seed(seed)
    sizes = n_in, 48, 40, n_out
    return [
        (torch.randn(b, a) / a**0.5, 0.3 * torch.randn(b)) for a, b in itertools.pairwise(sizes)
    ]


def margins(layers, x, target):
    for weight, bias in layers[:-1]:
        x = torch.relu(x @ weight.T + bias)
    scores = x @ layers[-1][0].T + layers[-1][1]
    at = target[:, None, None].expand(*scores.shape[:2], 1)
    return scores.gather(2, at)[..., 0] - scores.scatter(2, at, -torch.inf).amax(-1)


def test_what_is_ruled_out_does_not_count_and_most_is_ruled_out():
    """Sets of all sizes around many centres, two classes and four; columns that stand still."""
    torch.manual_seed(0)
    for n_out, seed in ((2, 1), (4, 2)):
        layers = network(6, n_out, seed)
        roof, shut, invalid = MarginRoof.of(layers), 0, 0
        for width in (0.01, 0.1, 0.5, 2.0):
            x = torch.rand(40, 1, 6) + width * (torch.rand(40, 50, 6) - 0.5)
            x[..., 4] = 0.5
            target = torch.randint(n_out, (40,))
            true, least = margins(layers, x, target), 0.05
            maybe = roof.open(x, target, least)
            assert not (~maybe & (true >= least)).any(), width
            shut, invalid = shut + int((~maybe).sum()), invalid + int((true < least).sum())
        assert shut > 0.5 * invalid, "bounds that rule nothing out are of no use"


@pytest.mark.parametrize("at_once", [1, 500, 10**6])
def test_close_samples_are_nearly_all_ruled_out(at_once, monkeypatch):
    """Sets of every class at once: what raises a margin differs from set to set."""
    monkeypatch.setattr(margin_roof, "AT_ONCE", at_once)
    monkeypatch.setattr(margin_roof, "PAYS", 0.0)
    torch.manual_seed(3)
    for n_out in (2, 5):
        layers = network(6, n_out, 4)
        roof = MarginRoof.of(layers)
        x = torch.rand(60, 1, 6) + 0.1 * torch.randn(60, 50, 6)
        x[::2, :, 2] = x[::2, :1, 2]
        target = torch.randint(n_out, (60,))
        true = margins(layers, x, target)
        for least in true.flatten().quantile(torch.linspace(0.02, 0.98, 49)).tolist():
            maybe = roof.open(x, target, least)
            assert maybe[true >= least].all(), least
            assert not maybe[true < least - 0.2].any(), least


def test_no_bound_is_too_low():
    """Every bound at every sample, where a set is so wide that most units change sides."""
    torch.manual_seed(6)
    layers = network(6, 3, 5)
    roof, x = MarginRoof.of(layers), 4 * torch.randn(40, 30, 6)
    target = torch.randint(3, (40,))
    true, box = margins(layers, x, target), (x.amin(1), x.amax(1))
    assert (roof._coarse(x, *box, roof._mix(target)) >= true - 1e-4).all()
    push, height, on, turn = roof._middle(x.mean(1), roof._mix(target))
    every = torch.ones(6, dtype=torch.bool)
    for sample in range(30):
        limit = true[turn, sample : sample + 1] - 1e-4
        assert roof._fine(x[turn], every, push, height, on, limit)[:, sample].all()


def test_a_unit_that_changes_sides_among_the_samples():
    """The score of class 0 is relu(x - 0.5), that of class 1 is 0."""
    one, half = torch.ones(1, 1), torch.tensor([-0.5])
    last = torch.tensor([[1.0], [0.0]]), torch.zeros(2)
    roof = MarginRoof.of([(one, torch.zeros(1)), (one, half), last])
    x = torch.linspace(0, 1, 11)[None, :, None]
    assert roof.open(x, torch.tensor([0]), 0.15).tolist() == [7 * [False] + 4 * [True]]
    assert roof.open(x, torch.tensor([1]), -0.15)[0, :7].all()


def test_margins_of_linear_models_are_known():
    torch.manual_seed(5)
    for n_out in (2, 4):
        layers = [(torch.randn(n_out, 3), torch.randn(n_out))]
        x, target = torch.rand(20, 30, 3), torch.randint(n_out, (20,))
        true = margins(layers, x, target)
        maybe = MarginRoof.of(layers).open(x, target, 0.1)
        assert maybe.any()
        assert maybe[true >= 0.1].all()
        assert not maybe[true < 0.09].any()


def test_networks_of_other_depths_have_no_bounds():
    layers = network(3, 2, 0)
    assert MarginRoof.of(layers[:1] + layers[2:]) is None
    assert MarginRoof.of(layers[:2] + layers[1:]) is None


@pytest.mark.parametrize("kind", ["network", "linear"])
def test_cchvae_answers_the_same_without_bounds(kind, monkeypatch):
    """Unscreened C-CHVAE with bounds, with shells judged together, and with neither."""
    problem = PROBLEMS["mixed"]()
    x, y = problem.x_train, problem.outcome(problem.x_train)
    model = LogisticRegression()
    if kind == "network":
        model = MLPClassifier(hidden=(32, 32), epochs=20, random_state=0)
    model.fit(x, y)
    settings = {"samples": 60, "step": 0.05, "steps": 60, "space": free_space(problem.space)}
    method = CCHVAE(model, screened=False, **settings).fit(x, y)
    rows = x[model.predict_proba(x).argmax(1) == 0][:25]
    fast = method.explain(rows, 1)
    monkeypatch.setattr(cchvae, "_CACHE", 1)
    monkeypatch.setattr(cchvae, "_TALL", 100)
    monkeypatch.setattr(cchvae, "_roof_of", lambda query: None)
    monkeypatch.setattr(cchvae, "_open_everywhere", lambda query: False)
    monkeypatch.setattr(cchvae, "_AHEAD", 1)
    plain = method.explain(rows, 1)
    assert fast.found.any()
    assert fast.x_cfs.tobytes() == plain.x_cfs.tobytes()


def test_shells_judged_together_give_the_first_hit_within_the_limit():
    center = torch.zeros(3, 2)
    limit, ways = torch.tensor([30.0, 30.0, 12.0]), shared_ways(4096, center, 2.0)
    wanted = torch.tensor([11.0, 20.0, 12.3])  # the third lies beyond the limit of its row
    asked = []

    def judge(points, rows):
        asked.append(len(rows))
        radius = points.norm(dim=-1)
        assert (radius.amin(1) < limit[rows]).all(), "no row goes beyond its limit"
        return points, torch.where(radius > wanted[rows][:, None], radius, torch.inf)

    streams = RowStreams.of(torch.arange(6.0).reshape(3, 2), 0)
    settings = {"like": center, "rng": streams, "step": 0.5, "samples": 20, "limit": limit}
    one, many = (
        grow_shells(center, judge, ways=ways, ahead=ahead, **settings) for ahead in (1, 16)
    )
    assert one.ok.tolist() == [True, True, False]
    assert max(asked) > len(center), "shells were judged together"
    for name in ("x", "ok", "cost"):
        assert torch.equal(*(getattr(f, name).nan_to_num() for f in (one, many))), name
