"""Predictors: labels, frames, loaders, files and wrong input."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils.data import DataLoader, TensorDataset

import cel.models
from cel.errors import (
    ConfigError,
    DataError,
    MissingInputError,
    StoreError,
    UnsupportedError,
)
from cel.models import MODELS, load_model
from cel.models.base import ClassifierPytorchMixin, PytorchBase
from cel.models.classifiers import NODE, LogisticRegression, MLPClassifier
from cel.models.layers import Network
from cel.models.regressors import LinearRegression, MLPRegressor
from cel.protocols import DifferentiablePredictor, Predictor, Task
from cel.space import FeatureSpace, Target

RNG = np.random.default_rng(0)
X = RNG.random((120, 3)).astype(np.float32)
LABELS = np.where(X[:, 0] > 0.5, "good", "bad")
SMALL = {"hidden": (8,), "epochs": 60, "lr": 0.02}


class Toy(TensorDataset):
    """A dataset that knows its space, as those of CEL do."""

    def __init__(self, X, y, valid=None, target=None):
        super().__init__(torch.as_tensor(X), torch.as_tensor(y))
        self.space, self.pipeline, self.target = FeatureSpace.continuous(X.shape[1]), None, target
        self.rows = SimpleNamespace(X=X, y=y)
        self.split = SimpleNamespace(valid=valid)


def test_names_and_lazy_exports():
    assert {"mlp", "lr", "node", "linear", "mlp_regressor"} <= set(MODELS.names())
    with pytest.raises(ConfigError, match="did you mean 'mlp'"):
        MODELS.get("mpl")
    assert all(hasattr(cel.models, name) for name in cel.models.__all__)
    with pytest.raises(AttributeError):
        _ = cel.models.nothing


@pytest.mark.parametrize("cls", [MLPClassifier, LogisticRegression, NODE])
def test_string_labels(cls):
    options = {"lr": {"l2": 1e-4}, "mlp": SMALL, "node": {"trees": 16, "depth": 2, "lr": 0.05}}
    model = cls(**options[cls.name]).fit(X, LABELS)
    assert model.classes_.tolist() == ["bad", "good"]
    assert set(model.predict(X)) <= {"bad", "good"}
    assert model.score(X, LABELS) > 0.95
    p = model.predict_proba(X)
    assert p.shape == (120, 2)
    assert np.allclose(p.sum(1), 1, atol=1e-6)
    assert np.array_equal(p.argmax(1), model.logits(torch.as_tensor(X)).argmax(1).numpy())
    assert isinstance(model, Predictor)
    assert isinstance(model, DifferentiablePredictor)
    assert model.task is Task.CLASSIFICATION


def test_multi_output_regression():
    Y = np.stack([X[:, 0] * 1000, X[:, 1] - X[:, 2]], 1)
    for model in (LinearRegression(), MLPRegressor(hidden=(16,), lr=0.02)):
        model.fit(X, Y)
        assert model.predict(X).shape == (120, 2)
        assert model.score(X, Y) > 0.99
        assert isinstance(model, Predictor)
        with pytest.raises(UnsupportedError, match="no probabilities"):
            model.predict_proba(X)
    assert LinearRegression().fit(X, Y[:, 0]).predict(X[:1]).shape == (1, 1)


def test_a_constant_output_is_learned():
    model = MLPRegressor(hidden=(4,), epochs=5).fit(X, np.full(120, 3.0))
    assert np.allclose(model.predict(X), 3, atol=0.5)
    assert np.isnan(model.score(X, np.full(120, 3.0)))


@pytest.mark.parametrize("cls", [LogisticRegression, LinearRegression])
def test_linear_models_tell_their_coefficients(cls):
    y = LABELS if cls is LogisticRegression else X @ np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 1.0]])
    model = cls().fit(X, y)
    W, b = model.linear_()
    x = torch.as_tensor(X)
    assert torch.allclose(x @ W.T + b, model.logits(x), atol=1e-5)
    assert W.shape == (2, 3)


def test_labels_unseen_in_fit_are_named():
    with pytest.raises(DataError, match="'goood' was not seen in fit; did you mean 'good'"):
        MLPClassifier(**SMALL).fit(X, LABELS, valid=(X[:1], ["goood"]))
    with pytest.raises(DataError, match="one class only"):
        LogisticRegression().fit(X, ["same"] * 120)
    with pytest.raises(DataError, match="needs class labels"):
        LogisticRegression().fit(X)
    with pytest.raises(DataError, match="needs values"):
        LinearRegression().fit(X)
    with pytest.raises(DataError, match="not numbers"):
        LinearRegression().fit(X, LABELS)


def test_predict_checks_rows():
    model = LogisticRegression().fit(X, LABELS)
    with pytest.raises(DataError, match="fitted with 3 columns, got 2"):
        model.predict(X[:, :2])
    with pytest.raises(DataError, match="row 0, column 2 is inf"):
        model.predict_proba([[0.0, 0.0, np.inf]])
    with pytest.raises(DataError, match="matrix"):
        model.predict(X[0])
    with pytest.raises(DataError, match="not numbers"):
        model.predict(np.array([["a", "b", "c"]]))


def test_integer_rows_are_taken():
    model = LogisticRegression().fit(X, LABELS)
    assert model.logits(torch.tensor([[0, 1, 1]])).dtype == torch.float32
    assert len(model.predict([[0, 1, 1]])) == 1


@pytest.mark.parametrize("cls", [LogisticRegression, LinearRegression])
def test_closed_forms_refuse_settings_of_the_loop(cls):
    y = LABELS if cls is LogisticRegression else X[:, 0]
    cls(preset="paper").fit(X, y)
    with pytest.raises(ConfigError, match=r"solved directly; epochs=5"):
        cls(epochs=5).fit(X, y)


@pytest.mark.parametrize(
    "model",
    [
        MLPClassifier(hidden=(0,)),
        MLPClassifier(dropout=1.0),
        LogisticRegression(l2=0.0),
        NODE(trees=0),
        MLPClassifier(epochs=0),
        MLPClassifier(lr=-1.0),
    ],
)
def test_wrong_settings_raise_in_fit(model):
    with pytest.raises(ConfigError):
        model.fit(X, LABELS)


def test_unknown_arguments_raise():
    with pytest.raises(TypeError, match="widht"):
        MLPClassifier(widht=3)


def test_loaders_bring_space_target_and_validation_rows():
    target = Target(names=("y",), task=Task.CLASSIFICATION, classes=("bad", "good"))
    y = (LABELS == "good").astype(np.int64)
    valid = SimpleNamespace(X=X[:10], y=y[:10])
    dataset = Toy(X, y, valid=valid, target=target)
    model = MLPClassifier(**SMALL).fit(DataLoader(dataset, batch_size=7, shuffle=True))
    assert model.space_ is dataset.space
    assert model.target_ is target
    assert model.classes_.tolist() == [0, 1]
    twin = MLPClassifier(**SMALL).fit(X, y, valid=(X[:10], y[:10]))
    assert np.array_equal(model.predict_proba(X), twin.predict_proba(X))
    with pytest.raises(ConfigError, match="own targets"):
        MLPClassifier().fit(DataLoader(dataset), y)
    with pytest.raises(MissingInputError, match="TensorDataset has no feature space"):
        MLPClassifier().fit(DataLoader(TensorDataset(torch.as_tensor(X))))


def test_raw_frames_are_encoded():
    frame = pd.DataFrame({"age": [20, 40, 60, 80] * 10, "job": ["a", "b", "b", "a"] * 10})
    model = MLPClassifier(**SMALL).fit(frame, frame["job"] == "a")
    assert model.n_features_in_ == 3
    assert model.space_.names == ("age", "job")
    assert model.predict(frame.iloc[:2]).tolist() == [True, False]
    encoded = model.pipeline_.transform(frame)
    assert np.array_equal(model.predict_proba(frame), model.predict_proba(encoded))


def test_frames_without_a_pipeline_must_be_numbers():
    model = LogisticRegression().fit(X, LABELS)
    assert np.array_equal(model.predict(pd.DataFrame(X)), model.predict(X))
    with pytest.raises(DataError, match="column 'a' has dtype"):
        model.predict(pd.DataFrame({"a": ["x"], "b": [1], "c": [2]}))


def test_saved_frames_models_encode_raw_rows(tmp_path):
    frame = pd.DataFrame({"age": [20, 40, 60, 80] * 10, "job": ["a", "b", "b", "a"] * 10})
    model = LogisticRegression().fit(frame, frame["job"])
    back = LogisticRegression.load(model.save(tmp_path / "m.safetensors"))
    assert np.array_equal(back.predict(frame), model.predict(frame))
    assert back.classes_.tolist() == ["a", "b"]
    with pytest.raises(ConfigError, match="holds a LogisticRegression, not a MLPClassifier"):
        MLPClassifier.load(tmp_path / "m.safetensors")


def test_files_that_are_not_ours(tmp_path):
    model = LogisticRegression().fit(X, LABELS)
    path = tmp_path / "m.safetensors"
    with pytest.raises(StoreError, match="no file"):
        load_model(path)
    path.write_text("nonsense")
    with pytest.raises(StoreError, match="truncated"):
        load_model(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(StoreError, match="not written by CEL"):
        load_model(path)
    model.save(path)
    with safe_open(path, framework="pt") as file:
        meta = json.loads(file.metadata()["cel-model"])
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    for change in (
        {"version": 99},
        {"model": "nonsense"},
        {"n_outputs_": 7},
        {"params": {"x": 1}},
    ):
        save_file(tensors, path, {"cel-model": json.dumps(meta | change)})
        with pytest.raises(StoreError):
            load_model(path)
    save_file(tensors, path, {"cel-model": "{"})
    with pytest.raises(StoreError, match="header"):
        load_model(path)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    class Foreign(ClassifierPytorchMixin, PytorchBase):
        def __init__(self, *, thing=None, **options):
            super().__init__(**options)
            self.thing = thing

        def _build(self, n_in, n_out):
            return Network(n_in, (), n_out)

    Foreign.name = "foreign"
    path = LogisticRegression().fit(X, LABELS).save(tmp_path / "m.safetensors")
    kept = path.read_bytes()
    model = Foreign(thing=object(), epochs=1).fit(X, LABELS)
    with pytest.raises(UnsupportedError, match="thing"):
        model.save(path)
    assert path.read_bytes() == kept
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_wide_targets_are_refused():
    with pytest.raises(DataError, match="shape"):
        LogisticRegression().fit(X, X[:, :2] > 0.5)
    with pytest.raises(DataError, match="not finite"):
        LinearRegression().fit(X, np.full(120, np.nan))
