"""Growing spheres: the radial law, the shrinking ball, and how near and how sparse answers are."""

import time

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from cel.cf_methods.local_methods.growing_spheres import GrowingSpheres
from cel.errors import ConfigError, NotFittedError
from cel.protocols import Task
from cel.search import RowStreams
from cel.search.shells import shell_points
from cel.space import Feature, FeatureSpace
from cel.space.distances import changed_features
from cel.testing.problems import PROBLEMS, ToyModel


def plane(d, gap, seed=0):
    """A model whose boundary lies at distance `gap` from the middle of a wide box."""
    w = np.random.default_rng(seed).normal(size=d)
    w = (w / np.linalg.norm(w)).astype(np.float32)
    bias = np.float32(-w @ np.full(d, 0.5, dtype=np.float32) - gap)
    weights = np.stack([np.zeros(d), w]).astype(np.float32)
    model = ToyModel(weights, np.array([0, bias], dtype=np.float32), Task.CLASSIFICATION)
    return model, np.full((1, d), 0.5, dtype=np.float32)


@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize("gap", [0.05, 0.4])
def test_on_a_linear_model_answers_are_nearly_the_nearest(d, gap, deviation):
    """Linear model, no box in the way: at most 1.1 times the distance of the boundary."""
    ratios = []
    for seed in range(10):
        model, x = plane(d, gap, seed)
        space = FeatureSpace.continuous(d, -5, 5)
        result = GrowingSpheres(model, space=space, random_state=seed, sparse=False).explain(x, 1)
        assert result.found.all()
        ratios.append(np.linalg.norm(result.x_cfs[0] - x[0]) / gap)
    deviation.excess(ratios, np.ones(10), oracle="distance of the plane", limit=0.1)


@pytest.mark.parametrize("d", [1, 2, 7, 23])
@pytest.mark.parametrize("inner", [0.0, 0.8])
def test_points_fill_a_shell_evenly(d, inner, deviation):
    """Radii of "volume" shells follow the r^d law."""
    rng = RowStreams.of(torch.arange(40.0)[:, None], seed=d)
    points = shell_points(
        torch.zeros(40, d), rng, inner, 1.1, samples=500, radial="volume"
    ).flatten(0, 1)
    radius = points.norm(dim=1).double().numpy()
    low, high = inner**d, 1.1**d
    test = kstest(radius, lambda r: (np.clip(r, inner, 1.1) ** d - low) / (high - low))
    deviation(test.statistic, oracle="r^d law, 20,000 points", limit=0.012, unit="Kolmogorov")
    assert test.pvalue > 0.001


def test_directions_favour_no_side(deviation):
    rng = RowStreams.of(torch.arange(40.0)[:, None], seed=1)
    points = shell_points(torch.zeros(40, 5), rng, 1.0, 1.0, samples=500).flatten(0, 1)
    deviation.absolute(points.mean(0), 0, oracle="symmetry", limit=0.02)
    deviation.absolute(points.square().mean(0), 0.2, oracle="symmetry", limit=0.01)


def test_the_ball_shrinks_to_a_boundary_that_is_near(deviation):
    """A boundary at 1e-3 is found there, although the first ball has a radius of 0.1."""
    model, x = plane(3, 1e-3)
    space = FeatureSpace.continuous(3, -5, 5)
    result = GrowingSpheres(model, space=space, sparse=False).explain(x, 1)
    ratio = np.linalg.norm(result.x_cfs[0] - x[0]) / (1e-3 + 1e-4)
    deviation.excess([ratio], [1.0], oracle="distance of the plane", limit=0.1, below=1e-3)


def test_no_feature_can_be_given_back_alone(deviation):
    """Answers are 1-minimal: giving back any one changed feature loses the class."""
    problem = PROBLEMS["mixed"]()
    result = problem.fitted(GrowingSpheres).explain(problem.x, 1)
    assert result.found.sum() >= 8
    kept = 0
    for x, cf in zip(problem.x[result.found], result.x_cfs[result.found], strict=True):
        for f in problem.space:
            back = cf.copy()
            back[list(f.columns)] = x[list(f.columns)]
            if (back != cf).any():
                z = problem.model.logits(torch.as_tensor(back[None]))
                kept += int(z[0, 1] - z[0, 0] >= 1e-4)
    deviation.rows(kept, oracle="every single feature", unit="features too many")


