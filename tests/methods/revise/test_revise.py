"""REVISE: latent descent, against the nearest point and with decoders of known shape."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods import REVISE, Wachter
from cel.cf_methods.query import Query
from cel.cf_methods.tangent.decoded_slopes import DecodedSlopes, _margin_slope
from cel.cf_methods.tangent.margins import class_margin
from cel.cf_methods.view import ModelView
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.objectives import hinge
from cel.search import Budget, RowStreams
from cel.search.gradient import row_gradient
from cel.testing.problems import PROBLEMS


class Identity:
    """A latent space that is the input space."""

    def encode(self, x):
        return x.clone()

    def decode(self, z, x, hard=False):
        return z


class Line:
    """Rows on a line through the middle: a decoder with one number."""

    way = torch.tensor([1.0, 1.0, -1.0])

    def encode(self, x):
        return ((x - 0.5) @ self.way)[:, None] / 3

    def decode(self, z, x, hard=False):
        return 0.5 + z * self.way


class Constant(Identity):
    """A decoder that always says the same."""

    def decode(self, z, x, hard=False):
        return 0.0 * z + torch.tensor([0.1, 0.1, 0.9])


def cost(result):
    return np.abs(result.x_cfs - result.x_origs)[result.found].sum(1)


def test_with_an_identity_decoder_it_is_the_nearest_point(deviation):
    """A linear model: within 2 % of the knapsack's L1 optimum."""
    problem = PROBLEMS["binary_numeric"]()
    ours = problem.fitted(
        REVISE, autoencoder=Identity(), rounds=6, steps=1500, lr=0.003, lam=1.0
    ).explain(problem.x, problem.target)
    method = problem.fitted(Wachter, steps=100)
    method.scale_ = torch.ones_like(method.scale_)
    exact = method.explain(problem.x, problem.target)
    assert ours.found.all()
    excess = cost(ours) / cost(exact) - 1
    deviation(excess, oracle="nearest point by L1", limit=0.02, unit="relative excess")


def test_a_dearer_distance_brings_answers_nearer():
    problem = PROBLEMS["binary_curved"]()
    means = []
    for lam in (0.1, 0.5, 2.0):
        method = problem.fitted(REVISE, autoencoder=Identity(), rounds=1, steps=300, lam=lam)
        result = method.explain(problem.x, problem.target)
        means.append(cost(result).mean())
        assert result.found.mean() > 0.8
    assert means[0] >= means[1] >= means[2]


def test_answers_are_decoded_rows():
    problem = PROBLEMS["binary_numeric"]()
    result = problem.fitted(REVISE, autoencoder=Line(), steps=200).explain(
        problem.x, problem.target
    )
    assert result.found.any()
    y = torch.as_tensor(result.x_cfs[result.found])
    back = Line().decode(Line().encode(y), y)
    inside = ((y > 1e-4) & (y < 1 - 1e-4)).all(1)  # rows that no bound has clipped
    assert inside.any()
    torch.testing.assert_close(back[inside], y[inside], atol=1e-5, rtol=0)


def test_a_constant_decoder_finds_nothing():
    problem = PROBLEMS["binary_numeric"]()
    result = problem.fitted(REVISE, autoencoder=Constant()).explain(problem.x, problem.target)
    assert set(result.status) == {"not_found"}


def by_autograd(method):
    """The same method, whose decoder is not read."""
    method.codes_.slopes = lambda dtype: None
    return method


@pytest.mark.parametrize("by_hand", [True, False])
def test_the_decoder_never_sees_a_changed_immutable(by_hand):
    problem = with_model("mixed", LogisticRegression)
    method = problem.fitted(REVISE, steps=60)
    seen = []
    if by_hand:
        slopes = method.codes_.slopes(torch.float32)
        decode = slopes.decode
        slopes.decode = lambda z, x: (seen.append(x), decode(z, x))[1]
        method.codes_.slopes = lambda dtype: slopes
    else:
        decode = by_autograd(method).codes_.decode
        method.codes_.decode = lambda z, x, hard: (seen.append(x), decode(z, x, hard=hard))[1]
    result = method.explain(problem.x, problem.target)
    fixed = ~problem.space.mutable_mask[problem.space.owner]
    own = {tuple(r) for r in problem.x[:, fixed].tolist()}
    assert {tuple(r) for r in torch.cat(seen)[:, fixed].tolist()} <= own
    kept = result.x_cfs[:, fixed] == problem.x[:, fixed]
    assert kept[result.found].all()


def with_model(name, kind, **settings):
    """A problem with a model of the library: its layers are read."""
    problem = PROBLEMS[name]()
    model = kind(**settings).fit(problem.x_train, problem.model.predict(problem.x_train))
    return replace(problem, model=model)


