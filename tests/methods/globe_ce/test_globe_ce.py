"""GLOBE-CE against closed forms: the scalar of a linear model, and the category theorem."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression as SklearnLR
from sklearn.neural_network import MLPClassifier as SklearnMLP

from cel.cf_methods.explanations.edits import Price
from cel.cf_methods.global_methods import GLOBECE
from cel.cf_methods.global_methods.globe_ce.best_directions import greedy
from cel.cf_methods.global_methods.globe_ce.path import NEVER, Directions, smallest_scalars
from cel.cf_methods.query import Query
from cel.cf_methods.view import ModelView
from cel.protocols import Status, Task
from cel.search import Budget, RowStreams
from cel.space import Feature, FeatureSpace
from cel.space.region import Region


class Linear:
    """Scores (0, w.x + b), differentiable, in double precision."""

    task = Task.CLASSIFICATION
    n_outputs_ = 2
    classes_ = np.arange(2)

    def __init__(self, w, b):
        self.w, self.b = torch.as_tensor(w, dtype=torch.float64), float(b)

    def logits(self, x):
        score = x.double() @ self.w + self.b
        return torch.stack([torch.zeros_like(score), score], 1)

    def predict_proba(self, X):
        return torch.softmax(self.logits(torch.as_tensor(np.asarray(X))), 1).numpy()

    def predict(self, X):
        return self.predict_proba(X).argmax(1)


class Value:
    """A regressor from a function."""

    task = Task.REGRESSION
    n_outputs_ = 1

    def __init__(self, function):
        self.function = function

    def predict(self, X):
        return self.function(np.asarray(X, dtype=np.float64))[:, None]


class Wrapped:
    """A scikit-learn classifier as a predictor without gradients."""

    task = Task.CLASSIFICATION

    def __init__(self, model):
        self.model, self.classes_ = model, np.arange(len(model.classes_))

    def predict_proba(self, X):
        return self.model.predict_proba(np.asarray(X))

    def predict(self, X):
        return self.predict_proba(X).argmax(1)


def query_of(model, x, space, target=1):
    x = torch.as_tensor(x)
    view = ModelView(model)
    return Query(
        x=x,
        target=torch.full((len(x),), target),
        region=Region.around(space, x),
        model=view,
        rng=RowStreams.of(x, 0),
        budget=Budget(),
    )


WIDE = FeatureSpace.continuous(4, lower=-np.inf, upper=np.inf)


def test_the_scalar_of_a_linear_model_has_its_closed_form(deviation):
    rng = np.random.default_rng(0)
    w, b = np.array([2.0, -1.5, 1.0, 0.3]), -3.0
    x = rng.random((200, 4))
    price = Price.of(WIDE, torch.as_tensor(rng.random((500, 4))))
    delta = torch.as_tensor(w + 0.5 * rng.normal(size=(1, 4)))
    direction = Directions.of(delta, WIDE, price)
    query = query_of(Linear(w, b), x, WIDE)
    rows = np.flatnonzero(x @ w + b < 0)
    found = smallest_scalars(direction, query, price, clip=False, count=64, steps=20)
    rate = float(direction.delta[0] @ torch.as_tensor(w))
    want = -(x[rows] @ w + b) / rate
    assert found.ok[rows].all()
    # The answer is accepted a margin of 1e-4 behind the boundary, by a bisection to 1e-6.
    want = want + 1e-4 / rate
    deviation.absolute(found.k[rows].numpy(), want, oracle="-(w.x + b) / w.delta", limit=1e-5)


def test_the_public_answer_lies_on_the_boundary(deviation):
    rng = np.random.default_rng(1)
    w, b = np.array([3.0, -2.0, 1.0, 0.5]), -2.0
    model = Linear(w, b)
    X = rng.random((400, 4)).astype(np.float32)
    method = GLOBECE(model, space=WIDE, clip=False).fit(X)
    result = method.explain(X, 1)
    found = result.found
    assert found[result.explained].all()
    score = result.x_cfs[found] @ w + b
    deviation.absolute(score, 0, oracle="boundary", limit=1e-3, unit="absolute score")


@pytest.mark.parametrize("seed", range(5))
def test_categories_move_exactly_as_the_theorem_says(seed, deviation):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    space = FeatureSpace(
        (
            Feature(
                name="c", kind="categorical", columns=tuple(range(size)),
                categories=tuple(range(size)),
            ),
        )
    )  # fmt: skip
    x = torch.eye(size, dtype=torch.float64)
    price = Price.of(space, x)
    direction = Directions.of(torch.as_tensor(rng.normal(size=(1, size))), space, price)
    d = direction.delta[0].numpy()
    best = d.argmax()
    for k in rng.random(50) * 20:
        moved = direction.points(x, torch.full((1, size), k, dtype=torch.float64))[0]
        brute = (x.numpy() + k * d).argmax(1)
        rule = np.where(d < d[best] - 1 / k, best, np.arange(size))
        assert np.array_equal(brute, rule)
        deviation.rows(moved.numpy().argmax(1) != rule, oracle="theorem and argmax")
        assert (moved.sum(1) == 1).all()


MIXED = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="c", kind="categorical", columns=(1, 2, 3), categories=("x", "y", "z")),
        Feature(name="n", kind="integer", columns=(4,), step=0.1),
        Feature(name="fixed", columns=(5,), mutable=False),
    )
)


def mixed_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    level = np.eye(3)[rng.integers(0, 3, n)]
    steps = rng.integers(0, 11, (n, 1)) / 10
    return np.hstack([rng.random((n, 1)), level, steps, rng.random((n, 1))]).astype(np.float32)


def mixed_model(steep=1.0):
    """With a steep score the margin of acceptance means nothing in units of x."""
    return Linear(steep * np.array([2.0, 0.0, 1.5, -1.0, 1.0, 0.7]), -3.0 * steep)


def test_the_scalar_is_minimal(deviation):
    """Rows flip at their scalar and not at a thousandth less."""
    X = mixed_rows(300)
    model = mixed_model(steep=1000.0)
    method = GLOBECE(model, space=MIXED).fit(X)
    state = method.explanation(1).state
    query = query_of(model, X, MIXED)
    answer = smallest_scalars(
        state.directions, query, state.bin_cost, clip=True, count=64, steps=20
    )
    ok = answer.ok & torch.as_tensor(model.predict(X) == 0)
    assert ok.any()
    assert (model.predict(answer.x[ok].numpy()) == 1).all()
    part = query.select(ok.nonzero()[:, 0])
    just_less = (answer.k[ok] - 1e-3).clamp(min=0)
    before = state.directions.settled(part.region, just_less[None], state.bin_cost)[0]
    deviation.rows(model.predict(before.numpy()) != 0, oracle="scalar less 1e-3")


def test_brute_force_over_a_fine_grid_is_not_cheaper(deviation):
    """No scalar of a fine grid flips a row before the scalar that is found."""
    X = mixed_rows(60)
    model = mixed_model(steep=1000.0)
    method = GLOBECE(model, space=MIXED).fit(X)
    state = method.explanation(1).state
    rows = np.flatnonzero(model.predict(X) == 0)
    query = query_of(model, X[rows], MIXED)
    answer = smallest_scalars(
        state.directions, query, state.bin_cost, clip=True, count=64, steps=20
    )
    grid = torch.linspace(0, float(state.directions.largest(state.bin_cost)), 4000)
    best = torch.full((len(rows),), torch.inf)
    for k in grid:
        points = state.directions.settled(query.region, k.expand(1, len(rows)), state.bin_cost)[0]
        flips = torch.as_tensor(model.predict(points.numpy()) == 1)
        best = torch.where(flips & best.isinf(), k, best)
    step = float(grid[1])
    assert np.array_equal(answer.ok.numpy(), best.isfinite().numpy())
    ours, first = answer.k[answer.ok], best[answer.ok]
    over = (ours / first - 1).clamp(min=0)
    deviation(over, oracle="grid of 4000 scalars", limit=1e-4, unit="relative")
    assert (ours >= first - step * (1 + 1e-4)).all()


def test_coverage_does_not_fall_with_more_directions(deviation):
    rng = np.random.default_rng(0)
    X = rng.random((400, 2)).astype(np.float32)

    def ring(Z):
        return np.abs(np.linalg.norm(np.asarray(Z) - 0.5, axis=1) - 0.35)

    class Ring(Linear):
        def logits(self, x):
            score = 30 * ((x - 0.5).norm(dim=1) - 0.35)
            return torch.stack([torch.zeros_like(score), score], 1).double()

    shares = []
    for n in (1, 2, 3, 5):
        method = GLOBECE(Ring([0.0, 0.0], 0.0), n_directions=n, n_sample=200).fit(X)
        shares.append(method.explanation(1).validity)
    fall = [a - b for a, b in pairwise(shares)]
    deviation(fall, oracle="monotone in the directions", limit=1e-12, unit="fall of the share")
    assert ring(X).shape == (400,)


def test_every_answer_is_decodable_and_honours_the_space(deviation):
    X = mixed_rows(400)
    result = GLOBECE(mixed_model(), space=MIXED, n_directions=2).fit(X).explain(X, 1)
    found = result.found
    assert found.sum() > 100
    x, origin = result.x_cfs[found], result.x_origs[found]
    assert set(np.unique(x[:, 1:4])) <= {0.0, 1.0}
    deviation.absolute(x[:, 1:4].sum(1), 1, oracle="one category is on", limit=0)
    assert np.abs(x[:, 4] * 10 - np.round(x[:, 4] * 10)).max() < 1e-4
    assert np.array_equal(x[:, 5], origin[:, 5])
    assert (x[:, 0] <= X[:, 0].max()).all()


def test_directions_of_change_are_respected():
    space = MIXED.with_changes(a={"direction": "down"}, n={"direction": "up"})
    X = mixed_rows(400)
    result = GLOBECE(mixed_model(), space=space, n_directions=3).fit(X).explain(X, 1)
    found = result.found
    assert found.any()
    assert (result.x_cfs[found, 0] <= result.x_origs[found, 0] + 1e-6).all()
    assert (result.x_cfs[found, 4] >= result.x_origs[found, 4] - 1e-6).all()


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    keep = y < 2
    return (X[keep] / 16).astype(np.float32), y[keep]


@pytest.mark.parametrize("kind", ["lr", "mlp"])
def test_digits_have_coverage(digits, kind, deviation):
    """More than nine tenths of rows of Digits are found."""
    X, y = digits
    model = SklearnLR(max_iter=1000) if kind == "lr" else SklearnMLP((64,), random_state=0)
    model = Wrapped(model.fit(X[:280], y[:280]))
    method = GLOBECE(model).fit(X[:280])
    result = method.explain(X[280:], 1)
    lost = 1 - result.found[result.explained].mean()
    deviation(lost, oracle="every row", limit=0.05, unit="share not found")


def test_random_directions_fail_on_digits_and_say_so(digits):
    X, y = digits
    model = Wrapped(SklearnLR(max_iter=1000).fit(X, y))
    method = GLOBECE(model, generator="random", select="fixed", n_sample=300).fit(X)
    explanation = method.explanation(1)
    assert explanation.validity <= 0.5
    if not explanation.units:
        assert "random" in explanation.reason


def test_greedy_choice_against_enumeration(deviation):
    """Greedy choice reaches at least 1 - 1/e of the best pair of directions."""
    rng = np.random.default_rng(0)
    worth = torch.as_tensor(rng.random((12, 30)) * (rng.random((12, 30)) < 0.3))
    chosen = greedy(worth, 2).tolist()
    pairs = [torch.maximum(worth[i], worth[j]).mean() for i in range(12) for j in range(12)]
    got = torch.maximum(*worth[chosen]).mean()
    short = 1 - got / max(pairs)
    oracle = "all pairs of directions"
    deviation(short, oracle=oracle, limit=1 / np.e, unit="missing share of the gain")


def test_the_chart_accumulates():
    X = mixed_rows(500)
    model = Linear([0.3, 0.0, 4.0, -1.0, 0.2, 0.0], -2.0)
    explanation = GLOBECE(model, space=MIXED).fit(X).explanation(1)
    (unit,) = explanation.units
    chart = unit.details["chart"]
    assert chart
    assert all(b["scalar"] > a["scalar"] for a, b in pairwise(chart))
    assert all(b["coverage"] >= a["coverage"] for a, b in pairwise(chart))
    assert chart[-1]["coverage"] == pytest.approx(unit.coverage)
    assert any("-> y" in rule for line in chart for rule in line["rules"])
    leave = explanation.state.directions.leave[0, 1:4]
    scalars = sorted({float(f"{k:.6g}") for k in leave.tolist() if k < NEVER})
    assert [line["scalar"] for line in chart] == pytest.approx(scalars)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_regression_targets_are_reached(sign, deviation):
    rng = np.random.default_rng(0)
    X = rng.random((500, 3)).astype(np.float32)
    model = Value(lambda Z: 0.5 * Z[:, 0] + 0.3 * Z[:, 1] ** 2 + 0.2 * np.sin(3 * Z[:, 2]))
    method = GLOBECE(model, n_directions=2).fit(X)
    y = model.predict(X)
    target = y + sign * 0.2
    inside = (target[:, 0] > 0.1) & (target[:, 0] < 0.8)
    result = method.explain(X[inside], target[inside])
    share = result.found.mean()
    assert share > 0.9
    error = np.abs(model.predict(result.x_cfs[result.found]) - target[inside][result.found])
    deviation(error, oracle="value asked for", limit=0.05, unit="absolute")
    assert np.median(error) <= 0.0101


def test_regression_explanations_have_names_and_can_be_assigned():
    rng = np.random.default_rng(0)
    X = rng.random((300, 2)).astype(np.float32)
    method = GLOBECE(Value(lambda Z: Z.mean(1))).fit(X)
    method.explain(X, method.model.predict(X) - 0.2)
    falling = method.explanation()
    assert falling.target == "fall"
    again = falling.assign(X)
    assert set(again.cf_group_ids) <= {-1, *(u.id for u in falling)}
    assert (again.x_cfs[again.found].mean(1) < X[again.found].mean(1)).all()


def test_a_flat_model_is_answered_with_a_reason():
    X = mixed_rows(100)
    method = GLOBECE(Linear(np.zeros(6), -1.0), space=MIXED).fit(X)
    explanation = method.explanation(1)
    assert not explanation.units
    assert "hybrid" in explanation.reason
    result = method.explain(X, 1)
    assert (result.status == Status.NOT_FOUND.value).all()
