"""Plans: every step allowed, every probability the model's own, the order the best there is."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import cel
from cel.errors import MissingInputError
from cel.preprocessing import infer_space
from cel.result import ExplanationResult
from cel.space import Implication, LinearRelation


class Needs:
    """A model that says yes only if everything has risen, more likely with every step."""

    classes_ = np.array(["no", "yes"])

    def __init__(self, weights, least):
        self.weights, self.least = pd.Series(weights), least

    def predict_proba(self, frame):
        numbers = frame[list(self.weights.index)].astype(float)
        p = 1 / (1 + np.exp(-(numbers @ self.weights - self.least)))
        return np.stack([1 - p, p], 1)

    def predict(self, frame):
        return self.classes_[self.predict_proba(frame).argmax(1)]


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    open_ = rng.integers(0, 6, n)
    return pd.DataFrame(
        {
            "open": open_,
            "total": open_ + rng.integers(0, 6, n),
            "income": rng.integers(10, 60, n) * 100.0,
            "member": rng.choice(["no", "yes"], n),
            "level": rng.choice(["basic", "gold"], n),
        }
    )


def fixed_answers(frame, rows, answers, space):
    """Return the result of a method whose answers are known."""
    weights = {"open": 1.0, "total": 0.5, "income": 0.001}
    model = Needs(weights, 9.5)
    known = cel.wrap(model, frame, space=space)
    base = cel.explain(known, rows, train=frame, target="yes", method="nearest")
    given = base.given
    codes = known.pipeline_.transform(answers)
    encoded = known.pipeline_.encode_space(space)
    return replace(
        base, x_cfs=np.asarray(codes, dtype=np.float32), space=encoded,
        status=np.full(len(rows), "found", dtype=object), y_cfs=np.ones(len(rows), dtype=int),
        proof=None, bound=None,
    ), model, given  # fmt: skip


@pytest.fixture(scope="module")
def related():
    frame = table()
    space = infer_space(
        frame,
        constraints=(
            LinearRelation((("open", 1.0), ("total", -1.0)), 0.0),
            Implication("level", ("gold",), "member", ("yes",)),
        ),
    )
    rows = pd.DataFrame(
        {"open": [2, 3], "total": [2, 5], "income": [1500.0, 2000.0],
         "member": ["no", "no"], "level": ["basic", "basic"]}, index=["a", "b"],
    )  # fmt: skip
    answers = rows.assign(
        open=[5, 5], total=[8, 9], income=[5000.0, 5500.0], member="yes", level="gold"
    )
    result, model, _ = fixed_answers(frame, rows, answers, space)
    return rows, answers, result, model


def steps_of(plan, label):
    mine = plan[plan.row == label]
    return [list(g.feature) for _, g in mine.groupby("step")]


def walked(rows, answers, label, steps):
    """Yield the row after each step."""
    now = rows.loc[label].copy()
    for step in steps:
        for name in step:
            now[name] = answers.loc[label, name]
        yield pd.DataFrame([now]).astype(rows.dtypes)


def legal(frame):
    level = (frame.level != "gold") | (frame.member == "yes")
    return bool((frame.open <= frame.total).all() & level.all())


def test_every_step_is_allowed_and_has_her_models_probability(related):
    rows, answers, result, model = related
    plan = result.plan()
    assert set(plan.row) == {"a", "b"}
    for label in rows.index:
        steps = steps_of(plan, label)
        assert sorted(n for s in steps for n in s) == sorted(rows.columns)
        said = plan[plan.row == label].groupby("step").probability.first()
        for state, p in zip(walked(rows, answers, label, steps), said, strict=True):
            assert legal(state)
            assert model.predict_proba(state)[0, 1] == pytest.approx(p, abs=1e-6)


def test_the_order_is_the_best_allowed_one(related):
    rows, answers, result, model = related
    plan = result.plan()
    for label in rows.index:
        ways = [
            list(walked(rows, answers, label, [[n] for n in order]))
            for order in permutations(rows.columns)
        ]
        best = max(
            sum(model.predict_proba(state)[0, 1] for state in way)
            for way in ways
            if all(map(legal, way))
        )
        mine = plan[plan.row == label]
        assert mine.step.is_unique
        assert mine.probability.sum() == pytest.approx(best, abs=1e-5)


def test_changes_that_only_work_together_are_one_step():
    frame = table()
    space = infer_space(
        frame,
        constraints=(
            Implication("level", ("gold",), "member", ("yes",)),
            Implication("member", ("yes",), "level", ("gold",)),
        ),
    )
    rows = pd.DataFrame({"open": [2], "total": [4], "income": [1500.0], "member": ["no"],
                         "level": ["basic"]})  # fmt: skip
    answers = rows.assign(income=9000.0, member="yes", level="gold")
    result, _, _ = fixed_answers(frame, rows, answers, space)
    steps = steps_of(result.plan(), 0)
    assert sorted(map(sorted, steps)) == [["income"], ["level", "member"]]


def test_many_changes_are_planned_one_by_one():
    rng = np.random.default_rng(0)
    names = [f"c{j}" for j in range(11)]
    frame = pd.DataFrame(rng.uniform(-2, 2, size=(200, 11)).round(2), columns=names)
    model = Needs({n: 0.1 + 0.1 * j for j, n in enumerate(names)}, 5.0)
    known = cel.wrap(model, frame)
    rows = pd.DataFrame(-1.0, index=range(3), columns=names)
    base = cel.explain(known, rows, train=frame, target="yes", method="nearest")
    codes = np.asarray(known.pipeline_.transform(rows + 2.0), dtype=np.float32)
    result = replace(base, x_cfs=codes, status=np.full(3, "found", dtype=object),
                     y_cfs=np.ones(3, dtype=int), proof=None, bound=None)  # fmt: skip
    plan = result.plan()
    for label in rows.index:
        mine = plan[plan.row == label]
        assert list(mine.step) == list(range(1, 12))
        assert list(mine.feature) == names[::-1]  # the largest weight helps most
        assert mine.probability.is_monotonic_increasing


def test_regression_plans_say_the_prediction():
    frame = table()[["open", "total", "income"]]
    model = LinearRegression().fit(frame, frame.income * 2 + 100 * frame.total)
    result = cel.explain(model, frame.head(5), train=frame, target="+30%")
    plan = result.plan()
    last = plan.groupby("row").prediction.last()
    np.testing.assert_allclose(last, model.predict(result.to_frame()), rtol=1e-6)


def test_a_stored_result_says_what_a_plan_needs(related):
    with pytest.raises(MissingInputError, match="needs the model"):
        ExplanationResult.from_json(related[2].to_json()).plan()


def test_no_answer_no_lines(related):
    result = related[2]
    assert len(result.select([]).plan()) == 0
