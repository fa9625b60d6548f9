"""CEARM: the kernel against botorch, classes, and what rows share."""

import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.cearm import CEARM
from cel.cf_methods.local_methods.cearm.bayes_search import _Distance, optimise
from cel.cf_methods.local_methods.cearm.gaussian_process import NOISE, Process, _kernel, spread_out
from cel.cf_methods.local_methods.cearm.goal import OutputGoal
from cel.cf_methods.query import Query
from cel.cf_methods.view import ModelView
from cel.errors import MissingDependencyError
from cel.protocols import Task
from cel.search import Budget, RowStreams
from cel.space import FeatureSpace
from cel.testing import PROBLEMS, BlackBox, ToyModel

CHEAP = {"candidates": 48, "ascent": 8, "neighbours": 32, "fit_rows": 40, "rounds": 10}


@pytest.mark.parametrize("columns", [[0, 2], [0, 1, 2]])
def test_distances_have_gradients_in_the_columns_that_are_climbed(columns):
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(3, 5, 3, generator=generator)
    home, unit = torch.rand(3, 1, 3, generator=generator).double(), torch.tensor([1.0, 2.0, 0.5])
    x[0, 0] = home[0, 0].float()  # no direction leads away from home
    home[0, 0] = x[0, 0].double()
    at, unit, weight = torch.tensor(columns), unit.double(), torch.rand(3, 5, generator=generator)
    ours, plain = (x.clone().requires_grad_(True) for _ in range(2))
    far = _Distance.apply(ours, home, unit, at)
    delta = (plain.to(torch.float64) - home) / unit
    wanted = delta.square().sum(-1).clamp(min=1e-18).sqrt()
    assert torch.equal(far, wanted)
    (far * weight).sum().backward()
    (wanted * weight).sum().backward()
    moves = torch.zeros(3, dtype=torch.bool).index_fill(0, at, True)
    assert torch.equal(ours.grad, torch.where(moves, plain.grad, torch.zeros_like(x)))


@pytest.mark.parametrize("d", [2, 40])
def test_rows_are_spread_out_as_by_measuring_all_of_them(d):
    x = torch.rand(400, d, generator=torch.Generator().manual_seed(d))
    chosen, distance = [0], (x - x[0]).norm(dim=1)
    while len(chosen) < 60:
        chosen.append(int(distance.argmax()))
        distance = torch.minimum(distance, (x - x[chosen[-1]]).norm(dim=1))
    assert spread_out(x, 60).tolist() == chosen


@pytest.mark.filterwarnings("ignore:Input data is not standardized")  # botorch before 0.12
def test_the_posterior_equals_that_of_botorch(deviation):
    from botorch.models import SingleTaskGP
    from gpytorch.kernels import MaternKernel, ScaleKernel

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(20, 3, generator=generator).double()
    y = (x.sin().sum(1, keepdim=True) - 1.3) / 0.4
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=3)).double()
    kernel.base_kernel.lengthscale = torch.tensor([[0.5, 0.8, 1.2]]).double()
    kernel.outputscale = torch.tensor(1.7).double()
    model = SingleTaskGP(
        x, y, torch.full_like(y, NOISE), covar_module=kernel, outcome_transform=None
    )
    model.mean_module.constant.data.zero_()
    points = torch.rand(4, 5, 3, generator=generator).double()
    theirs = model.posterior(points.flatten(0, 1))
    process = Process(
        x=x, y=y, length=torch.tensor([0.5, 0.8, 1.2]).double(), variance=1.7,
        centre=torch.zeros(1).double(), scale=torch.ones(1).double(),
    )  # fmt: skip
    mean, sd = process.condition(process.near(points[:, 0], 20))(points)
    told = {"oracle": "SingleTaskGP (botorch)", "limit": 1e-7}
    deviation.absolute(mean.flatten(), theirs.mean.flatten().detach(), **told)
    deviation.absolute(sd.flatten(), theirs.variance.flatten().detach().sqrt(), **told)


