"""What the model predicts counts, also where it is not the likeliest class."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import cel
from cel.cf_methods.view import ModelView
from cel.door.diagnosis import _SearchAgain
from cel.errors import UnsupportedError
from cel.metrics import MetricsOrchestrator
from cel.metrics.evaluation import Evaluation
from cel.models import fit_surrogate, wrap
from cel.models.adapters.decisions import decision_rule, stated_threshold
from cel.protocols import Task
from cel.space import Target

N = 400


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=N), "b": 10 * rng.normal(size=N), "c": rng.integers(0, 9, N)}
    )
    y = np.where(frame.a + frame.b / 10 + rng.normal(size=N) > 0.5, "yes", "no")
    return frame, y


class Strict(ClassifierMixin, BaseEstimator):
    """Says yes from a probability of .8 on, and does not say so."""

    def fit(self, x, y):
        self.inner_ = LogisticRegression().fit(x, y)
        self.classes_, self.feature_names_in_ = self.inner_.classes_, self.inner_.feature_names_in_
        return self

    def predict_proba(self, x):
        return self.inner_.predict_proba(x)

    def yes(self, x):
        return self.predict_proba(x)[:, 1] >= 0.8

    def predict(self, x):
        return self.classes_[self.yes(x).astype(int)]


class Capricious(Strict):
    """Looks at another column, too."""

    def yes(self, x):
        return super().yes(x) | (x["c"] == 3).to_numpy()


def logistic():
    return make_pipeline(StandardScaler(), LogisticRegression())


def catboost():
    cat = pytest.importorskip("catboost", reason="needs catboost")
    model = cat.CatBoostClassifier(
        iterations=10, verbose=0, thread_count=1, allow_writing_files=False
    )

    class Fitted:
        def fit(self, x, y):
            model.fit(x, y).set_probability_threshold(0.7)
            return model

    return Fitted()


MODELS = {
    "fixed .3": lambda: FixedThresholdClassifier(logistic(), threshold=0.3),
    "fixed .52": lambda: FixedThresholdClassifier(logistic(), threshold=0.52),
    "fixed .8 of no": lambda: FixedThresholdClassifier(logistic(), threshold=0.8, pos_label="no"),
    "tuned": lambda: TunedThresholdClassifierCV(
        LogisticRegression(class_weight={"no": 1, "yes": 3}), scoring="accuracy", cv=3
    ),
    "machine": lambda: SVC(probability=True, class_weight="balanced", random_state=0),
    "strict": Strict,
    "capricious": Capricious,
    "catboost": catboost,
}
QUIET = pytest.mark.filterwarnings(
    "ignore:The `probability` parameter", "ignore:.*does not follow its probabilities"
)


@QUIET
@pytest.mark.parametrize("target", ["yes", "no"])
@pytest.mark.parametrize("kind", MODELS)
def test_answers_hold_for_what_the_model_predicts(table, kind, target):
    frame, y = table
    model = MODELS[kind]().fit(frame, y)
    said = np.asarray(model.predict(frame)).ravel()
    rows = pd.concat([frame[said != target].head(15), frame[said == target].head(5)])
    for wish in (target, {target}):
        result = cel.explain(model, rows, frame, target=wish)
        already = np.asarray(model.predict(rows)).ravel() == target
        assert ((result.status == "not_applicable") == already).all()
        assert result.found.sum() >= 14
        answers = result.to_frame()
        assert (np.asarray(model.predict(answers)).ravel() == target).all()
        scores = MetricsOrchestrator(metrics=["validity"]).compute(result)
        assert scores["validity"] == 1


class Moody(Strict):
    """Denies what its training rows do not show: the last c together with a high a."""

    least = 0.5

    def yes(self, x):
        likely = self.predict_proba(x)[:, 1] >= self.least
        return likely & ~((x["c"] == 8) & (x["a"] > 0)).to_numpy()


class MoodyAndStrict(Moody):
    least = 0.8


@pytest.mark.parametrize("kind", [Moody, MoodyAndStrict])
def test_what_no_training_row_shows_is_asked_about_each_answer(table, kind):
    frame, y = table
    frame = frame.assign(c=np.arange(N) % 9)
    kept = ~((frame.c == 8) & (frame.a > 0)).to_numpy()
    frame, y = frame[kept], y[kept]
    model = kind().fit(frame, y)
    rows = frame[(model.predict(frame) == "no") & (frame.c == 8).to_numpy()].head(15)
    for wish in ("yes", {"yes"}):
        result = cel.explain(model, rows, frame, target=wish, immutable=["c", "b"])
        denied = result.status == "invalid"
        assert denied.any()  # there is no other way but a
        assert (result.y_cfs[denied] == 0).all()
        if result.found.any():
            assert (model.predict(result.to_frame()) == "yes").all()


def test_metrics_that_predict_know_the_threshold(table):
    frame, y = table
    wrapped = wrap(Strict().fit(frame, y), frame)
    x = wrapped.pipeline_.transform(frame)
    result = cel.explain(Strict().fit(frame, y), frame.head(30), frame, target="yes")
    evaluation = Evaluation(result=result, context=result.context)
    assert (evaluation.predict(x, wrapped) == wrapped.decide(x)).all()


def test_probabilities_are_those_of_the_model(table):
    frame, y = table
    model = FixedThresholdClassifier(logistic(), threshold=0.8).fit(frame, y)
    rows = frame[model.predict(frame) == "no"].head(5)
    result = cel.explain(model, rows, frame, target="yes")
    told = result.overview()["probability_after"].to_numpy(dtype=float)
    assert told == pytest.approx(model.predict_proba(result.to_frame())[:, 1])
    assert (told >= 0.8).all()
    assert (told < 0.9).all()  # no farther than the threshold asks


def test_a_wish_for_a_probability_stays_what_it_is(table):
    frame, y = table
    model = FixedThresholdClassifier(logistic(), threshold=0.8).fit(frame, y)
    rows = frame[model.predict_proba(frame)[:, 1] < 0.5].head(5)
    result = cel.explain(model, rows, frame, target={"yes": 0.6})
    reached = model.predict_proba(result.to_frame())[:, 1]
    assert result.found.all()
    assert (reached >= 0.6).all()
    assert (reached < 0.8).all()
    assert set(result.y_cfs) == {0}  # and the model still says no


def test_margins_and_imitations_know_the_threshold(table):
    frame, y = table
    model = FixedThresholdClassifier(logistic(), threshold=0.8).fit(frame, y)
    wrapped = wrap(model, frame)
    assert wrapped.threshold == 0.8
    x = wrapped.pipeline_.transform(frame)
    said = (model.predict(frame) == "yes").astype(int)
    for asked in (wrapped, fit_surrogate(wrapped, x, hidden=(8,), epochs=2)):
        assert asked.threshold == 0.8
        view = ModelView(asked)
        assert (view.outcome(x) == said).all()
    scores = ModelView(wrapped).scores(torch.as_tensor(x)).numpy()
    assert (scores.argmax(1) == said).all()
    assert (wrapped.predict(x) == model.predict(frame)).all()
    assert wrapped.linear_() is None
    with pytest.raises(UnsupportedError, match="otherwise than its trees"):
        wrapped.trees_()


@pytest.mark.parametrize("threshold", [0.8, 0.501])
def test_the_classes_of_the_model_may_stand_in_another_order(table, threshold):
    frame, y = table
    model = FixedThresholdClassifier(logistic(), threshold=threshold).fit(frame, y)
    target = Target(names=("y",), task=Task.CLASSIFICATION, classes=("yes", "no"))
    wrapped = wrap(model, frame, target=target)
    assert list(wrapped.predict(frame)) == list(model.predict(frame))
    assert wrapped.threshold == pytest.approx(1 - threshold, abs=1e-9)
    assert wrapped.threshold > 1 - threshold  # at it the other class is predicted


def test_a_model_without_such_a_rule_is_explained_by_its_labels(table):
    frame, y = table
    with pytest.warns(UserWarning, match="does not follow its probabilities"):
        wrapped = wrap(Capricious().fit(frame, y), frame)
    assert wrapped.hard
    assert wrapped.rule == "labels"


def test_models_that_predict_the_likeliest_class_stay_as_they_are(table):
    frame, y = table
    wrapped = wrap(logistic().fit(frame, y), frame)
    assert wrapped.rule == "likeliest"
    assert wrapped.threshold is None
    assert wrapped.linear_() is not None


@pytest.mark.filterwarnings("ignore:the model predicts .* for none")
@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_a_threshold_that_nobody_or_everybody_meets(table, threshold):
    frame, y = table
    model = FixedThresholdClassifier(logistic(), threshold=threshold).fit(frame, y)
    other = "yes" if threshold else "no"
    for wish in (other, {other}):
        result = cel.explain(model, frame.head(3), frame, target=wish)
        assert not result.found.any()


def test_three_classes_of_catboost_state_nothing(table):
    cat = pytest.importorskip("catboost", reason="needs catboost")
    frame, _ = table
    y = np.where(frame.a > 0.5, "x", np.where(frame.b > 0, "y", "z"))
    model = cat.CatBoostClassifier(
        iterations=10, verbose=0, thread_count=1, allow_writing_files=False
    ).fit(frame, y)
    assert wrap(model, frame).rule == "likeliest"
    rows = frame[np.asarray(model.predict(frame)).ravel() != "x"].head(5)
    result = cel.explain(model, rows, frame, target="x")
    assert (np.asarray(model.predict(result.to_frame())).ravel() == "x").all()


def test_rows_that_the_model_refuses_tell_no_rule(table):
    frame, y = table
    model = Strict().fit(frame, y)
    usual = model.yes

    def refusing(x):
        if (x["c"] == 0).any():
            raise ValueError("no row with c = 0")
        return usual(x)

    model.yes = refusing
    assert wrap(model, frame).rule == "likeliest"
    assert wrap(model, frame[frame.c > 0]).threshold == pytest.approx(0.8, abs=1e-6)


def test_a_model_that_throws_dice_has_no_rule(table):
    frame, y = table
    model, rng = Strict().fit(frame, y), np.random.default_rng(0)
    model.yes = lambda x: rng.random(len(x)) < 0.5
    wrapped = wrap(model, frame)
    assert wrapped.rule == "likeliest"
    assert not wrapped.hard


def test_what_stands_in_the_way_is_told_by_the_same_wish(table):
    frame, y = table
    model = FixedThresholdClassifier(logistic(), threshold=0.8).fit(frame, y)
    rows = frame[model.predict(frame) == "no"].head(3)
    result = cel.explain(model, rows, frame, target={"yes"}, immutable=["a", "b"])
    search = _SearchAgain(result.inquiry.explainer, {"yes"}, result, np.arange(3))
    ((aim, _),) = search._by_aim(np.arange(3))
    assert (aim.classes, aim.at_least) == ((1,), 0.8)
    assert len(result.diagnosis()) == 3


def test_several_classes_that_follow_no_probabilities(table):
    frame, _ = table
    y = np.where(frame.a > 0.5, "x", np.where(frame.b > 0, "y", "z"))
    model = Capricious().fit(frame, y)
    model.yes = lambda x: np.where(x["c"] == 3, 2, model.predict_proba(x).argmax(1))
    with pytest.warns(UserWarning, match="does not follow"):
        assert wrap(model, frame).hard


# -- the rule --------------------------------------------------------------------------------


def _ask(threshold, seen=None):
    def ask(rows):
        if seen is not None:
            seen.append(len(rows))
        p = rows["p"].to_numpy(dtype=float)
        return np.stack([1 - p, p], 1), (p >= threshold).astype(int)

    return ask


@pytest.mark.parametrize("threshold", [0.05, 0.31, 0.5, 0.77, 0.999])
def test_a_threshold_is_found_between_rows(threshold):
    rows = pd.DataFrame({"p": [0.01, 0.02, 0.1, 0.4, 0.5, 0.6, 0.9, 0.9995]})
    seen = []
    rule = decision_rule(None, _ask(threshold, seen), rows)
    if threshold == 0.5:
        assert (rule, seen) == ("likeliest", [8])  # .5 is no decision
    else:
        assert rule == pytest.approx(threshold, abs=1e-9)


def test_numbers_that_are_no_floats_are_taken_from_one_row_or_the_other():
    rows = pd.DataFrame({"p": [0.2, 0.6, 0.9], "n": [1, 1, 2], "t": ["a", "a", "b"]})

    def ask(table):
        assert (table.dtypes == rows.dtypes).all()
        assert set(table["n"]) <= {1, 2}
        return _ask(0.75)(table)

    assert decision_rule(None, ask, rows) == pytest.approx(0.75, abs=1e-9)


def test_rows_of_one_kind_leave_a_rule_that_keeps_them():
    rows = pd.DataFrame({"p": [0.1, 0.6, 0.7]})
    assert 0.7 < decision_rule(None, _ask(0.8), rows) < 1
    assert decision_rule(None, _ask(0.8), rows.head(1)) == "likeliest"


def test_a_stated_threshold_must_fit_the_rows():
    rows = pd.DataFrame({"p": [0.1, 0.6, 0.7, 0.9]})
    assert decision_rule(0.3, _ask(0.3), rows) == 0.3
    assert decision_rule(0.55, _ask(0.5), rows) == 0.55  # no row between them
    assert decision_rule(0.3, _ask(0.65), rows) == pytest.approx(0.65, abs=1e-9)
    assert decision_rule(0.5, _ask(0.5), rows) == "likeliest"


def test_what_models_state(table):
    fixed = FixedThresholdClassifier(logistic(), threshold=0.3).fit(*table)
    assert stated_threshold(fixed) == 0.3
    assert stated_threshold(make_pipeline(fixed)) == 0.3
    assert stated_threshold(fixed, [1, 0]) == np.nextafter(0.7, 1)
    assert stated_threshold(fixed, [0, 1, 2]) is None
    assert stated_threshold(logistic()) is None
    never = FixedThresholdClassifier(logistic(), threshold=1.0).fit(*table)
    assert 0.99 < stated_threshold(never) < 1
    by_margin = FixedThresholdClassifier(
        logistic(), threshold=0.3, response_method="decision_function"
    )
    assert stated_threshold(by_margin.fit(*table)) is None
    of_no = FixedThresholdClassifier(logistic(), threshold=0.3, pos_label="no")
    assert stated_threshold(of_no.fit(*table)) is None