def query_of(p):
    x = torch.as_tensor(p.x)
    return Query(
        x=x, target=torch.full((len(x),), p.target), region=p.space.region(x),
        model=ModelView(p.model), rng=RowStreams.of(x, 0), budget=Budget(),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["binary_numeric", "mixed", "three_classes"])
@pytest.mark.parametrize("kind", [MLPClassifier, LogisticRegression])
def test_gradients_by_hand_are_those_of_autograd(name, kind):
    problem = with_model(name, kind, **({"epochs": 3} if kind is MLPClassifier else {}))
    query, rows = query_of(problem), torch.arange(len(problem.x))
    frozen = torch.zeros(len(rows), len(problem.space), dtype=torch.bool)
    frozen[::2, 0] = True
    query = replace(query, region=query.region.freeze(frozen))
    codes = problem.fitted(REVISE, vae_steps=60).codes_
    slopes = DecodedSlopes.of(query, codes, 0.5)
    weights = torch.linspace(0.1, 3.0, len(rows))
    margin = class_margin(query)

    def loss(z, rows):
        x = codes.decode_for(query, z, rows)
        outside = (x - query.project(x, rows).detach()).square().sum(-1)
        near = (x - query.x[rows]).abs().sum(-1)
        return weights[rows] * hinge(margin(x, rows), 0.5) + near + outside

    generator = torch.Generator().manual_seed(0)
    for spread in (0.1, 1.0, 5.0):
        start = codes.encode(query.x)
        z = start + spread * torch.randn(start.shape, generator=generator)
        value, grad = row_gradient(loss, z, rows)
        ours, slope = slopes.descent(weights)(z, rows)
        torch.testing.assert_close(ours, value, rtol=0, atol=0)
        torch.testing.assert_close(slope, grad, rtol=0, atol=0)
        hard = codes.decode_for(query, z, rows, hard=True)
        assert torch.equal(slopes.decode(z, rows), hard)
        for found, wanted in zip(slopes.accept(hard, rows), query.accept(hard, rows), strict=True):
            assert torch.equal(found, wanted)
        seen, ok = slopes.accept(slopes.decode(z, rows), rows)
        assert torch.equal(seen, query.snap(hard, rows))
        assert torch.equal(ok, query.accept(hard, rows)[1])


def test_equal_scores_share_the_slope_as_autograd_says():
    scores = torch.tensor([[1.0, 2.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0]])
    target, pull = torch.tensor([0, 1, 3]), torch.tensor([-1.0, 0.5, 2.0])
    view = ModelView(PROBLEMS["three_classes"]().model)
    scores.requires_grad_(True)
    (wanted,) = torch.autograd.grad((view.margin_of(scores, target) * pull).sum(), scores)
    assert torch.equal(_margin_slope(scores.detach(), target, pull), wanted)


@pytest.mark.parametrize("rounds", [1, 3])
def test_answers_by_hand_are_those_of_autograd(rounds):
    problem = with_model("mixed", MLPClassifier, hidden=(16, 8), epochs=60)
    method = problem.fitted(REVISE, steps=100, vae_steps=200, rounds=rounds)
    ours = method.explain(problem.x, problem.target)
    theirs = by_autograd(method).explain(problem.x, problem.target)
    assert ours.found.any()
    assert ours.x_cfs.tobytes() == theirs.x_cfs.tobytes()


def test_layers_that_score_another_way_are_not_taken():
    problem = PROBLEMS["binary_curved"]()
    codes = problem.fitted(REVISE, vae_steps=60).codes_
    assert DecodedSlopes.of(query_of(problem), codes, 0.5) is None
    problem.model.linear_ = lambda: (problem.model.weights, problem.model.bias)
    assert DecodedSlopes.of(query_of(problem), codes, 0.5) is None


@pytest.mark.parametrize("name", ["moons", "wine"])
def test_answers_are_more_plausible_than_nearest_points(name):
    """Most rows of an autoencoder are likelier under a kernel density than nearest points.

    Medians: on Moons a code of one number is a curve that crosses the gap between the arcs, and
    the few answers there pull the mean below that of nearest points.
    """
    from sklearn.neighbors import KernelDensity

    import cel

    split = cel.load_dataset(name).split()
    model = MLPClassifier(hidden=(32, 32), epochs=60).fit(split.loader("train"))
    rows = split.test.X[model.predict(split.test.X) == 1][:60]
    logp = []
    for method in (REVISE(model), Wachter(model, distance="l2")):
        result = method.fit(split).explain(rows, 0)
        assert result.found.mean() > 0.5
        kde = KernelDensity(bandwidth=0.1).fit(split.train.X)
        logp.append(np.median(kde.score_samples(result.x_cfs[result.found])))
    assert logp[0] > logp[1]
