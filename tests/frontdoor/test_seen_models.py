"""What the door sees of a model: weights, trees, or the answers to few questions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.svm import LinearSVC

import cel
from cel.cf_methods.local_methods.auto import kind_of
from cel.cf_methods.view import ModelView

JOBS = ["clerk", "nurse", "pilot"]


@pytest.fixture(scope="module")
def loans():
    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame(
        {
            "income": rng.integers(20, 90, n) * 1000,
            "rate": rng.random(n).round(2),
            "age": rng.integers(20, 70, n),
            "job": rng.choice(JOBS, n),
            "grade": pd.Categorical(rng.choice(list("ABC"), n), list("ABC"), ordered=True),
        }
    )
    score = frame["income"] / 30_000 - 2 * frame["rate"] + (frame["job"] == "pilot") - 1
    score += 0.3 * frame["grade"].cat.codes + rng.normal(0, 0.3, n)
    return frame, np.where(score > 0.4, "yes", "no")


def coder(*more, numbers=None):
    ranks = OrdinalEncoder(categories=[list("ABC")])
    return make_column_transformer(
        (OneHotEncoder(), ["job"]), (ranks, ["grade"]), *more,
        remainder=numbers or StandardScaler(), sparse_threshold=0,
    )  # fmt: skip


LINEAR = {
    "logistic": lambda: make_pipeline(coder(), LogisticRegression()),
    "projected": lambda: make_pipeline(coder(), PCA(3), LogisticRegression()),
    "labels only": lambda: make_pipeline(coder(), LinearSVC()),
    "SGD": lambda: make_pipeline(coder(), SGDClassifier(loss="log_loss", random_state=0)),
}
OTHER = {
    "clipped": lambda: make_pipeline(coder(numbers=MinMaxScaler(clip=True)), LogisticRegression()),
    "logarithm": lambda: make_pipeline(
        coder(numbers=make_pipeline(FunctionTransformer(np.log1p), StandardScaler())),
        LogisticRegression(),
    ),
    "other probabilities": lambda: make_pipeline(
        coder(), SGDClassifier(loss="modified_huber", random_state=0)
    ),
    "ranks taken apart": lambda: make_pipeline(
        make_column_transformer((OneHotEncoder(), ["job", "grade"]), remainder=StandardScaler()),
        LogisticRegression(),
    ),
    "trees": lambda: make_pipeline(coder(), RandomForestClassifier(5, random_state=0)),
}


@pytest.mark.parametrize(("kind", "classes"), [(k, c) for k in LINEAR for c in (2, 3)][:-1])
def test_weights_are_those_of_the_decisions(loans, kind, classes):
    frame, y = loans
    y = y if classes == 2 else np.where(frame["age"] > 55, "late", y)
    model = LINEAR[kind]().fit(frame, y)
    wrapped = cel.wrap(model, frame)
    weight, bias = wrapped.linear_()
    x = wrapped.pipeline_.transform(frame)
    told = np.asarray(model.decision_function(frame))
    scores = x.astype(float) @ weight.numpy().T + bias.numpy()
    found = scores[:, 1] - scores[:, 0] if classes == 2 else scores
    np.testing.assert_allclose(found, told, atol=1e-4)
    assert kind_of(ModelView(wrapped)) == "linear"


@pytest.mark.parametrize("kind", OTHER)
def test_what_is_not_linear_has_no_weights(loans, kind):
    frame, y = loans
    assert cel.wrap(OTHER[kind]().fit(frame, y), frame).linear_() is None


def test_columns_that_travel_along_and_are_read_leave_no_weights(loans):
    frame, y = loans
    wide = frame.assign(seen=pd.date_range("2020-01-01", periods=len(frame)))
    years = FunctionTransformer(lambda f: f.apply(lambda c: c.dt.year % 10))
    model = make_pipeline(coder((years, ["seen"])), LogisticRegression()).fit(wide, y)
    assert cel.wrap(model, wide).linear_() is None
    narrow = LINEAR["logistic"]().fit(frame, y)
    assert cel.wrap(narrow, wide).linear_() is not None


def test_gaps_leave_no_weights(loans):
    from sklearn.impute import SimpleImputer

    frame, y = loans
    gaps = frame.assign(rate=frame["rate"].where(frame["rate"] > 0.1))
    steps = coder(numbers=make_pipeline(SimpleImputer(), StandardScaler()))
    assert (
        cel.wrap(make_pipeline(steps, LogisticRegression()).fit(gaps, y), gaps).linear_() is None
    )


def _price(before, after, frame):
    """The cost that is minimised, over the columns of this table."""
    total = np.zeros(len(before))
    for name in frame:
        b, a = before[name], after[name]
        moved = (b.astype(object) != a.astype(object)).to_numpy()
        if name == "job":
            total += moved
        else:
            codes = [c.cat.codes if name == "grade" else c for c in (frame[name], b, a)]
            train, b, a = (np.asarray(c, dtype=float) for c in codes)
            width = train.max() - train.min()
            mad = np.median(np.abs(train - np.median(train))) / width
            total += np.abs(a - b) / width / mad
        total += 0.05 * moved
    return total


def test_answers_of_linear_pipelines_are_the_cheapest(loans):
    frame, y = loans
    model = LINEAR["logistic"]().fit(frame, y)
    rows = frame[model.predict(frame) == "no"].head(5)
    result = cel.explain(model, rows, background=frame, target="yes", immutable=["income", "age"])
    assert set(result.logs["source"]) == {"actionable"}
    assert (result.proof == "optimal").all()
    rates = np.round(np.arange(frame["rate"].min(), frame["rate"].max() + 0.001, 0.01), 2)
    grid = pd.MultiIndex.from_product([rates, JOBS, list("ABC")]).to_frame(index=False)
    answers = result.to_frame()
    for row in rows.index:
        everything = rows.loc[[row] * len(grid)].reset_index(drop=True)
        everything["rate"], everything["job"] = grid[0], grid[1]
        everything["grade"] = grid[2].astype(frame["grade"].dtype)
        yes = everything[model.predict(everything) == "yes"]
        before = rows.loc[[row] * len(yes)].reset_index(drop=True)
        least = _price(before, yes.reset_index(drop=True), frame).min()
        mine = _price(rows.loc[[row]], answers.loc[[row]], frame)[0]
        assert mine <= least + 0.02  # less than a step of the rate


def test_a_probability_is_reached_exactly_by_a_linear_pipeline(loans):
    frame, y = loans
    model = LINEAR["logistic"]().fit(frame, y)
    rows = frame[model.predict_proba(frame)[:, 1] < 0.5].head(20)
    result = cel.explain(model, rows, background=frame, target={"yes": 0.8})
    assert result.found.all()
    sure = model.predict_proba(result.to_frame())[:, 1]
    assert (sure >= 0.8).all()
    assert np.median(sure) < 0.801  # numbers end there; labels may overshoot


def test_what_cannot_be_is_proved(loans):
    frame, y = loans
    fixed = ["income", "job", "grade", "age"]
    for model in (
        LINEAR["logistic"]().fit(frame, y),
        make_pipeline(coder(), RandomForestClassifier(20, max_depth=4, random_state=0)).fit(
            frame, y
        ),
    ):
        poor = frame[(model.predict(frame) == "no") & (frame["income"] < 30_000)].head(10)
        result = cel.explain(model, poor, background=frame, target="yes", immutable=fixed)
        rates = np.round(np.arange(0, 1.001, 0.01), 2)
        grid = poor.loc[poor.index.repeat(len(rates))].copy()
        grid["rate"] = np.tile(rates, len(poor))
        can = (model.predict(grid) == "yes").reshape(len(poor), -1).any(1)
        assert (~can).sum() >= 5
        assert (result.status[~can] == "infeasible").all()


def test_a_row_that_starts_outside_keeps_its_proof(loans):
    """It was called invalid, since its point inside the range, no answer, was taken for one."""
    frame, y = loans
    model = LINEAR["logistic"]().fit(frame, y)
    rows = frame[(model.predict(frame) == "no") & (frame["age"] > 40)].head(8)
    result = cel.explain(
        model, rows, background=frame, target="yes", ranges={"age": (20, 40)},
        immutable=["income", "job", "grade", "rate"],
    )  # fmt: skip
    assert set(result.status) <= {"infeasible", "found"}
    assert (result.status == "infeasible").any()


def test_a_black_box_is_asked_few_times(loans):
    frame, y = loans
    inner = make_pipeline(coder(), RandomForestClassifier(20, random_state=0)).fit(frame, y)
    calls = []

    def model(rows):
        calls.append(len(rows))
        return inner.predict_proba(rows)

    explainer = cel.Explainer(model, frame, target="yes", classes=["no", "yes"])
    rows = frame[inner.predict(frame) == "no"].head(10)
    calls.clear()
    result = explainer.explain(rows)
    assert result.found.all()
    assert len(calls) <= 10
    assert (inner.predict(result.to_frame()) == "yes").all()


def test_no_points_of_trees_with_many_leaves():
    forest = RandomForestClassifier(3, max_leaf_nodes=100, min_samples_leaf=1, random_state=0)
    rng = np.random.default_rng(0)
    wide = pd.DataFrame({"a": rng.random(2000), "b": rng.random(2000)})
    bits = cel.wrap(forest.fit(wide, rng.random(2000) < 0.5), wide).trees_().bits
    assert bits.per_tree > 1
    assert bits.find(bits.meet(np.zeros((0, 2), dtype=np.int64))).shape == (0, 3)
