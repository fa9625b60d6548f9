"""From encoded rows to the matrix that a foreign tree model splits, column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import UnsupportedError
from cel.models.adapters.frames import frame_matrix
from cel.models.trees.forest import Forest
from cel.models.trees.parse_boosters import parse_catboost, parse_lightgbm, parse_xgboost
from cel.models.trees.parse_sklearn import parse_sklearn

__all__ = ["ModelMatrix", "read_forest"]

_ONE_TO_ONE = (
    "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "QuantileTransformer",
    "PowerTransformer", "OrdinalEncoder", "SimpleImputer",
)  # fmt: skip


def read_forest(model: Any) -> tuple[Forest, Any]:
    """Return (trees, the estimator that holds them) of a model or scikit-learn pipeline."""
    final = model.steps[-1][1] if _is(model, "Pipeline") else model
    library = type(final).__module__.split(".")[0]
    if library == "lightgbm":
        return parse_lightgbm(final), final
    if library == "xgboost":
        return parse_xgboost(final), final
    if library == "catboost":
        return parse_catboost(final), final
    forest = parse_sklearn(final) if library == "sklearn" else None
    if forest is None:
        raise UnsupportedError(
            f"{type(final).__name__} is no tree ensemble that CEL can read; it reads those of "
            "scikit-learn, XGBoost, LightGBM and CatBoost"
        )
    return forest, final


def _is(model: Any, *names: str) -> bool:
    return type(model).__name__ in names and type(model).__module__.startswith("sklearn")


@dataclass(frozen=True, eq=False)
class ModelMatrix:
    """What a wrapped model makes of encoded rows before its trees see them.

    Attributes:
        wrapped: a `WrappedModel` of trees, or of a scikit-learn pipeline that ends in them.
        final: the estimator with the trees.
        owner: (c,) position in the space of the feature behind each column of the matrix.
    """

    wrapped: Any
    final: Any
    owner: np.ndarray

    @classmethod
    def of(cls, wrapped: Any, final: Any) -> ModelMatrix:
        """Follow the columns of the space through the model's own preprocessing."""
        space = wrapped.space_
        if space is None:
            raise UnsupportedError(
                "the wrapped model knows no feature space; give cel.wrap(model, data) its data"
            )
        names = _given_names(wrapped)
        if _is(wrapped.model, "Pipeline"):
            for step in wrapped.model.steps[:-1]:
                names = _followed(step[1], names, step[0])
        places = {n: i for i, n in enumerate(space.names)}
        behind = _reordered(final, names)
        strange = [n for n in behind if n not in places]
        if strange:
            raise UnsupportedError(
                f"the trees split on {strange[0]!r}, which is no feature; use a method for black "
                "boxes"
            )
        return cls(wrapped, final, np.array([places[n] for n in behind], dtype=np.int64))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the matrix (n, c) of encoded rows (n, d), float64."""
        rows = self.wrapped._call.columns(self.wrapped._rows(x))
        model = self.wrapped.model
        if _is(model, "Pipeline") and len(model.steps) > 1:
            rows = model[:-1].transform(rows)
        if hasattr(rows, "toarray"):
            rows = rows.toarray()
        if hasattr(self.final, "_preprocess_X"):  # HistGradientBoosting encodes categories itself
            return np.asarray(self.final._preprocess_X(rows, reset=False), dtype=np.float64)
        if isinstance(rows, pd.DataFrame):
            booster = getattr(self.final, "booster_", self.final)
            return frame_matrix(rows, getattr(booster, "pandas_categorical", None))
        return np.asarray(rows, dtype=np.float64)


def _given_names(wrapped: Any) -> list[str]:
    """Return the feature behind each column that the model is handed."""
    space, pipeline = wrapped.space_, wrapped.pipeline_
    if pipeline is None:
        return [space.names[i] for i in space.owner]
    names, sheet = _names_in(wrapped.model), wrapped.encoding_.sheet
    along = () if sheet is None else sheet.carried
    fitted = names and set(names) <= {*space.names, *along}
    return names if fitted else [str(n) for n in pipeline.schema_.dtypes]


def _followed(step: Any, names: list[str], label: str) -> list[str]:
    """Return the feature behind each column after a step; steps that mix columns are refused."""
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return names
    if _is(step, "FunctionTransformer") and step.func is None:
        return names
    if _is(step, "Pipeline"):
        for inner in step.steps:
            names = _followed(inner[1], names, f"{label}.{inner[0]}")
        return names
    if _is(step, "ColumnTransformer"):
        return _column_transformer(step, names, label)
    if _is(step, "OneHotEncoder"):
        widths = step._n_features_outs
        return [n for n, width in zip(names, widths, strict=True) for _ in range(width)]
    if _is(step, *_ONE_TO_ONE) and not getattr(step, "add_indicator", False):
        return names
    raise UnsupportedError(
        f"step {label!r} ({type(step).__name__}) may mix columns, so that splits speak of no "
        "single feature; use a method for black boxes, or preprocess column by column"
    )


def _column_transformer(step: Any, names: list[str], label: str) -> list[str]:
    out: list[str] = []
    known = [str(n) for n in getattr(step, "feature_names_in_", range(len(names)))]
    if len(known) != len(names):
        raise UnsupportedError(
            f"step {label!r} was fitted on {len(known)} columns; the model is given {len(names)}"
        )
    for title, part, columns in step.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        positions = _positions(columns, known)
        if positions:
            out += _followed(part, [names[i] for i in positions], f"{label}.{title}")
    return out


def _positions(columns: Any, names: list[str]) -> list[int]:
    if isinstance(columns, str):
        return [names.index(columns)]
    if isinstance(columns, slice):
        return list(range(len(names)))[columns]
    chosen = np.asarray(columns)
    if chosen.dtype == bool:
        return [int(i) for i in np.flatnonzero(chosen)]
    return [names.index(c) if isinstance(c, str) else int(c) for c in chosen.tolist()]


def _reordered(final: Any, names: list[str]) -> list[str]:
    """HistGradientBoosting puts categorical columns first."""
    first = getattr(final, "is_categorical_", None)
    if getattr(final, "_preprocessor", None) is None or first is None:
        return names
    chosen = np.asarray(first, dtype=bool)
    return [n for n, c in zip(names, chosen, strict=True) if c] + [
        n for n, c in zip(names, chosen, strict=True) if not c
    ]


def _names_in(model: Any) -> list[str]:
    names = getattr(model, "feature_names_in_", None)
    return [] if names is None else [str(n) for n in names]
