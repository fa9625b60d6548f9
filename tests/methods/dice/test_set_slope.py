"""The slope of sets by hand is that of autograd, to the bit."""

import pytest
import torch

from cel.cf_methods.local_methods.dice.dpp import GradientSettings, _SetProblem
from cel.cf_methods.query import Query
from cel.cf_methods.view import ModelView
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.search import Budget, RowStreams
from cel.search.gradient import row_gradient
from cel.space import FeatureSpace


def sets_of(model_class, classes, k, diversity="dpp", **settings):
    torch.manual_seed(0)
    x = torch.rand(60, 5)
    y = (x.sum(1) * classes / 5).long().clamp(max=classes - 1).numpy()
    y[:classes] = range(classes)
    model = model_class(**settings).fit(x.numpy(), y)
    rows, space = torch.rand(12, 5), FeatureSpace.continuous(5)
    query = Query(
        x=rows, target=torch.arange(12) % classes, region=space.region(rows),
        model=ModelView(model), rng=RowStreams.of(rows, 0), budget=Budget(),
    )  # fmt: skip
    chosen = GradientSettings(
        k=k, proximity_weight=0.5, diversity_weight=1.0, diversity=diversity, lr=0.05, steps=10,
        patience=10,
    )  # fmt: skip
    return _SetProblem(query, torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0]), chosen)


MODELS = [
    (LogisticRegression, {}),
    (MLPClassifier, {"hidden": (16, 8), "epochs": 4, "random_state": 0}),
]


@pytest.mark.parametrize(("model", "settings"), MODELS)
@pytest.mark.parametrize(("classes", "k"), [(2, 4), (3, 2), (2, 1)])
def test_the_slope_is_that_of_autograd_to_the_bit(model, settings, classes, k):
    """Sets near the rows, far outside (no hinge or all of it), and with equal members."""
    problem = sets_of(model, classes, k, **settings)
    closed = problem.closed()
    assert closed is not None
    for spread in (0.0, 0.1, 1.0, 30.0):
        flat = problem.query.x.repeat(1, k) + spread * torch.randn(12, 5 * k)
        flat[0] = flat[0, :5].repeat(k)  # members that are equal
        for rows in (torch.arange(12), torch.tensor([3, 0, 7])):
            value, grad = closed(flat[rows], rows)
            wanted = row_gradient(problem.smooth, flat[rows], rows)
            assert torch.equal(value, wanted[0])
            assert torch.equal(grad, wanted[1])


def test_other_diversities_and_other_models_go_through_autograd():
    assert sets_of(LogisticRegression, 2, 4, diversity="logdet").closed() is None
    problem = sets_of(LogisticRegression, 2, 4)
    weight, bias = problem.query.model.linear()
    problem.query.model.model.linear_ = lambda: (weight, bias * 1.00001)  # no longer to the bit
    assert problem.closed() is None
