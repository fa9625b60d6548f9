"""C-CHVAE: the latent search with an identity decoder, and what the decoder may see."""

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.cchvae import CCHVAE
from cel.cf_methods.row_codes import fit_codes
from cel.protocols import Status, Task
from cel.space import Feature, FeatureSpace
from cel.testing.problems import PROBLEMS, ToyModel


class Identity:
    """A latent space that is the input space; remembers how much it decoded."""

    def __init__(self):
        self.decoded = 0

    def encode(self, x):
        return x.clone()

    def decode(self, z, x, hard=False):
        self.decoded += len(z)
        return z


def line(w, bias):
    w = np.stack([np.zeros(len(w)), w]).astype(np.float32)
    return ToyModel(w, np.array([0, bias], dtype=np.float32), Task.CLASSIFICATION)


def latent_search(model, x, **changes):
    space = FeatureSpace.continuous(x.shape[1], lower=-20, upper=20)
    method = CCHVAE(model, space=space, autoencoder=Identity(), **changes)
    rows = np.random.default_rng(9).normal(size=(50, x.shape[1])).astype(np.float32)
    return method, method.fit(rows).explain(x, target=1)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("step", [0.25, 0.5])
def test_the_radius_is_that_of_the_nearest_point_up_to_one_shell(p, step, deviation):
    """Radii lie between the distance G / |w|_q of the class (q dual to p) and one shell more."""
    w = np.array([2.0, -1.0])
    model = line(w, -1.5)
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    x = x[model.predict(x) == 0][:20]
    _, result = latent_search(model, x, p=p, step=step, samples=4000)
    assert result.found.all()
    radius = np.linalg.norm(result.x_cfs - x, ord=p, axis=1)
    nearest = (1.5 - x @ w) / np.linalg.norm(w, ord=2 if p == 2 else np.inf)
    assert (radius >= nearest - 1e-5).all()
    deviation((radius - nearest) / step, oracle="gap / |w|_q", limit=1.0, unit="shells")
    clear = (nearest / step) % 1 < 0.8
    assert (nearest[clear] < step).any()
    np.testing.assert_array_equal(radius[clear] // step, nearest[clear] // step)


def test_the_winner_is_the_nearest_hit_of_its_shell_in_standardised_l1(deviation):
    """With one shell for everything the answer is near the optimum of standardised L1."""
    w = np.array([2.0, -1.0])
    model = line(w, -1.5)
    x = np.zeros((1, 2), dtype=np.float32)
    method, result = latent_search(model, x, step=4.0, samples=20000)
    unit = method.unit_.numpy()
    cost = np.abs(result.x_cfs[0] / unit).sum()
    best = 1.5 / (np.abs(w) * unit).max()  # weighted L1 to the boundary: one feature moves
    assert best <= cost
    oracle = "gap / max |w| unit"
    deviation.excess(cost, best, oracle=oracle, limit=0.05)


def test_more_samples_bring_answers_nearer_on_average():
    w = np.array([2.0, -1.0, 1.0, 0.5])
    model = line(w, -2.0)
    x = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    x = x[model.predict(x) == 0][:20]
    means = []
    for samples in (10, 50, 250, 1250):
        method, result = latent_search(model, x, samples=samples)
        assert result.found.all()
        means.append((np.abs(result.x_cfs - x) / method.unit_.numpy()).sum(1).mean())
    assert (np.diff(means) < 0).all()


@pytest.mark.parametrize("max_shells", [500, 3])
def test_an_unreachable_class_ends_at_the_radius_of_the_prior(max_shells, deviation):
    model = line(np.zeros(3), -1.0)
    x = np.random.default_rng(2).normal(size=(7, 3)).astype(np.float32)
    method, result = latent_search(model, x, samples=20, max_shells=max_shells)
    assert (result.status == Status.NOT_FOUND.value).all()
    limit = np.linalg.norm(x, axis=1) + 3 * np.sqrt(3)
    shells = np.minimum(np.ceil(limit / 0.5), max_shells).sum()
    oracle = "number of shells in the prior"
    deviation.absolute(method.codes_.vae.decoded, 20 * shells, oracle=oracle, limit=0)


@pytest.mark.parametrize("screened", [False, True])
def test_shells_are_searched_up_to_the_radius_of_the_prior_and_no_further(screened, deviation):
    """However few samples of a shell are asked, the last shell is that of the radius."""
    model = line(np.array([0.01, 0.0, 0.0]), -9.0)  # margins differ, none comes near the class
    x = np.random.default_rng(3).normal(size=(7, 3)).astype(np.float32)
    seen = []

    class Watched(Identity):
        def decode(self, z, x, hard=False):
            seen.append((x, z))
            return super().decode(z, x, hard)

    space = FeatureSpace.continuous(3, lower=-20, upper=20)
    method = CCHVAE(model, space=space, autoencoder=Watched(), screened=screened).fit(x)
    result = method.explain(x, target=1)
    assert (result.status == Status.NOT_FOUND.value).all()
    home, code = (torch.cat(parts) for parts in zip(*seen, strict=True))
    radius = (code - home).norm(dim=1)
    rows = torch.as_tensor(x)
    limit = rows.norm(dim=1) + 3 * np.sqrt(3)
    shells = torch.ceil(limit / 0.5)
    for row, last in zip(rows, shells, strict=True):
        own = radius[(home == row).all(1)]
        assert set(range(int(last))) <= set((own // 0.5).long().tolist()), "no shell is left out"
        deviation(own - 0.5 * last, oracle="radius of the prior", limit=1e-5, unit="absolute")
    assert screened == (method.codes_.vae.decoded < 0.08 * 300 * shells.sum())


def test_the_decoder_is_conditioned_on_the_immutable_values_themselves(deviation):
    problem = PROBLEMS["mixed"]()
    method = problem.fitted(CCHVAE, samples=30, step=0.3)
    net, given = method.codes_.vae._net(torch.float32), []
    decode = net.decode

    def spy(z, fixed, context):
        given.append(fixed)
        return decode(z, fixed, context)

    net.decode = spy
    method.codes_.vae._net = lambda dtype: net
    result = method.explain(problem.x, target=1)
    assert result.found.any()
    own = torch.as_tensor(problem.x)[:, net.fixed]
    assert own.shape[1] == 1
    assert len(torch.unique(torch.cat(given))) > 1
    assert set(torch.cat(given).flatten().tolist()) <= set(own.flatten().tolist())
    fixed = ~problem.space.mutable_mask[problem.space.owner]
    kept = result.x_cfs[:, fixed] == problem.x[:, fixed]
    deviation.rows(~kept[result.found].all(1), oracle="own immutable values")


def test_decoded_rows_follow_the_condition(deviation):
    """At the same z, decoded values follow the immutable value of the row, as the data do."""
    rng = np.random.default_rng(3)
    c = rng.integers(0, 2, 400).astype(np.float32)
    rows = np.column_stack([0.2 + 0.6 * c + 0.02 * rng.normal(size=400), rng.random(400), c])
    space = FeatureSpace(
        tuple(Feature(name=f"x{j}", columns=(j,), mutable=j < 2) for j in range(3))
    )
    x = torch.as_tensor(rows.astype(np.float32))
    model = fit_codes(
        x, space, latent=1, hidden=(16,), steps=600, batch_size=128, lr=5e-3, beta=0.3, seed=0
    )
    z = torch.zeros(2, 1)
    out = model.decode(z, torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 1.0]]))
    assert out[:, 2].tolist() == [0.0, 1.0]
    deviation.absolute(out[:, 0], [0.2, 0.8], oracle="conditional means", limit=0.02)