def test_the_kernel_sees_which_features_matter():
    x = torch.rand(60, 3, generator=torch.Generator().manual_seed(1)).double()
    y = torch.sin(5 * x[:, :1])
    length, variance = _kernel(x, (y - y.mean()) / y.std())
    assert length[0] < 0.5 * min(length[1], length[2])
    assert variance > 0


def test_data_beyond_the_limit_are_dropped_but_training_rows_are_kept():
    x = torch.rand(10, 2).double()
    process = Process.fit(x, x.sum(1, keepdim=True), FeatureSpace.continuous(2), fit_rows=10)
    more = torch.rand(30, 2).double()
    longer = process.extended(more, more.sum(1, keepdim=True), 12)
    assert torch.equal(longer.x, torch.cat([x, more[-12:]]))
    assert torch.equal(longer.y[:, 0], longer.x.sum(1))


def test_rows_that_are_spread_out_cover_the_corners():
    grid = torch.cartesian_prod(torch.linspace(0, 1, 5), torch.linspace(0, 1, 5))
    chosen = grid[spread_out(grid, 4)]
    assert {tuple(r) for r in chosen.tolist()} == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("name", ["three_classes", "mixed"])
def test_classes_are_reached_by_asking_only(name, deviation):
    problem = PROBLEMS[name]()
    method = CEARM(BlackBox(problem.model), space=problem.space, **CHEAP).fit(problem.x_train)
    result = method.explain(problem.x, target=problem.target)
    assert result.found.mean() >= 0.9
    wrong = problem.model.predict(result.x_cfs[result.found]) != problem.target
    deviation.rows(wrong, oracle="class asked for")


def test_rows_in_groups_are_all_answered():
    problem = PROBLEMS["regression"]()
    method = problem.fitted(CEARM, max_data=40, rounds=10)  # two rows at a time
    result = method.explain(problem.x)
    assert result.found[result.explained].mean() >= 0.9


@pytest.mark.parametrize("name", ["binary_numeric", "three_classes"])
def test_rows_begin_at_the_nearest_known_answer(name):
    """Also where all points of the highest utility lie close together, just short of the goal."""
    p = PROBLEMS[name]()
    method = p.fitted(CEARM)
    rows = torch.as_tensor(p.x)
    query = Query(
        x=rows, target=torch.full((len(rows),), p.target), region=p.space.region(rows),
        model=ModelView(p.model), rng=RowStreams.of(rows, 0), budget=Budget(),
    )  # fmt: skip
    goal, known = OutputGoal.of(query, 0.01, 0.5), method.process_
    answers = known.x[torch.as_tensor(p.model.predict(known.x.float()) == p.target)]
    far = torch.cdist(rows.double(), answers)
    nearest, at = far.min(1)
    crowd = torch.cat([rows + (answers[at] - rows).float() * f for f in (0.1, 0.2, 0.3, 0.4)])
    crowd = crowd[torch.as_tensor(p.model.predict(crowd) != p.target)]
    crowded = known.extended(crowd, goal.outputs(crowd), 10**4)
    settings = replace(method._settings(query), rounds=0, batch=2)
    best, after, _ = optimise(query, goal, crowded, settings)
    assert len(after.x) == len(crowded.x) + 2 * len(rows)
    torch.testing.assert_close(best.distance, nearest)
    alone = replace(known, x=crowd.double(), y=goal.outputs(crowd))
    best, after, _ = optimise(query, goal, alone, settings)  # no answer is known
    assert best.distance.isinf().all()
    last = after.x[-2 * len(rows) :][1::2]
    assert (last != after.x[0]).any(1).sum() > len(rows) / 2  # not the first that is there


def test_answers_do_not_depend_on_earlier_calls_without_memory(deviation):
    problem = PROBLEMS["regression"]()
    method = problem.fitted(CEARM)
    first = method.explain(problem.x)
    method.explain(problem.x[:3] * 0.5)
    again = method.explain(problem.x)
    np.testing.assert_array_equal(again.x_cfs, first.x_cfs)
    gap = (again.x_cfs - first.x_cfs)[first.found]
    deviation.absolute(gap, 0, oracle="the first call", limit=0)


