"""Wishes: classes, sets of classes, probabilities, numbers, one per row; judged on her model."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

import cel
from cel.cf_methods.local_methods.auto import kind_of
from cel.cf_methods.view import ModelView
from cel.door.aimed import AimedModel
from cel.door.wanted import Aim
from cel.errors import CelError, ConfigError, DataError


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=400),
            "b": rng.normal(size=400).round(2),
            "c": rng.choice(["u", "v"], 400),
        }
    )
    score = frame.a + frame.b + (frame.c == "v")
    return frame, np.array(["low", "mid", "high"])[np.digitize(score, [-0.5, 1.2])]


def numbers(frame):
    return frame[["a", "b"]].assign(c=(frame.c == "v").astype(float))


class OnNumbers:
    """A model of numbers asked with the owner's table."""

    def __init__(self, model, frame, y):
        self.model = model.fit(numbers(frame).to_numpy(), y)
        self.classes_ = self.model.classes_

    def predict(self, rows):
        return self.model.predict(numbers(rows).to_numpy())

    def predict_proba(self, rows):
        return self.model.predict_proba(numbers(rows).to_numpy())


MODELS = {
    "logistic": lambda: LogisticRegression(max_iter=500),
    "forest": lambda: RandomForestClassifier(20, max_depth=5, random_state=0),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("p", [0.3, 0.8])
@pytest.mark.parametrize("several", [False, True])
def test_a_probability_of_at_least(table, kind, p, several):
    frame, y = table
    y = y if several else np.where(y == "high", "high", "other")
    model = OnNumbers(MODELS[kind](), frame, y)
    column = list(model.classes_).index("high")
    rows = frame[model.predict_proba(frame)[:, column] < p].head(20)
    result = cel.explain(model, rows, background=frame, target={"high": p})
    assert result.found.all()
    assert (model.predict_proba(result.to_frame())[:, column] >= p).all()
    assert list(result.target.classes) == list(model.classes_)
    assert (result.y_cf_targets == column).all()
    met = frame[model.predict_proba(frame)[:, column] >= p].head(5)
    same = cel.explain(model, met, background=frame, target=cel.Target.probability("high", p))
    assert same.counts() == {"not_applicable": len(met)}


@pytest.mark.parametrize("kind", MODELS)
def test_any_of_several_classes(table, kind):
    frame, y = table
    model = OnNumbers(MODELS[kind](), frame, y)
    rows = frame[model.predict(frame) == "low"].head(15)
    wide = cel.explain(model, rows, background=frame, target={"mid", "high"})
    assert wide.found.all()
    assert set(model.predict(wide.to_frame())) <= {"mid", "high"}
    named = cel.explain(model, rows, background=frame, target=cel.Target.one_of("mid", "high"))
    pd.testing.assert_frame_equal(named.to_frame(), wide.to_frame())
    far = cel.explain(model, rows, background=frame, target="high")
    near = np.abs(wide.x_cfs - wide.x_origs).sum(1)
    assert near.mean() < np.abs(far.x_cfs - far.x_origs)[far.found].sum(1).mean()


def test_each_row_its_own_wish(table):
    frame, y = table
    model = OnNumbers(MODELS["logistic"](), frame, y)
    rows = frame[model.predict(frame) == "low"].head(4)
    wishes = ["mid", {"mid", "high"}, {"high": 0.7}, cel.Target("high")]
    result = cel.explain(model, rows, background=frame, target=wishes, n=2)
    assert result.found.all()
    answers = result.to_frame()
    said = model.predict(answers)
    assert said[0] == "mid"
    assert said[1] in ("mid", "high")
    assert said[3] == "high"
    assert model.predict_proba(answers)[2, list(model.classes_).index("high")] >= 0.7
    assert list(result.source_ids) == list(rows.index)


def test_plain_models_keep_their_kind_when_a_probability_is_asked(table):
    frame, y = table
    x, two = frame[["a", "b"]], np.where(y == "high", 1, 0)
    forest = cel.wrap(RandomForestClassifier(5, max_depth=3, random_state=0).fit(x, two), x)
    net = torch.nn.Linear(2, 2)
    module = cel.wrap(net, x, classes=[0, 1])
    for model, kind in ((forest, "trees"), (module, "differentiable")):
        aimed = AimedModel(model, Aim((1,), 0.8))
        assert kind_of(ModelView(aimed)) in (kind, "linear")
        p = model.predict_proba(x)[:, 1]
        assert ((aimed.predict_proba(x).argmax(1) == 1) == (p >= 0.8)).all()
    view, codes = AimedModel(forest, Aim((1,), 0.8)).trees_(), forest.pipeline_.transform(x)
    scores = view.scores(codes)
    sure = np.abs(forest.predict_proba(x)[:, 1] - 0.8) > 1e-6
    assert ((scores[:, 1] > scores[:, 0]) == (forest.predict_proba(x)[:, 1] > 0.8))[sure].all()
    x0 = torch.randn(9, 2)
    away = AimedModel(module, Aim((1,), 0.8)).logits(x0)
    assert torch.allclose(away[:, 1].sigmoid() > 0.5, module.logits(x0).softmax(1)[:, 1] > 0.8)


def test_wishes_for_numbers(table):
    frame, _ = table
    x = frame[["a", "b"]]
    model = LinearRegression().fit(x, 10 * x.a + x.b)
    rows = x[model.predict(x) < 0].head(5)
    for wish in (cel.Target.at_least(5), cel.Target.between(5, 6), cel.Target.change(+8)):
        result = cel.explain(model, rows, background=x, target=wish)
        assert result.found.all()
    low = cel.explain(model, rows, background=x, target=cel.Target.at_most(-15))
    assert (model.predict(low.to_frame()) <= -15).all()
    with pytest.raises(ConfigError, match="names a class; this model predicts numbers"):
        cel.explain(model, rows, background=x, target=cel.Target("high"))


REFUSED = {
    "two for three": (["high", "mid"], DataError, "2 targets for 3 rows.*give a set"),
    "two sets for three": ([{"high"}, {"mid"}], DataError, "2 targets for 3 rows"),
    "four sets for three": ([{"high"}] * 4, DataError, "4 targets for 3 rows"),
    "a pair": (("high", 0.8), ConfigError, "write {'approved': 0.8}"),
    "probability": ({"high": 1.5}, ConfigError, "at least 1.5; give a number between 0 and 1"),
    "all classes": ({"low", "mid", "high"}, ConfigError, "names all 3 classes"),
    "unknown in a set": ({"mid", "higgh"}, ConfigError, "'higgh'.*did you mean 'high'"),
    "a number": (cel.Target.at_least(3), ConfigError, "is about a predicted number"),
    "no target": (None, ConfigError, "with 3 classes say which one"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wishes_that_cannot_be_read(table, name):
    frame, y = table
    wish, error, said = REFUSED[name]
    model = OnNumbers(MODELS["logistic"](), frame, y)
    with pytest.raises(error, match=said):
        cel.explain(model, frame.head(3), background=frame, target=wish)


def test_labels_have_no_probability(table):
    frame, y = table
    x = frame[["a", "b"]]
    model = LinearSVC(dual=False).fit(x, y == "high")
    with pytest.raises(CelError, match="labels without probabilities"):
        cel.explain(model, x.head(2), background=x, target={True: 0.8})
    assert cel.explain(model, x[~model.predict(x)].head(3), background=x, target=True).found.all()


def test_a_class_that_is_never_predicted_is_said_at_once():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.random(80), "b": rng.random(80)})

    def ask(rows):
        p = np.tile([0.6, 0.3, 0.1], (len(rows), 1))
        p[:, 0] += 0.2 * rows.a - 0.1
        p[:, 1] -= 0.2 * rows.a - 0.1
        return p

    with pytest.warns(UserWarning, match="predicts 'z' for none of the 80 background rows"):
        cel.explain(ask, frame.head(2), background=frame, classes=["x", "y", "z"], target="z")
