"""REVISE: latent descent, against the nearest point and with decoders of known shape."""

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods import REVISE, Wachter
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


def test_the_decoder_never_sees_a_changed_immutable():
    problem = PROBLEMS["mixed"]()
    method = problem.fitted(REVISE, steps=60)
    seen, decode = [], method.codes_.decode
    method.codes_.decode = lambda z, x, hard=False: (seen.append(x), decode(z, x, hard=hard))[1]
    result = method.explain(problem.x, problem.target)
    fixed = ~problem.space.mutable_mask[problem.space.owner]
    own = {tuple(r) for r in problem.x[:, fixed].tolist()}
    assert {tuple(r) for r in torch.cat(seen)[:, fixed].tolist()} <= own
    kept = result.x_cfs[:, fixed] == problem.x[:, fixed]
    assert kept[result.found].all()


@pytest.mark.parametrize("name", ["moons", "wine"])
def test_answers_are_more_plausible_than_nearest_points(name):
    """Most rows of an autoencoder are likelier under a kernel density than nearest points.

    Medians: on Moons a code of one number is a curve that crosses the gap between the arcs, and
    the few answers there pull the mean below that of nearest points.
    """
    from sklearn.neighbors import KernelDensity

    import cel
    from cel.models.classifiers import MLPClassifier

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
