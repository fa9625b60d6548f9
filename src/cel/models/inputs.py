"""What `fit` and `predict` are given, checked and turned into tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from cel.errors import ConfigError, DataError, MissingInputError
from cel.preprocessing import Encoding, PreprocessingPipeline, infer_space
from cel.space import FeatureSpace, Target

__all__ = [
    "FitRows",
    "as_matrix",
    "flat_labels",
    "read_rows",
    "resolve_device",
    "validation_cut",
    "value_matrix",
]

VALIDATION_SHARE = 0.15
FEWEST_ROWS_TO_CUT = 20


@dataclass(frozen=True, kw_only=True)
class FitRows:
    """Everything a model learns from.

    Attributes:
        X: (n, d) float32 encoded rows.
        y: labels (n,), positions (n,), values (n, m), or None.
        valid_x: (v, d) encoded validation rows; None if none were given.
        valid_y: their targets.
        encoding: what is known about the rows; its target says what `y` means, and is None when
            `y` holds plain labels or values.
    """

    X: Tensor
    y: np.ndarray | None
    valid_x: Tensor | None = None
    valid_y: np.ndarray | None = None
    encoding: Encoding = field(default_factory=Encoding)

    @property
    def space(self) -> FeatureSpace | None:
        """Encoded feature space, if known."""
        return self.encoding.space

    @property
    def target(self) -> Target | None:
        """What `y` means, if known."""
        return self.encoding.target


def read_rows(data: Any, y: Any, space: FeatureSpace | None, valid: Any) -> FitRows:
    """Read a DataLoader, or rows with their targets, into `FitRows`."""
    if isinstance(data, DataLoader):
        if y is not None:
            raise ConfigError("a DataLoader brings its own targets; leave y out")
        return _read_loader(data, space, valid)
    pipeline = None
    if isinstance(data, pd.DataFrame):
        pipeline, space = _fit_pipeline(data, space)
    X = as_matrix(data, pipeline=pipeline)
    valid_x, valid_y = _read_pair(valid, pipeline, X.shape[1])
    _check_width(X, space)
    return FitRows(
        X=X,
        y=_targets(y, len(X)),
        valid_x=valid_x,
        valid_y=valid_y,
        encoding=Encoding(space=space, pipeline=pipeline),
    )


def as_matrix(
    X: Any, *, pipeline: PreprocessingPipeline | None = None, width: int | None = None
) -> Tensor:
    """Return encoded rows as a finite (n, d) tensor; a DataFrame goes through `pipeline`.

    Floating tensors and arrays keep float64; everything else becomes float32.
    """
    if isinstance(X, pd.DataFrame):
        X = pipeline.transform(X) if pipeline is not None else _numbers(X)
    tensor = _tensor(X)
    if tensor.dim() != 2:
        raise DataError(f"rows must be a matrix (n, d), got shape {tuple(tensor.shape)}")
    if width is not None and tensor.shape[1] != width:
        raise DataError(f"the model was fitted with {width} columns, got {tensor.shape[1]}")
    finite = tensor.isfinite()
    if not bool(finite.all()):
        row, column = (~finite).nonzero()[0].tolist()
        value = float(tensor[row, column])
        raise DataError(
            f"row {row}, column {column} is {value}; fill or drop missing values beforehand"
        )
    return tensor


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the device called `device`, or say that this machine has none."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"unknown device {device!r}; use 'cpu' or 'cuda'") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {str(device)!r} was asked for, but CUDA is not available here")
    return found


def validation_cut(n: int, labels: np.ndarray | None, seed: int) -> tuple[Tensor, Tensor]:
    """Return positions of training and validation rows, 85 % and 15 %, each class alike.

    Below 20 rows all of them serve both purposes.
    """
    everything = torch.arange(n)
    if n < FEWEST_ROWS_TO_CUT:
        return everything, everything
    rng = np.random.default_rng(seed)
    kinds = np.zeros(n, dtype=np.int64) if labels is None else labels
    # A random order, sorted by class: every k-th row then takes its share of each class.
    order = rng.permutation(n)
    order = order[np.argsort(kinds[order], kind="stable")]
    marks = np.floor(np.arange(1, n + 1) * VALIDATION_SHARE)
    chosen = np.diff(marks, prepend=0.0) > 0
    fit, held = np.sort(order[~chosen]), np.sort(order[chosen])
    return torch.from_numpy(fit), torch.from_numpy(held)


def _tensor(X: Any) -> Tensor:
    if isinstance(X, Tensor):
        own: Tensor = X.clone() if X.is_inference() else X
        return own if own.is_floating_point() else own.float()
    array = np.asarray(X)
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"rows of dtype {array.dtype} are not numbers; give encoded rows, or a DataFrame "
            "together with its feature space"
        )
    wanted = np.float64 if array.dtype == np.float64 else np.float32
    return torch.from_numpy(np.array(array, dtype=wanted))


def _numbers(frame: pd.DataFrame) -> np.ndarray:
    for name, dtype in frame.dtypes.items():
        if not pd.api.types.is_numeric_dtype(dtype):
            raise DataError(
                f"column {name!r} has dtype {dtype}; a model fitted without a pipeline takes "
                "numbers only"
            )
    return frame.to_numpy(dtype=np.float64, na_value=np.nan)


def _targets(y: Any, n: int) -> np.ndarray | None:
    if y is None:
        return None
    array = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if len(array) != n:
        raise DataError(f"{n} rows but {len(array)} targets")
    return array


def _check_width(X: Tensor, space: FeatureSpace | None) -> None:
    if space is not None and space.width != X.shape[1]:
        raise DataError(f"the space has {space.width} columns, the rows have {X.shape[1]}")


def _read_pair(
    valid: Any, pipeline: PreprocessingPipeline | None, width: int
) -> tuple[Tensor | None, np.ndarray | None]:
    if valid is None:
        return None, None
    X, y = valid
    matrix = as_matrix(X, pipeline=pipeline, width=width).float()
    return matrix, _targets(y, len(matrix))


def _fit_pipeline(frame: pd.DataFrame, space: FeatureSpace | None) -> tuple[Any, FeatureSpace]:
    pipeline = PreprocessingPipeline().fit(frame, space or infer_space(frame))
    return pipeline, pipeline.space_


def _read_loader(loader: DataLoader[Any], space: FeatureSpace | None, valid: Any) -> FitRows:
    dataset: Any = loader.dataset
    space = space if space is not None else getattr(dataset, "space", None)
    if space is None:
        raise MissingInputError(
            f"the loader's {type(dataset).__name__} has no feature space; pass space=..., or take "
            "a loader of a CEL dataset"
        )
    columns = _loader_columns(loader)
    X = as_matrix(columns[0]).float()
    _check_width(X, space)
    pipeline = getattr(dataset, "pipeline", None)
    valid_x, valid_y = _read_pair(valid, pipeline, X.shape[1])
    held = getattr(getattr(dataset, "split", None), "valid", None)
    if valid is None and held is not None and len(held.X):
        valid_x, valid_y = as_matrix(held.X).float(), np.asarray(held.y)
    return FitRows(
        X=X,
        y=_targets(columns[1], len(X)) if len(columns) > 1 else None,
        valid_x=valid_x,
        valid_y=valid_y,
        encoding=Encoding(space=space).over(Encoding.of(dataset)),
    )


def _loader_columns(loader: DataLoader[Any]) -> tuple[Any, ...]:
    """Return the loader's tables whole, without shuffling or dropping rows where it can."""
    dataset: Any = loader.dataset
    if getattr(dataset, "tensors", None) is not None:
        return tuple(dataset.tensors)
    if getattr(dataset, "rows", None) is not None:
        return dataset.rows.X, dataset.rows.y
    batches = [b if isinstance(b, tuple | list) else (b,) for b in loader]
    if not batches:
        raise DataError("the loader has no rows")
    return tuple(torch.cat(column) for column in zip(*batches, strict=True))


def flat_labels(y: np.ndarray) -> np.ndarray:
    """Return class labels as (n,)."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"class labels must be of shape (n,), got {y.shape}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError("a class label is not a number")
    return y


def value_matrix(y: np.ndarray) -> Tensor:
    """Return finite values as float32 (n, m)."""
    if y.dtype.kind not in "fiub":
        raise DataError(f"values of dtype {y.dtype} are not numbers")
    values = torch.from_numpy(np.array(y, dtype=np.float32).reshape(len(y), -1))
    if not bool(values.isfinite().all()):
        raise DataError("y holds a value that is not finite")
    return values