def test_many_outputs_come_within_the_tolerance():
    rng = np.random.default_rng(2)
    w = (rng.random((6, 12)) / 6).astype(np.float32)
    model = ToyModel(w, np.zeros(6, dtype=np.float32), Task.REGRESSION)
    rows = rng.random((150, 12)).astype(np.float32)
    method = CEARM(model, space=FeatureSpace.continuous(12), **CHEAP).fit(rows)
    target = model.predict(rows[:8]) + 0.1
    result = method.explain(rows[:8], target=target)
    assert result.found.mean() >= 0.75


def test_a_missing_package_is_named(monkeypatch):
    problem = PROBLEMS["regression"]()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="bayes"):
        problem.fitted(CEARM)


def test_the_closed_gradient_of_the_posterior_is_its_slope():
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.random((60, 3)))
    y = torch.stack([torch.sin(4 * x.sum(1)), x[:, 0]], 1)
    scaling = {"centre": y.mean(0), "scale": y.std(0)}
    process = Process(
        x=x, y=y, length=torch.tensor([0.3, 0.6, 0.9]).double(), variance=1.3, **scaling
    )
    posterior = process.condition(process.near(x[:2], 20))
    points = torch.as_tensor(rng.random((2, 4, 3)), dtype=torch.float64).requires_grad_(True)
    assert torch.autograd.gradcheck(posterior, (points,))


def test_the_kernel_does_not_depend_on_random_numbers_of_others():
    x = torch.as_tensor(np.random.default_rng(0).random((40, 2)))
    y = torch.sin(5 * x[:, :1])
    kernels = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        kernels.append(_kernel(x, (y - y.mean()) / y.std()))
    assert torch.equal(kernels[0][0], kernels[1][0])
    assert kernels[0][1] == kernels[1][1]


def test_single_precision_tells_the_same_directions():
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.random((60, 3)))
    y = torch.sin(4 * x.sum(1, keepdim=True))
    scaling = {"centre": y.mean(0), "scale": y.std(0)}
    length = torch.tensor([0.3, 0.6, 0.9]).double()
    process = Process(x=x, y=y, length=length, variance=1.3, **scaling)
    exact = process.condition(process.near(x[:2], 40))
    points = torch.as_tensor(rng.random((2, 8, 3)))
    parts = []
    for posterior in (exact, exact.single()):
        at = points.clone().requires_grad_(True)
        mean, sd = posterior(at)
        slope = torch.autograd.grad(mean.sum(), at)[0].flatten(0, 1)
        parts.append((mean.detach(), sd.detach(), slope))
    (mean, sd, slope), (rough_mean, rough_sd, rough) = parts
    torch.testing.assert_close(rough_mean, mean, atol=2e-3, rtol=0)
    torch.testing.assert_close(rough_sd, sd, atol=2e-3, rtol=0)
    assert (torch.cosine_similarity(rough.double(), slope) > 0.999).all()


def test_values_and_labels_are_searched_with_more_care_than_classes_of_numbers():
    """What is not said follows the task; what is said holds."""
    told = {}
    layout = SimpleNamespace(blocks=torch.zeros(0, 0))
    query = SimpleNamespace(
        model=SimpleNamespace(task=Task.REGRESSION), region=SimpleNamespace(layout=layout)
    )
    model = ToyModel(np.ones((2, 2)), np.zeros(2), Task.CLASSIFICATION)
    told["values"] = CEARM(model)._settings(query)
    query.model.task = Task.CLASSIFICATION
    told["classes"] = CEARM(model)._settings(query)
    told["said"] = CEARM(model, ascent=7, batch=40)._settings(query)
    layout.blocks = torch.zeros(1, 2)
    assert CEARM(model)._settings(query) == told["values"]
    assert told["values"].ascent > told["classes"].ascent
    assert told["values"].patience > told["classes"].patience
    assert (told["said"].ascent, told["said"].candidates) == (7, 160)
