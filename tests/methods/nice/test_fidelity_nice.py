"""NICE: donors by brute force, walks by a plain reimplementation, and what donors may lend."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.nice import NICE, _Look
from cel.protocols import Task
from cel.space import Feature, FeatureSpace, LinearRelation
from cel.space.distances import changed_features
from cel.testing.problems import PROBLEMS, ToyModel


def heom(a, b, space, width):
    """Sum of |difference| / range, and 1 for each category that differs."""
    total = 0.0
    for f in space:
        c = list(f.columns)
        if f.one_hot:
            total += float((np.abs(a[c] - b[c]) > 0.5).any())
        else:
            total += abs(float(a[c[0]]) - float(b[c[0]])) / width[c[0]]
    return total


def free(space):
    """Return a space in which everything may change to anything."""
    changes = {f.name: {"mutable": True, "direction": "any", "allowed": None} for f in space}
    return space.with_changes(**changes)


def mixed(constrained):
    problem = PROBLEMS["mixed"]()
    space = problem.space if constrained else free(problem.space)
    width = np.ptp(problem.x_train, axis=0)
    return problem, space, np.where(width > 0, width, 1.0)


def brute_donor(problem, space, width, x):
    """Return the nearest row of class 1 where the region puts it, and its distance."""
    rows = problem.x_train[problem.model.predict(problem.x_train) == 1]
    region = space.region(torch.as_tensor(np.repeat(x[None], len(rows), 0)))
    placed = region.snap(torch.as_tensor(rows)).numpy()
    good = problem.model.predict(placed) == 1
    distances = [
        heom(x, p, space, width) if g else np.inf for p, g in zip(placed, good, strict=True)
    ]
    return placed[int(np.argmin(distances))], min(distances)


@pytest.mark.parametrize("constrained", [False, True])
def test_without_a_reward_the_answer_is_the_nearest_row_by_brute_force(constrained, deviation):
    problem, space, width = mixed(constrained)
    result = problem.fitted(NICE, reward="none", space=space).explain(problem.x, 1)
    assert result.found.all()
    donors, best = zip(*(brute_donor(problem, space, width, x) for x in problem.x), strict=True)
    cost = [heom(x, cf, space, width) for x, cf in zip(problem.x, result.x_cfs, strict=True)]
    deviation.absolute(cost, best, oracle="brute force over the pool", limit=1e-6)
    deviation.rows((result.x_cfs != np.array(donors)).any(1), oracle="brute force over the pool")


def test_ties_go_to_the_earlier_row(deviation):
    rows = np.array([[0, 0], [1, 0], [0.5, 0.5], [0, 1]], dtype=np.float32)
    model = ToyModel(
        np.array([[0, 0], [4, 4]], dtype=np.float32), np.array([0, -3], dtype=np.float32),
        Task.CLASSIFICATION,
    )  # fmt: skip
    for order in ([0, 1, 2, 3], [0, 3, 2, 1], [0, 2, 1, 3]):
        method = NICE(model, reward="none", space=FeatureSpace.continuous(2)).fit(rows[order])
        answer = method.explain(rows[:1], 1).x_cfs[0]
        deviation.absolute(answer, rows[order[1]], oracle="by hand", limit=0)


def crowd_error(problem, space, width):
    rows = problem.x_train[problem.model.predict(problem.x_train) == 1]
    return lambda x: float(np.mean(sorted(heom(x, r, space, width) for r in rows)[:5]))


def plain_nice(x, donor, space, model, reward, distance, error):
    """Return the walk of the definition, feature by feature, one candidate at a time."""

    def chance(z):
        score = model.logits(torch.as_tensor(z[None])).double()
        return float(torch.softmax(score, 1)[0, 1])

    state, order = x.copy(), []
    while chance(state) <= 0.5:
        best, winner = -np.inf, None
        options = []
        for i, f in enumerate(space):
            c = list(f.columns)
            if (state[c] == donor[c]).all():
                continue
            candidate = state.copy()
            candidate[c] = donor[c]
            gain = chance(candidate) - chance(state)
            near = distance(x, candidate) - distance(x, state)
            like = error(state) - error(candidate) if reward == "plausibility" else 0.0
            options.append((i, candidate, gain, near, like))
        both = any(gain > 0 and like > 0 for *_, gain, _, like in options)
        for i, candidate, gain, near, like in options:
            value = gain
            if reward == "proximity":
                value = gain / (near + 1e-11)
            elif reward == "plausibility" and both:
                value = gain * like if gain > 0 and like > 0 else -np.inf
            if value > best:
                best, winner = value, (i, candidate)
        order.append(winner[0])
        state = winner[1]
    return state, order


@pytest.mark.parametrize("reward", ["sparsity", "proximity", "plausibility"])
@pytest.mark.parametrize("constrained", [False, True])
def test_walks_equal_a_plain_reimplementation(reward, constrained, deviation):
    problem, space, width = mixed(constrained)
    result = problem.fitted(NICE, reward=reward, space=space).explain(problem.x, 1)
    error = crowd_error(problem, space, width)
    wanted, lengths = [], []
    for x in problem.x:
        donor, _ = brute_donor(problem, space, width, x)
        end, order = plain_nice(
            x, donor, space, problem.model, reward, lambda a, b: heom(a, b, space, width), error
        )
        wanted.append(end)
        lengths.append(len(order))
    assert max(lengths) >= 2
    wrong = (result.x_cfs != np.array(wanted, dtype=np.float32)).any(1)
    deviation.rows(wrong, oracle="plain reimplementation, row by row")


def test_on_a_linear_model_features_come_in_the_order_of_their_gain(case, deviation):
    """Sparsity on a linear model: features in order of w (b - x), up to the first crossing."""
    c = case(d=6, n=12)
    result = c.run(NICE)
    donors = c.run(NICE, reward="none").x_cfs
    assert result.found.all()
    for x, donor, answer in zip(c.x, donors, result.x_cfs, strict=True):
        gain = c.w.astype(np.float64) * (donor.astype(np.float64) - x)
        order = np.argsort(-gain, kind="stable")
        reached = c.score(x[None])[0] + np.cumsum(gain[order])
        count = int(np.argmax(reached >= c.margin)) + 1
        expected = x.copy()
        expected[order[:count]] = donor[order[:count]]
        deviation.absolute(answer, expected, oracle="closed form", limit=0)


@pytest.mark.parametrize("reward", ["sparsity", "proximity", "plausibility"])
def test_every_changed_value_is_the_donors(reward, deviation):
    problem, _, _ = mixed(constrained=True)
    donors = problem.fitted(NICE, reward="none").explain(problem.x, 1).x_cfs
    answers = problem.fitted(NICE, reward=reward).explain(problem.x, 1).x_cfs
    foreign = (answers != problem.x) & (answers != donors)
    deviation.rows(foreign.any(1), oracle="the donors")
    assert (answers != donors).any()


def test_a_row_alone_equals_the_row_in_a_batch(deviation):
    problem, _, _ = mixed(constrained=True)
    method = problem.fitted(NICE, donors=3, finish=True)
    whole = method.explain(problem.x, 1)
    alone = np.concatenate([method.explain(x[None], 1).x_cfs for x in problem.x])
    deviation.rows((whole.x_cfs != alone).any(1), oracle="one call per row")


def test_justified_donors_have_their_label(deviation):
    """With `justified`, no donor has a recorded outcome that differs from its prediction."""
    problem, space, _ = mixed(constrained=False)
    labels = problem.model.predict(problem.x_train)
    wrong = np.random.default_rng(0).random(len(labels)) < 0.5
    recorded = np.where(wrong, 1 - labels, labels)
    method = problem.build(NICE, reward="none", space=space)
    justified = method.fit(problem.x_train, recorded).explain(problem.x, 1).x_cfs
    good = {tuple(r) for r in problem.x_train[(labels == 1) & ~wrong].round(4).tolist()}
    deviation.rows(
        [tuple(r) not in good for r in justified.round(4).tolist()], oracle="recorded outcomes"
    )
    method.set_params(justified=False)
    loose = method.fit(problem.x_train, recorded).explain(problem.x, 1).x_cfs
    assert any(tuple(r) not in good for r in loose.round(4).tolist())


def test_one_free_feature_is_the_only_one_that_changes():
    problem, space, _ = mixed(constrained=False)
    seen = set()
    for kept in space.names:
        frozen = space.with_changes(**{n: {"mutable": n == kept} for n in space.names})
        result = problem.fitted(NICE, space=frozen).explain(problem.x, 1)
        assert set(result.status) <= {"found", "not_found"}
        moved = changed_features(result.x_origs[result.found], result.x_cfs[result.found], space)
        assert {space.names[j] for j in np.flatnonzero(moved.any(0))} <= {kept}
        seen |= set(result.status)
    assert seen == {"found", "not_found"}


@pytest.mark.parametrize("target", [0, 1, 2])
def test_with_three_classes_the_answer_has_the_one_that_was_asked_for(target):
    problem = PROBLEMS["three_classes"]()
    rows = problem.x_train[problem.model.predict(problem.x_train) != target][:30]
    result = problem.fitted(NICE).explain(rows, target)
    assert result.found.all()
    assert (problem.model.predict(result.x_cfs) == target).all()


def test_two_losses_are_no_gain():
    """Plausibility: a feature that lowers both, chance and likeness, does not win by it."""
    look = SimpleNamespace(kind="plausibility")
    old, new = torch.tensor([[0.4, 1.0]]), torch.tensor([[[0.1, 3.0], [0.45, 0.9], [0.7, 1.2]]])
    known = torch.ones(1, 3, dtype=torch.bool)
    assert int(_Look.reward(look, new, old, known).argmax(1)) == 1
    none_gains_in_both = known & torch.tensor([[True, False, True]])
    assert int(_Look.reward(look, new, old, none_gains_in_both).argmax(1)) == 2


def test_plausibility_needs_no_callable_and_takes_a_density():
    problem = PROBLEMS["mixed"]()
    plain = problem.fitted(NICE, reward="plausibility").explain(problem.x, 1)
    dense = problem.fitted(NICE, reward="plausibility", gen_model=problem.density)
    assert plain.found.all()
    assert dense.explain(problem.x, 1).found.all()


class Joined:
    """Class 1 needs b to fall below 0.35, but a <= b holds in every row: a must fall first."""

    space = FeatureSpace(
        (Feature(name="a"), Feature(name="b", columns=(1,)), Feature(name="c", columns=(2,))),
        (LinearRelation.of({"a": 1, "b": -1}),),
    )
    model = ToyModel(
        np.array([[0, 0, 0], [0, -4, 0]], dtype=np.float32),
        np.array([0, 1.4], dtype=np.float32), Task.CLASSIFICATION,
    )  # fmt: skip
    train = np.array([[0.1, 0.2, 0.5], [0.6, 0.9, 0.5]], dtype=np.float32)


def test_features_that_a_relation_joins_are_taken_over_together(deviation):
    row = np.array([[0.8, 0.85, 0.5]], dtype=np.float32)
    method = NICE(Joined.model, space=Joined.space).fit(Joined.train)
    answer = method.explain(row, 1)
    assert answer.status[0] == "found"
    deviation.absolute(answer.x_cfs, [[0.1, 0.2, 0.5]], oracle="by hand", limit=1e-7)


def test_the_features_in_the_way_are_named():
    """An unanswered row is told which single feature keeps its donors away."""
    space = Joined.space.with_changes(b={"mutable": False})
    method = NICE(Joined.model, space=space).fit(Joined.train)
    result = method.explain(np.array([[0.1, 0.85, 0.5]], dtype=np.float32), 1)
    assert result.status.tolist() == ["not_found"]
    assert result.logs["why"] == {"share of donors that one feature keeps away": {"b": 1.0}}
    empty = NICE(Joined.model, space=Joined.space).fit(Joined.train[1:])
    result = empty.explain(np.array([[0.8, 0.85, 0.5]], dtype=np.float32), 1)
    assert "no training row" in result.logs["why"]


def test_several_donors_are_all_kept_and_the_best_is_first():
    problem, space, width = mixed(constrained=True)
    one = problem.fitted(NICE, reward="proximity").explain(problem.x, 1)
    four = problem.fitted(NICE, reward="proximity", donors=4).explain(problem.x, 1)
    cost = [
        [heom(x, cf, space, width) for x, cf in zip(problem.x, r.x_cfs, strict=True)]
        for r in (one, four)
    ]
    assert (np.array(cost[1]) <= np.array(cost[0]) + 1e-6).all()
    assert four.x_sets.shape[:2] == (len(problem.x), 4)
    assert np.array_equal(four.x_sets[:, 0], four.x_cfs)


def test_finishing_never_makes_an_answer_farther_or_wider():
    problem, space, width = mixed(constrained=True)
    plain = problem.fitted(NICE).explain(problem.x, 1)
    short = problem.fitted(NICE, finish=True).explain(problem.x, 1)
    assert short.found.all()
    before, after = (
        np.array([heom(x, cf, space, width) for x, cf in zip(problem.x, r.x_cfs, strict=True)])
        for r in (plain, short)
    )
    assert (after <= before + 1e-6).all()
    assert (after < before - 1e-3).any()