def test_reconstruction_beats_the_mean_of_the_training_rows(deviation):
    """Reconstruction of numbers and labels made of two factors beats the training mean."""
    rng = np.random.default_rng(4)
    factor = rng.normal(size=(300, 2))
    numbers = factor @ rng.normal(size=(2, 4)) + 0.05 * rng.normal(size=(300, 4))
    label = np.eye(2)[(factor[:, 0] > 0).astype(int)]
    features = [Feature(name=f"x{j}", columns=(j,), lower=-9, upper=9) for j in range(4)]
    features.append(
        Feature(name="side", kind="categorical", columns=(4, 5), categories=("a", "b"))
    )
    x = torch.as_tensor(np.column_stack([numbers, label]).astype(np.float32))
    space = FeatureSpace(tuple(features))
    model = fit_codes(
        x, space, latent=3, hidden=(32,), steps=400, batch_size=100, lr=5e-3, beta=0.3, seed=0
    )
    back = model.decode(model.encode(x), x)
    unexplained = (back - x)[:, :4].square().mean(0) / x[:, :4].var(0)
    oracle = "mean of the training rows"
    deviation(unexplained, oracle=oracle, limit=0.05, unit="share of the variance")
    hits = (back[:, 4:].argmax(1) == x[:, 4:].argmax(1)).float().mean()
    assert hits > 0.9


def test_three_classes_get_the_class_they_ask_for(deviation):
    problem = PROBLEMS["three_classes"]()
    method = problem.fitted(CCHVAE, autoencoder=Identity(), samples=100, step=0.2)
    for target in range(3):
        rows = problem.x_train[problem.model.predict(problem.x_train) != target][:15]
        result = method.explain(rows, target=target)
        assert result.found.all()
        deviation.rows(problem.model.predict(result.x_cfs) != target, oracle="class asked for")


def test_most_samples_of_a_shell_are_ruled_out_without_asking():
    w = np.array([2.0, -1.0, 1.0, 0.5])
    x = np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)
    model = line(w, -2.0)
    x = x[model.predict(x) == 0]
    method, result = latent_search(model, x, samples=300)
    step = np.linalg.norm(result.x_cfs - x, axis=1) // 0.5
    assert result.found.all()
    assert method.codes_.vae.decoded < 0.7 * 300 * (step + 1).sum()
