"""DiCoFlex against the empirical law of neighbours that it is trained on."""

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from cel.cf_methods.local_methods import NICE, DiCoFlex
from cel.cf_methods.local_methods.dicoflex.neighbour_pairs import (
    _powers,
    column_weights,
    draw_pairs,
    norm_distance,
)
from cel.cf_methods.query import Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.protocols import Task
from cel.search import Budget, RowStreams
from cel.space import Feature, FeatureSpace
from cel.space.region import Region
from cel.testing.problems import ToyModel

SMALL = {"pairs": 4000, "epochs": 60, "patience": 60, "transforms": 4, "hidden": 32}


def half_space(w, b=0.0):
    w = np.asarray(w, dtype=np.float32)
    weights = np.stack([np.zeros_like(w), w])
    return ToyModel(weights, np.array([0, b], dtype=np.float32), Task.CLASSIFICATION)


def query_of(method, x, target=1):
    x = torch.as_tensor(x)
    return Query(
        x=x,
        target=torch.full((len(x),), target),
        region=Region.around(method.space_, x),
        model=ModelView(method.model),
        rng=RowStreams.of(x, 0),
        budget=Budget(),
    )


# -- (a), (d), (f): the law ------------------------------------------------------------------


@pytest.fixture(scope="module")
def line():
    """Two Gaussians on a line, one on either side of the boundary at 0."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-2, 0.3, 300), rng.normal(2, 0.5, 300)])
    rows = x.astype(np.float32)[:, None]
    space = FeatureSpace.continuous(1, -8.0, 8.0)
    settings = SMALL | {"neighbours": 200, "norms": (2.0,), "temperature": 1.0, "flow": "nsf"}
    method = DiCoFlex(half_space([4.0]), space=space, samples=2000, **settings).fit(rows)
    return rows, method


def test_draws_have_the_law_of_the_nearest_rows_of_the_class(line, deviation):
    rows, method = line
    drawn = method.draw(query_of(method, [[-2.0]]))[0, :, 0].numpy()
    of_class = np.sort(rows[rows[:, 0] > 0, 0])
    nearest = of_class[:200]  # from -2 the nearest rows of the class are its smallest
    told = {"oracle": "empirical law of the neighbours", "unit": "Kolmogorov-Smirnov"}
    deviation(ks_2samp(drawn, nearest).statistic, limit=0.1, **told)
    assert ks_2samp(drawn, of_class).statistic > 0.15  # it is not the law of the whole class


def test_a_temperature_of_nothing_draws_one_point_near_real_rows(line):
    rows, method = line
    of_class = torch.as_tensor(rows[rows[:, 0] > 0])

    def drawn(temperature):
        cold = DiCoFlex(method.model, space=method.space, samples=200, temperature=temperature)
        cold.encoding_, cold.flow_, cold.norm = method.encoding_, method.flow_, 2.0
        return cold.draw(query_of(method, [[-2.0], [-1.5]]))

    def gap(points):
        return torch.cdist(points.reshape(-1, 1), of_class).amin(1).mean()

    none, one = drawn(0.0), drawn(1.0)
    assert (none - none[:, :1]).abs().max() < 1e-5
    assert gap(none) < gap(one)


def test_the_order_of_the_training_rows_does_not_matter(deviation):
    rng = np.random.default_rng(4)
    rows = rng.random((200, 2)).astype(np.float32)
    model, space = half_space([4.0, 2.0], -3.0), FeatureSpace.continuous(2)
    settings = {"pairs": 800, "epochs": 5, "transforms": 2, "hidden": 16, "samples": 20}
    answers = [
        DiCoFlex(model, space=space, **settings).fit(some).explain(rows[:20], 1).x_cfs
        for some in (rows, rows[::-1].copy())
    ]
    assert np.array_equal(*map(np.isnan, answers))
    one, other = map(np.nan_to_num, answers)
    deviation.absolute(one, other, oracle="reversed rows", limit=1e-5)


# -- (b): what cannot change -----------------------------------------------------------------


def mixed_case(n=500, seed=1):
    """Integers on a grid, a category, an immutable number: most rows share many values."""
    rng = np.random.default_rng(seed)
    grid = rng.integers(0, 5, (n, 4)) / 4
    kind = np.eye(3)[rng.integers(0, 3, n)]
    rows = np.column_stack([grid, kind, rng.random(n)]).astype(np.float32)
    features = [Feature(name=f"g{i}", kind="integer", columns=(i,), step=0.25) for i in range(4)]
    space = FeatureSpace(
        (
            *features,
            Feature(name="k", kind="categorical", columns=(4, 5, 6), categories=("a", "b", "c")),
            Feature(name="origin", columns=(7,), mutable=False),
        )
    )
    return rows, half_space([2, 2, 1, 1, 0, 0.5, 1, 0.5], -4.0), space


@pytest.fixture(scope="module")
def mixed():
    rows, model, space = mixed_case()
    method = DiCoFlex(model, space=space, samples=100, **(SMALL | {"pairs": 8000})).fit(rows)
    return rows, method


def test_the_flow_itself_leaves_immutable_features_alone(mixed, deviation):
    rows, method = mixed
    below = rows[method.model.predict(rows) == 0][:100]
    query = query_of(method, below)
    drawn = method.draw(query)  # 10,000 points, nothing put back
    away = drawn[..., 7] - query.x[:, None, 7]
    told = {"oracle": "the row's own value", "limit": 0.02, "unit": "mean of 10,000 draws"}
    deviation(away.mean().abs(), **told)
    assert away.std() < 0.1
    assert (drawn[..., 0] - query.x[:, None, 0]).std() > 0.2  # others do move


def test_frozen_features_are_a_condition_of_the_flow(mixed):
    """What is frozen after training stays, in the draws themselves, without another training."""
    rows, method = mixed
    below = rows[method.model.predict(rows) == 0][:100]
    free = query_of(method, below)
    mask = torch.zeros(len(method.space_), dtype=torch.bool)
    mask[0] = True
    frozen = Query(
        x=free.x, target=free.target, region=free.region.freeze(mask), model=free.model,
        rng=free.rng, budget=free.budget,
    )  # fmt: skip
    moved = [(method.draw(q)[..., 0] - q.x[:, None, 0]).abs().mean() for q in (free, frozen)]
    assert moved[1] < 0.3 * moved[0]
    answer = method.answer(frozen)
    kept = ~answer.x.isnan().any(1)
    assert kept.any()
    assert (answer.x[kept, 0] == free.x[kept, 0]).all()


# -- (c): sparse answers ---------------------------------------------------------------------


def test_a_smaller_exponent_changes_fewer_features(mixed):
    rows, method = mixed
    below = rows[method.model.predict(rows) == 0][:150]

    def changed(norm):
        pairs = draw_pairs(
            TrainRows(x=torch.as_tensor(rows), y=torch.as_tensor(method.model.predict(rows))),
            method.space_, ModelView(method.model), count=4000, neighbours=8, draws=4,
            confidence=0.55, norms=(norm,), seed=0,
        )  # fmt: skip
        return ((pairs.goal - pairs.wishes.x).abs() > 1e-6).sum(1).double().mean()

    def moved(norm):
        query = query_of(method, below)
        other = _with_norm(method, norm)
        drawn = other._settled(other.draw(query), query)
        source = query.rows().repeat_interleave(drawn.shape[1])
        seen = query.region.select(source).snap(drawn.flatten(0, 1))
        return (seen != query.x[source]).sum(1).double().mean()

    assert changed(0.5) < changed(2.0)  # of the neighbours it learns from
    assert moved(0.5) < moved(2.0)  # of all that it draws
    few, many = (_with_norm(method, norm).explain(below, 1) for norm in (0.5, 2.0))
    both = few.found & many.found
    assert both.mean() > 0.5
    counts = [(np.abs(r.x_cfs - r.x_origs) > 1e-6)[both].sum(1).mean() for r in (few, many)]
    assert counts[0] < counts[1]


def _with_norm(method, norm):
    out = DiCoFlex(method.model, space=method.space, norm=norm, samples=100)
    out.__dict__ |= {k: v for k, v in vars(method).items() if k.endswith("_") or k == "_split"}
    return out


def test_distances_are_those_of_the_formula(deviation):
    delta = torch.tensor([[[1.0, -4.0], [0.0, 9.0]], [[1.0, -4.0], [0.0, 9.0]]])
    away = norm_distance(delta, torch.tensor([0.5, 1.0]), torch.tensor([1.0, 0.5]))
    by_hand = [[4.0, 2.25], [3.0, 4.5]]  # (1 + 2 / 2)^2, (3 / 2)^2
    deviation.absolute(away, by_hand, oracle="by hand", limit=1e-6)


# -- (e): sets -------------------------------------------------------------------------------


def test_sets_are_distinct_valid_and_led_by_the_nearest(mixed):
    rows, method = mixed
    below = rows[method.model.predict(rows) == 0][:60]
    result = method.explain(below, 1)
    assert result.found.mean() > 0.9
    sizes = []
    for x, members, best in zip(below, result.x_sets, result.x_cfs, strict=True):
        real = members[~np.isnan(members).any(1)]
        sizes.append(len(real))
        if not len(real):
            continue
        assert len(np.unique(real, axis=0)) == len(real)
        assert (method.model.predict(real) == 1).all()
        assert np.array_equal(real[:, 7], np.full(len(real), x[7]))
        weight = method.weight_.numpy()
        far = np.sqrt((np.square(real - x) * weight).sum(1))
        assert np.array_equal(real[far.argmin()], best)
    assert np.mean(sizes) > 5


def test_neighbours_keep_the_constraints_and_the_class(mixed):
    rows, method = mixed
    train = TrainRows(x=torch.as_tensor(rows), y=torch.as_tensor(method.model.predict(rows)))
    pairs = draw_pairs(
        train, method.space_, ModelView(method.model), count=2000, neighbours=16, draws=4,
        confidence=0.55, norms=(1.0, 2.0), seed=0,
    )  # fmt: skip
    assert pairs.wishes.region.contains(pairs.goal).all()
    assert (method.model.predict(pairs.goal.numpy()) == pairs.wishes.target.numpy()).all()
    assert (pairs.goal[:, 7] == pairs.wishes.x[:, 7]).all()
    assert set(pairs.wishes.norm.tolist()) == {1.0, 2.0}
    frozen = pairs.wishes.region.fixed
    assert (pairs.goal[frozen] == pairs.wishes.x[frozen]).all()
    assert frozen[:, 0].any()
    assert not frozen[:, 0].all()


def test_settings_that_make_no_sense_are_refused():
    rows, model, space = mixed_case(60)
    with pytest.raises(ConfigError, match="one of norms"):
        DiCoFlex(model, space=space, norm=3.0).fit(rows)
    with pytest.raises(ConfigError, match="samples must be at least 1"):
        DiCoFlex(model, space=space, samples=0).fit(rows)


def test_rows_without_any_neighbour_are_not_found():
    rows = np.random.default_rng(0).random((50, 2)).astype(np.float32)
    always_no = half_space([0.0, 0.0], -1.0)
    method = DiCoFlex(always_no, space=FeatureSpace.continuous(2), **SMALL).fit(rows)
    result = method.explain(rows[:5], 1)
    assert not result.found.any()
    assert "no training row" in str(result.logs)


@pytest.mark.parametrize("kind", ["maf", "nsf", "realnvp"])
def test_columns_in_turn_give_the_inverse_of_the_flow(kind):
    from cel.cf_methods.local_methods.dicoflex.neighbour_flow import FLOWS
    from cel.models.generative.flows.by_rank import inverse_by_rank

    rng = np.random.default_rng(0)
    x, context = rng.normal(size=(200, 5)), rng.normal(size=(200, 3))
    x[:, 1] += x[:, 0] * context[:, 1]
    flow = FLOWS[kind](transforms=3, hidden=16, epochs=3, noise=0.0).fit(x, context)
    module, seen = flow.frozen(), torch.as_tensor(context).float()
    z = torch.as_tensor(rng.normal(size=(200, 5))).float()
    made = inverse_by_rank(module, z, seen)
    assert torch.allclose(made, module.inverse(z, seen), atol=1e-4)
    back, _ = module.transform(made, seen)
    assert torch.allclose(back, z, atol=2e-3)


def test_simple_exponents_are_the_formula():
    """The quick powers of one exponent, and the general ones of several, agree."""
    rng = np.random.default_rng(1)
    delta = torch.as_tensor(rng.normal(size=(6, 4, 3))).float()
    weight = torch.tensor([1.0, 0.5, 0.5])
    for p in (0.5, 1.0, 2.0, 3.0):
        norm = torch.full((6,), p)
        mixed = torch.cat([norm, torch.tensor([0.7])])
        general = norm_distance(torch.cat([delta, delta[:1]]), mixed, weight)[:6]
        assert torch.allclose(norm_distance(delta, norm, weight), general, rtol=1e-5)


def test_neighbours_are_the_nearest_by_the_formula(deviation):
    """Products and columns one by one give the distances of the formula, categories included."""
    rows, _, space = mixed_case(40)
    x, pool = torch.as_tensor(rows[:12]), torch.as_tensor(rows[12:])
    norm = torch.tensor([0.5, 1.0, 2.0, 0.7]).repeat(3)
    weight = column_weights(space, x).repeat(12, 1)
    weight[::2, 1], weight[3:, 4:7] = 0.0, 0.0
    numeric = torch.as_tensor(space.numeric_columns)
    delta, away = pool[None] - x[:, None], []
    for some in (slice(0, 12), *(slice(i, i + 1) for i in range(12))):  # mixed and single p
        found = _powers(x[some], pool, norm[some], weight[some], numeric)
        away.append(found ** (1 / norm[some, None]))
    formula = norm_distance(delta, norm, weight[:, None])
    for some in (away[0], torch.cat(away[1:])):
        deviation.absolute(some, formula, oracle="the formula", limit=1e-5)


# -- rows without a valid draw ---------------------------------------------------------------


def _falling_back(method, fallback, **changes):
    """The same flow with another fallback, its draws made useless for rows with a large `g0`."""
    settings = {"samples": 30, "fallback": fallback} | changes
    out = DiCoFlex(method.model, space=method.space, **settings)
    out.__dict__ |= {k: v for k, v in vars(method).items() if k.endswith("_") or k == "_split"}
    out.nice_ = None if fallback is None else NICE(out.model, space=out.space).adopt_rows(out)
    draw = DiCoFlex.draw
    out.draw = lambda q: torch.where(q.x[:, None, :1] > 0.4, q.x[:, None], draw(out, q))
    return out


def test_a_fallback_answers_the_rows_without_a_valid_draw(mixed):
    """Only those: they get the answer of NICE and are named; all others keep theirs."""
    rows, method = mixed
    below = rows[method.model.predict(rows) == 0][:60]
    plain = _falling_back(method, None).explain(below, 1)
    filled = _falling_back(method, "nice").explain(below, 1)
    without = ~plain.found
    assert 5 < without.sum() < 55
    assert plain.cf_group_ids is None
    assert np.array_equal(plain.x_cfs[~without], filled.x_cfs[~without])
    by_nice = NICE(method.model, space=method.space).fit(rows).explain(below[without], 1)
    assert by_nice.found.all()
    assert np.array_equal(filled.x_cfs[without], by_nice.x_cfs)
    assert np.array_equal(filled.x_sets[without, 0], by_nice.x_cfs)
    assert np.array_equal(filled.cf_group_ids, without.astype(int))
    assert "NICE" in filled.logs["how"][1]


def test_a_fallback_answers_where_no_flow_could_be_trained():
    rows = np.random.default_rng(0).random((80, 2)).astype(np.float32)
    model, space = half_space([4.0, 4.0], -4.0), FeatureSpace.continuous(2)
    below = rows[model.predict(rows) == 0][:10]
    method = DiCoFlex(model, space=space, fallback="nice", **(SMALL | {"epochs": 1})).fit(rows)
    method.flow_ = None
    result = method.explain(below, 1)
    assert result.found.all()
    assert (result.cf_group_ids == 1).all()


def test_a_fallback_must_be_known():
    rows, model, space = mixed_case(60)
    with pytest.raises(ConfigError, match="fallback='face' is unknown"):
        DiCoFlex(model, space=space, fallback="face").fit(rows)
