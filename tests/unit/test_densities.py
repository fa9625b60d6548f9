"""Parts of the densities, one at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cel.errors import ConfigError, DataError, MissingInputError
from cel.models import MODELS
from cel.models.generative import (
    GMM,
    KDE,
    VAE,
    DequantizedFlow,
    MaskedAutoregressiveFlow,
    MixedDensity,
    NeuralSplineFlow,
    default_density,
)
from cel.models.generative.flows.bijections import Affine, Shift, Spline
from cel.models.generative.flows.masked import MaskedNet, autoregressive_degrees, coupling_degrees
from cel.models.generative.flows.tails import draw_latent, log_latent
from cel.models.generative.mixed.categorical import CategoricalNet
from cel.models.generative.mixed.columns import Choices
from cel.models.generative.noise import normal_bank
from cel.models.training.stack import Stack
from cel.space import Feature, FeatureSpace

SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(
            name="b",
            kind="categorical",
            columns=(1, 2, 3),
            categories=("u", "v", "w"),
            mutable=False,
        ),
        Feature(name="c", kind="integer", columns=(4,), step=0.25),
        Feature(name="d", kind="categorical", columns=(5, 6), categories=("x", "y")),
        Feature(name="e", kind="integer", columns=(7,), step=0.01),
    )
)


def rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((n, 8), dtype=np.float32)
    x[:, 0] = rng.random(n)
    x[:, 1:4] = np.eye(3)[rng.integers(0, 3, n)]
    x[:, 4] = rng.integers(0, 5, n) / 4
    x[:, 5:7] = np.eye(2)[(x[:, 0] > 0.5).astype(int)]
    x[:, 7] = np.round(0.5 * x[:, 0] + 0.3 * rng.random(n), 2)
    return x


@pytest.mark.parametrize("n_context", [0, 2])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_outputs_see_only_what_comes_before(d, n_context):
    degrees = autoregressive_degrees(2, d)
    net = MaskedNet(degrees, n_context=n_context, n_params=2, hidden=8, n_hidden=3)
    for p in net.parameters():
        torch.nn.init.normal_(p)
    context = torch.randn(1, n_context) if n_context else None
    for t, weights in enumerate(net.weights()):
        jacobian = torch.autograd.functional.jacobian(
            lambda x, w=weights: net(x, context, w)[0], torch.randn(1, d)
        )[:, :, 0]
        later = degrees[t][None, :] >= degrees[t][:, None]  # (output, input)
        assert not jacobian[:, later].any()
        assert jacobian[:, ~later].any(0).all(), "and everything before"
    if n_context:
        first = net(torch.zeros(2, d), torch.eye(2), net.weights()[0])
        assert (first[0] != first[1]).all(), "the context reaches every output"


def test_couplings_take_turns():
    assert coupling_degrees(3, 1).tolist() == [[2], [2], [2]]
    assert (coupling_degrees(2, 4).sum(0) == 3).all()


@pytest.mark.parametrize(
    "bijection", [Affine(), Shift(), Spline()], ids=lambda b: type(b).__name__
)
def test_bijections_invert_and_begin_as_the_identity(bijection):
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(50, 4, generator=generator, dtype=torch.float64)
    params = torch.randn(50, bijection.n_params, 4, generator=generator, dtype=torch.float64)
    x.requires_grad_()
    z, slope = bijection.forward(x, params)
    (grad,) = torch.autograd.grad(z.sum(), x)
    assert torch.allclose(grad.log(), slope, atol=1e-9)
    assert torch.allclose(bijection.inverse(z, params), x, atol=1e-9)
    same, flat = bijection.forward(x, 0 * params)
    assert torch.allclose(same, x)
    assert torch.allclose(flat, torch.zeros_like(x), atol=1e-12)
    fused = bijection.fused(x, params)
    assert torch.allclose(fused[0], z)
    assert torch.allclose(fused[1], slope)


def test_fused_affine_has_the_right_gradient():
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    params = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Affine().fused, (x, params))


def test_latent_law_is_a_density_with_samples():
    z = torch.linspace(-500, 500, 400_001, dtype=torch.float64)[:, None]
    assert abs(float(log_latent(z, 0.05).exp().sum()) * 0.0025 - 1) < 1e-4
    drawn = draw_latent((100_000, 1), 0.2, torch.Generator().manual_seed(0))
    share = float((drawn.abs() > 2).float().mean())
    inside = torch.linspace(-2, 2, 4001, dtype=torch.float64)[:, None]
    assert abs(share - (1 - float(log_latent(inside, 0.2).exp().sum()) * 0.001)) < 0.005


def test_choices_are_exact_on_the_grid_and_linear_between():
    choices = Choices(SPACE, max_levels=20)
    assert choices.sizes == (3, 2, 5)
    assert choices.rest.tolist() == [0, 7]
    x = torch.from_numpy(rows())
    blocks, numbers = choices(x)
    assert ((blocks == 0) | (blocks == 1)).all()
    assert torch.allclose(choices.assemble(blocks, numbers), x)
    between = x[:1].clone()
    between[0, 4] = 0.3125
    assert choices(between)[0][0, 5:].tolist() == [0.0, 0.75, 0.25, 0.0, 0.0]
    between[0, 4] = 1.7  # outside the grid the last point counts
    assert choices(between)[0][0, -1] == 1.0


def test_categories_sum_to_one_and_have_a_floor():
    net = CategoricalNet((2, 3), n_context=2, floor=0.01)
    for p in net.parameters():
        torch.nn.init.normal_(p, std=3.0)
    states = torch.stack([torch.cat((a, b)) for a in torch.eye(2) for b in torch.eye(3)])
    context = torch.tensor([[0.0, 1.0]]).expand(6, -1)
    log_p = net(states, context)
    assert torch.allclose(log_p.exp().sum(), torch.tensor(1.0), atol=1e-5)
    assert log_p.min() >= 2 * math.log(0.01) - math.log(6) - 1e-4


def test_mixed_density_is_linear_in_a_soft_block_and_differentiable():
    model = MixedDensity(epochs=3).fit(rows(), space=SPACE)
    only = FeatureSpace(
        (Feature(name="b", kind="categorical", columns=(0, 1), categories=(1, 2)),)
    )
    lone = MixedDensity(epochs=3).fit(np.eye(2, dtype=np.float32)[[0, 1, 1, 1] * 10], space=only)
    corner = lone.log_prob(torch.eye(2))
    soft = lone.log_prob(torch.tensor([[0.3, 0.7]]))
    assert torch.allclose(soft, 0.3 * corner[:1] + 0.7 * corner[1:], atol=1e-6)
    x = torch.from_numpy(rows(5))
    x[:, 1:4] = torch.tensor([0.2, 0.5, 0.3])
    x[:, 4] = 0.6
    x.requires_grad_()
    model.log_prob(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad[:, [0, 4, 7]] != 0).all()
    assert (x.grad[:, 1:4] != 0).any(1).all()


@pytest.mark.parametrize(
    "name", ["maf", "nsf", "realnvp", "nice", "mixed_density", "dequantized_flow", "vae"]
)
def test_a_stack_computes_what_its_models_compute(name):
    models = [
        MODELS.get(name)(epochs=1, random_state=s).fit(rows(seed=s), space=SPACE) for s in (0, 1)
    ]
    x = torch.from_numpy(rows(6, seed=5))
    stack = Stack([m.module_.requires_grad_(True) for m in models]).module.eval()
    both = stack(torch.stack((x, x)))
    for i, model in enumerate(models):
        assert torch.allclose(both[i], model.log_prob(x), atol=1e-4, rtol=1e-4)


def test_values_are_a_context():
    x = torch.from_numpy(rows())
    y = (100 * x[:, :1] + 7).numpy()  # far from unit scale
    for model in (MaskedAutoregressiveFlow(epochs=30), MixedDensity(epochs=30)):
        model.fit(x, y, space=SPACE)
        right = float(model.log_prob(x, torch.from_numpy(y)).mean())
        wrong = float(model.log_prob(x, torch.from_numpy(y).flip(0)).mean())
        assert right > wrong + 0.3
        assert model.sample(4, torch.tensor([[50.0]])).shape == (4, 8)


def test_vae_keeps_what_cannot_change():
    x = torch.from_numpy(rows(300))
    vae = VAE(latent=3, hidden=(32,), epochs=120, batch_size=32).fit(x, space=SPACE)
    assert vae.immutable_columns_.tolist() == [1, 2, 3]
    z = vae.encode(x)
    assert z.shape == (300, 3)
    back = vae.decode(z, x[:, 1:4])
    assert torch.equal(back, vae.decode(z, x)), "whole rows serve as x_c"
    assert torch.equal(back[:, 1:4], x[:, 1:4])
    assert (back[:, 5:7].sum(1) == 1).all()
    assert ((back[:, 5:7] == 0) | (back[:, 5:7] == 1)).all()
    error = (back[:, 0] - x[:, 0]).square().mean()
    assert error < 0.7 * x[:, 0].var(), "better than the mean"
    soft = vae.decode(z, x, hard=False)
    assert torch.allclose(soft[:, 5:7].sum(1), torch.ones(300))
    assert vae.log_prob(x).isfinite().all()
    drawn = vae.sample(50)
    assert (drawn[:, 1:4].sum(1) == 1).all()
    with pytest.raises(DataError, match="cannot change"):
        vae.decode(z, x[:, :2])


@pytest.mark.parametrize("plain", [False, True])
def test_vae_scores_rows_by_the_laws_that_it_decodes(plain):
    """A normal law for each number and one law over each block, by torch.distributions."""
    x = torch.from_numpy(rows(200))
    space = FeatureSpace.continuous(8) if plain else SPACE
    net = VAE(latent=2, hidden=(16,), epochs=3).fit(x, space=space).module_.double()
    x, z = x.double(), torch.randn(200, 2, generator=torch.Generator().manual_seed(0)).double()
    fixed = x[:, net.fixed]
    mean, width, logits = net.decode(z, fixed, None)
    want = torch.distributions.Normal(mean, width).log_prob(x[:, net.numbers]).sum(1)
    if not plain:
        block = torch.distributions.OneHotCategorical(logits=logits)
        assert logits.shape[1] == 2, "one block of two columns may change"
        want = want + block.log_prob(x[:, net.choices])
    assert torch.allclose(net._log_likelihood(x, z, fixed, None), want, atol=1e-9)


def _trained(x, beta=0.1, **settings):
    return VAE(latent=2, hidden=(16,), beta=beta, lr=1e-2, **settings).fit(x, space=SPACE)


def test_vae_learns_and_judges_the_same_objective():
    """Reconstruction, of draws around the code, less beta times the divergence in closed form."""
    x = torch.from_numpy(rows(300))
    net = _trained(x, epochs=15).module_
    mean, log_var = net.encode(x, None)
    code = torch.distributions.Normal(mean, (0.5 * log_var).exp())
    prior = torch.distributions.Normal(0.0, 1.0)
    kl = torch.distributions.kl_divergence(code, prior).sum(-1)
    assert kl.mean() > 1
    judged = net.eval().objective(x)
    z = mean + (0.5 * log_var).exp() * net.bank[:8]
    ones = x.expand(8, -1, -1)
    by_hand = net._log_likelihood(ones, z, ones[..., net.fixed], None).mean(0) - 0.1 * kl
    assert torch.allclose(judged, by_hand, atol=1e-4)
    torch.manual_seed(0)
    learned = torch.stack([net.train().objective(x) for _ in range(200)]).mean()
    assert abs(learned - judged.mean()) < 0.1 * kl.mean()
    net.eval()
    assert not torch.allclose(net(x), judged), "the importance bound weighs the divergence fully"
    other = _trained(x, epochs=1, random_state=1).module_.eval()
    stack = Stack([m.requires_grad_(True) for m in (net, other)]).module.eval()
    both = stack.objective(x.expand(2, -1, -1))
    assert torch.allclose(both, torch.stack([net.objective(x), other.objective(x)]), atol=1e-4)


def test_vae_keeps_the_epoch_that_its_objective_prefers():
    """The kept weights have the validation loss that the history calls the best."""
    x = torch.from_numpy(rows(400))
    fit, valid = x[:300], x[300:]
    vae = VAE(latent=2, hidden=(16,), beta=0.1, lr=1e-2, epochs=60, patience=60)
    vae.fit(fit, space=SPACE, valid=(valid, None))
    best = vae.history_["valid_loss"].min()
    assert best == pytest.approx(-float(vae.module_.objective(valid).mean()), rel=1e-5)
    assert vae.history_["valid_loss"].idxmin() > 10, "more than a first glance"


def test_discrete_samples_can_be_decoded():
    x = torch.from_numpy(rows())
    for model in (MixedDensity(epochs=2), DequantizedFlow(epochs=2)):
        drawn = model.fit(x, space=SPACE).sample(100)
        for block in ((1, 2, 3), (5, 6)):
            assert torch.equal(drawn[:, block].sort(1).values[:, -1], torch.ones(100))
            assert torch.equal(drawn[:, block].sum(1), torch.ones(100))
        assert torch.allclose(drawn[:, 4] * 4, (drawn[:, 4] * 4).round(), atol=1e-6)
        assert drawn[:, 4].min() >= 0
        assert drawn[:, 4].max() <= 1


def test_kernels_know_categories_and_thin_out():
    x = torch.from_numpy(rows())
    model = KDE(max_rows=40).fit(x, space=SPACE)
    assert model.module_.rows.shape == (40, 8)
    other = x[:1].clone()
    other[0, 1:4] = other[0, 1:4].roll(1)
    assert model.log_prob(other) != model.log_prob(x[:1])
    plain = KDE(bandwidth=0.1, background=0.0).fit(x, space=SPACE)
    states = x[:1].repeat(6, 1)
    states[:, 1:4] = torch.eye(3).repeat(2, 1)
    states[:, 5:7] = torch.eye(2).repeat_interleave(3, 0)
    joint = plain.log_prob(states).exp().sum()
    numbers = FeatureSpace.continuous(3)
    alone = KDE(bandwidth=0.1, background=0.0).fit(x[:, [0, 4, 7]], space=numbers)
    assert torch.allclose(joint, alone.log_prob(x[:1, [0, 4, 7]]).exp()[0], rtol=1e-4)


def test_a_class_without_rows_has_the_law_of_all_rows():
    x, y = rows()[:, [0, 7]], np.array([0, 2] * 60)
    for model in (KDE(), GMM(n_components=2)):
        model.fit(x, y)
        assert model.log_prob(torch.from_numpy(x[:5]), torch.tensor([1])).isfinite().all()


def test_noise_is_fixed():
    assert torch.equal(normal_bank(2, 8, 3), normal_bank(2, 8, 3))
    assert normal_bank(2, 8, 0).shape == (2, 8, 0)
    assert abs(float(normal_bank(1, 256, 4).std()) - 1) < 0.1


def test_default_suits_the_space():
    assert isinstance(default_density(SPACE, epochs=3), MixedDensity)
    assert isinstance(default_density(FeatureSpace.continuous(3)), MaskedAutoregressiveFlow)
    assert default_density(SPACE, epochs=3).epochs == 3
    given = [default_density(SPACE, flow=flow) for flow in (None, "affine", "spline")]
    assert [d.flow for d in given if isinstance(d, MixedDensity)] == ["spline", "affine", "spline"]
    numbers = FeatureSpace.continuous(3)
    assert default_density(numbers, flow="affine").name == "maf"
    assert default_density(numbers, flow="spline").name == "nsf"
    for space in (SPACE, numbers):
        with pytest.raises(ConfigError, match=r"unknown flow 'spiline'.*spline"):
            default_density(space, flow="spiline")


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (MaskedAutoregressiveFlow(transforms=0), "transforms must be positive, got 0"),
        (MaskedAutoregressiveFlow(tail=1.5), "tail must lie in"),
        (NeuralSplineFlow(bins=0), "bins must be positive"),
        (MixedDensity(flow="splines"), "did you mean 'spline'"),
        (MixedDensity(floor=-1), "floor must lie in"),
        (DequantizedFlow(samples=0), "samples must be positive"),
        (KDE(bandwidth="lo"), "did you mean 'loo'"),
        (KDE(bandwidth=0.0), "bandwidth must be positive"),
        (GMM(covariance="fully"), "unknown covariance 'fully'"),
        (VAE(latent=0), "latent must be positive"),
    ],
)
def test_wrong_settings_are_named(model, match):
    with pytest.raises(ConfigError, match=match):
        model.fit(rows(), space=SPACE)


@pytest.mark.parametrize("cls", [MixedDensity, DequantizedFlow])
def test_mixed_rows_need_a_space(cls):
    with pytest.raises(MissingInputError, match="space="):
        cls().fit(rows())


@pytest.mark.parametrize("tail", [0.0, 1e-3])
@pytest.mark.parametrize("classes", [False, True])
def test_the_gradient_by_hand_is_that_of_the_graph(tail, classes):
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(200, 4)).astype(np.float32), rng.integers(0, 3, 200)
    flow = MaskedAutoregressiveFlow(transforms=3, hidden=8, n_hidden=3, tail=tail, epochs=4)
    flow.fit(rows, y if classes else None)
    context = torch.as_tensor(y[:50]) if classes else None
    parts = []
    for ask in (flow.log_prob, flow.log_prob_once):
        x = (2 * torch.as_tensor(rows[:50])).double().requires_grad_(True)
        value = ask(x, context)
        parts.append((value.detach(), torch.autograd.grad((value * value.detach()).sum(), x)[0]))
    (value, slope), (ours, by_hand) = parts
    torch.testing.assert_close(ours, value, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(by_hand, slope, rtol=1e-8, atol=1e-8)
    assert slope.abs().amax() > 0.1
