"""Models from files: formats that hold data first, pickles only for those who insist."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import ConfigError, DataError, MissingDependencyError
from cel.registry import import_named

__all__ = ["OnnxModel", "load_model"]

PICKLES = (".pkl", ".pickle", ".joblib")
ENDINGS = ".skops, .onnx, .cbm (CatBoost), .json or .ubj (XGBoost), .txt (LightGBM)"


def load_model(
    name: str,
    *,
    allow_pickle: bool = False,
    trusted: Sequence[str] = (),
    classes: Sequence[Any] | None = None,
) -> Any:
    """Return the model that a file or `module:attribute` holds.

    Args:
        name: path of a model file, or `module:attribute` of an installed or local module.
        allow_pickle: whether files may be read that can run any code while they are read.
        trusted: types in a skops file that may be built besides the usual ones.
        classes: labels in the order of the outputs, for files that do not tell.
    """
    path = Path(name)
    ending = path.suffix.lower()
    if ":" in name and not path.exists():
        return import_named(name, "model")
    if not path.is_file():
        raise DataError(f"{name}: there is no such model file; for a function write module:name")
    if ending in PICKLES:
        return _pickled(path, allow_pickle)
    readers: dict[str, Callable[[], Any]] = {
        ".skops": lambda: _skops(path, trusted),
        ".onnx": lambda: OnnxModel(path, classes),
        ".cbm": lambda: _catboost(path),
        ".json": lambda: _xgboost(path),
        ".ubj": lambda: _xgboost(path),
        ".txt": lambda: _lightgbm(path),
    }
    if ending not in readers:
        raise ConfigError(f"{name}: unknown kind of model file; known: {ENDINGS}, module:name")
    return readers[ending]()


def _pickled(path: Path, allowed: bool) -> Any:
    if not allowed:
        raise ConfigError(
            f"{path}: a pickle can run any code when it is read; save the model with skops, or "
            "say --allow-pickle if you made the file yourself"
        )
    import joblib

    return joblib.load(path)


def _skops(path: Path, trusted: Sequence[str]) -> Any:
    try:
        import skops.io as sio
        from skops.io.exceptions import UntrustedTypesFoundException
    except ImportError:
        raise MissingDependencyError("skops", "files") from None
    try:
        return sio.load(path, trusted=list(trusted))
    except UntrustedTypesFoundException as error:
        unknown = sorted(set(sio.get_untrusted_types(file=path)) - set(trusted))
        told = ", ".join(unknown[:5])
        raise ConfigError(f"{path}: holds types that are not trusted: {told}; --trust them by "
                          "name if you know them") from error  # fmt: skip
    except (ValueError, KeyError, OSError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as a skops file ({str(error)[:200]})") from None


def _catboost(path: Path) -> Any:
    try:
        import catboost
    except ImportError:
        raise ConfigError(f"{path}: catboost is not installed; pip install catboost") from None
    try:
        plain = catboost.CatBoost().load_model(str(path))
        labels = plain.classes_ if len(np.atleast_1d(plain.classes_)) else None
        kind = catboost.CatBoostRegressor if labels is None else catboost.CatBoostClassifier
        return kind().load_model(str(path))
    except catboost.CatBoostError as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: cannot be read as a CatBoost model ({text})") from None


def _xgboost(path: Path) -> Any:
    try:
        import xgboost
    except ImportError:
        raise ConfigError(f"{path}: xgboost is not installed; pip install xgboost") from None
    try:
        booster = xgboost.Booster(model_file=str(path))
        objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    except (xgboost.core.XGBoostError, ValueError, KeyError) as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: cannot be read as an XGBoost model ({text})") from None
    classifies = objective.startswith(("binary:", "multi:"))
    kind = xgboost.XGBClassifier if classifies else xgboost.XGBRegressor
    model = kind(enable_categorical=True)
    model.load_model(str(path))
    return model


def _lightgbm(path: Path) -> Any:
    try:
        import lightgbm
    except ImportError:
        raise ConfigError(f"{path}: lightgbm is not installed; pip install lightgbm") from None
    try:
        return lightgbm.Booster(model_file=str(path))
    except lightgbm.basic.LightGBMError as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: cannot be read as a LightGBM model ({text})") from None


class OnnxModel:
    """An ONNX model that answers for tables: one input per column, or one matrix of numbers.

    Args:
        path: the file.
        classes: labels in the order of the probabilities, where the file does not tell.
    """

    def __init__(self, path: Path, classes: Sequence[Any] | None = None) -> None:
        try:
            import onnxruntime
            from onnxruntime.capi import onnxruntime_pybind11_state as state
        except ImportError:
            raise MissingDependencyError("onnxruntime", "files") from None
        failures = (state.InvalidProtobuf, state.Fail, state.InvalidGraph, state.NoSuchFile)
        try:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            self.session = onnxruntime.InferenceSession(str(path), options)
        except failures as error:
            text = " ".join(str(error).split())[:200]
            raise DataError(f"{path}: cannot be read as an ONNX model ({text})") from None
        outputs = self.session.get_outputs()
        if len(outputs) < 2:
            self._estimator_type = "regressor"
            return
        self.predict_proba = self._probabilities
        if classes is None:
            width = outputs[1].shape[-1] if outputs[1].type.startswith("tensor") else None
            if "string" in outputs[0].type or not isinstance(width, int):
                raise ConfigError(
                    f"{path}: does not tell its classes in order; give --classes no,yes, and "
                    "convert with zipmap=False"
                )
            classes = range(width)
        self.classes_ = np.array(list(classes))

    def predict(self, rows: Any) -> np.ndarray:
        """Return labels or values (n,)."""
        return np.asarray(self._run(rows, 0)).reshape(len(rows))

    def _probabilities(self, rows: Any) -> np.ndarray:
        said = self._run(rows, 1)
        if isinstance(said, list):  # a map per row
            said = [[row[c] for c in self.classes_.tolist()] for row in said]
        return np.asarray(said, dtype=np.float64)

    def _run(self, rows: Any, output: int) -> Any:
        table = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(np.asarray(rows))
        inputs = self.session.get_inputs()
        if len(inputs) == 1 and len(table.columns) != 1:
            feed = {inputs[0].name: table.to_numpy(dtype=_dtype(inputs[0].type))}
        else:
            missing = [i.name for i in inputs if i.name not in table.columns]
            if missing:
                raise DataError(f"the model reads a column {missing[0]!r} that is not there")
            feed = {
                i.name: table[i.name].to_numpy(dtype=_dtype(i.type)).reshape(-1, 1) for i in inputs
            }
        return self.session.run(None, feed)[output]


def _dtype(kind: str) -> Any:
    known = {"float": np.float32, "double": np.float64, "int64": np.int64, "int32": np.int32}
    return known.get(kind.removeprefix("tensor(").removesuffix(")"), object)