def test_giving_back_features_makes_answers_sparser():
    problem = PROBLEMS["binary_numeric"]()
    dense, sparse = (
        problem.fitted(GrowingSpheres, sparse=s).explain(problem.x, 1) for s in (False, True)
    )
    changes = [changed_features(r.x_origs, r.x_cfs, problem.space).sum(1) for r in (dense, sparse)]
    assert (changes[1] <= changes[0]).all()
    assert changes[1].sum() < changes[0].sum()


@pytest.mark.parametrize("categories", ["held", "sampled"])
def test_a_class_out_of_reach_ends_the_search(categories):
    problem = PROBLEMS["mixed"]()
    weights = np.zeros((2, 8), dtype=np.float32)
    never = ToyModel(weights, np.array([1, 0], dtype=np.float32), Task.CLASSIFICATION)
    method = GrowingSpheres(never, space=problem.space, samples=50, categories=categories)
    started = time.perf_counter()
    result = method.explain(problem.x, 1)
    assert set(result.status) == {"not_found"}
    assert time.perf_counter() - started < 20


def test_immutable_features_stay_bit_for_bit_and_use_up_no_radius(deviation):
    """Twenty immutable features change nothing in what the two others find."""
    model, x = plane(2, 0.3, seed=3)
    wide = np.concatenate([x, np.random.default_rng(0).random((1, 20))], 1).astype(np.float32)
    weights = torch.zeros(2, 22)
    weights[:, :2] = model.weights
    frozen = FeatureSpace(
        tuple(
            Feature(name=f"x{j}", columns=(j,), lower=-5, upper=5, mutable=j < 2)
            for j in range(22)
        )
    )
    many = ToyModel(weights.numpy(), model.bias.numpy(), Task.CLASSIFICATION)
    distances = []
    for seed in range(10):
        result = GrowingSpheres(many, space=frozen, random_state=seed, sparse=False).explain(
            wide, 1
        )
        assert result.x_cfs[0, 2:].tobytes() == wide[0, 2:].tobytes()
        distances.append(np.linalg.norm(result.x_cfs[0] - wide[0]))
    deviation.excess(
        np.array(distances), np.full(10, 0.3), oracle="distance of the plane", limit=0.1
    )


def test_categories_move_only_when_they_may():
    """A class that only a category brings is found by sampling it, and not while it is held."""
    space = FeatureSpace(
        (
            Feature(name="a"),
            Feature(name="job", kind="categorical", columns=(1, 2, 3), categories=("x", "y", "z")),
        )
    )
    model = ToyModel(
        np.array([[0, 0, 0, 0], [0.1, 0, 0, 4]], dtype=np.float32),
        np.array([0, -2], dtype=np.float32), Task.CLASSIFICATION,
    )  # fmt: skip
    x = np.array([[0.5, 1, 0, 0], [0.2, 0, 1, 0]], dtype=np.float32)
    moved = GrowingSpheres(model, space=space).explain(x, 1)
    assert moved.found.all()
    assert moved.x_cfs[:, 1:].tolist() == [[0, 0, 1], [0, 0, 1]]
    assert np.allclose(moved.x_cfs[:, 0], x[:, 0])  # given back
    held = GrowingSpheres(model, space=space, categories="held").explain(x, 1)
    assert set(held.status) == {"not_found"}


def test_standard_deviations_as_units_need_training_rows():
    problem = PROBLEMS["binary_numeric"]()
    method = problem.build(GrowingSpheres, scale="std")
    with pytest.raises(NotFittedError, match="call fit"):
        method.explain(problem.x, 1)
    assert method.fit(problem.x_train).explain(problem.x, 1).found.all()
    with pytest.raises(ConfigError, match="shrink"):
        problem.fitted(GrowingSpheres, shrink=1.0)
