"""How rows of a table become numbers and come back: one object that everybody passes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import DataError, MissingInputError
from cel.preprocessing.pipeline import PreprocessingPipeline
from cel.preprocessing.schema import to_array
from cel.preprocessing.sheet import Sheet
from cel.space import FeatureSpace, Target

__all__ = ["Encoded", "Encoding", "row_labels"]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The features of encoded rows, what encodes raw tables, and what the outcome means.

    Attributes:
        space: encoded features, or None where nothing is known about the columns.
        pipeline: between raw tables and encoded rows, or None for plain arrays.
        target: the outcome, or None.
        sheet: what else the training table says, for tables that came through the front door.

    >>> from cel.preprocessing import infer_space
    >>> frame = pd.DataFrame({"age": [20, 60]}, index=["Ann", "Bob"])
    >>> pipeline = PreprocessingPipeline().fit(frame, infer_space(frame))
    >>> encoding = Encoding(space=pipeline.space_, pipeline=pipeline)
    >>> x, labels = encoding.encode(frame)
    >>> labels.tolist(), encoding.decode(x, labels).equals(frame)
    (['Ann', 'Bob'], True)
    """

    space: FeatureSpace | None = None
    pipeline: PreprocessingPipeline | None = None
    target: Target | None = None
    sheet: Sheet | None = None

    @classmethod
    def of(cls, owner: Any) -> Encoding:
        """Return the encoding of a model, a split or a loader's dataset, empty for strangers.

        Models from outside may say `space_`, `pipeline_` and `target_` instead.
        """
        for name in ("encoding_", "encoding"):
            known = getattr(owner, name, None)
            if isinstance(known, cls):
                return known
        space = getattr(owner, "space_", None) or getattr(owner, "space", None)
        pipeline = getattr(owner, "pipeline_", None) or getattr(owner, "pipeline", None)
        target = getattr(owner, "target_", None) or getattr(owner, "target", None)
        return cls(
            space=space if isinstance(space, FeatureSpace) else None,
            pipeline=pipeline,
            target=target if isinstance(target, Target) else None,
        )

    def over(self, other: Encoding) -> Encoding:
        """Return this encoding, filled up from another one where nothing is known."""
        own = {n: getattr(self, n) for n in ("space", "pipeline", "target", "sheet")}
        return replace(other, **{n: v for n, v in own.items() if v is not None})

    @property
    def width(self) -> int | None:
        """Number of encoded columns, if known."""
        return None if self.space is None else self.space.width

    def encode(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return encoded rows (n, d) float32 and row labels (n,).

        Args:
            X: a raw DataFrame, the `Rows` of a split, or encoded rows as array or tensor.
        """
        if hasattr(X, "X") and hasattr(X, "index"):
            return np.asarray(X.X, dtype=np.float32), np.asarray(X.index)
        if isinstance(X, pd.DataFrame):
            if self.pipeline is None:
                raise MissingInputError(
                    "a DataFrame needs a pipeline: train the model from a dataset, use "
                    "cel.wrap(), or pass encoded rows as an array"
                )
            x = self.pipeline.transform(self._features(X))
            return np.asarray(x, dtype=np.float32), row_labels(X.index)
        rows = to_array(X)
        if rows.ndim != 2 or rows.dtype.kind not in "fiub":
            raise DataError(
                f"expected encoded rows of shape (n, d), got {type(X).__name__} of shape "
                f"{rows.shape} and dtype {rows.dtype}; give a DataFrame for raw values"
            )
        return np.ascontiguousarray(rows, dtype=np.float32), np.arange(len(rows))

    def decode(self, x: Any, index: Any = None) -> pd.DataFrame:
        """Return encoded rows (n, d) in original units; plain arrays get names of columns."""
        if self.pipeline is not None:
            return self.pipeline.inverse_transform(x, index)
        names = None if self.space is None else list(self.space.column_names)
        return pd.DataFrame(to_array(x), columns=names, index=index)

    def _features(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Drop what only travels along; columns that are missing are named by the pipeline."""
        if self.sheet is None or self.pipeline is None:
            return frame
        known = self.pipeline.raw_space_.names
        return frame[[n for n in frame.columns if n in known]]


class Encoded:
    """The parts of `encoding_`, for owners that have one once they are fitted."""

    encoding_: Encoding

    @property
    def space_(self) -> FeatureSpace | None:
        """Encoded features, or None."""
        return self.encoding_.space

    @property
    def pipeline_(self) -> PreprocessingPipeline | None:
        """What encodes raw tables, or None."""
        return self.encoding_.pipeline

    @property
    def target_(self) -> Target | None:
        """The outcome, or None."""
        return self.encoding_.target


def row_labels(index: pd.Index) -> np.ndarray:
    """Return the labels of rows as an array (n,); those of a MultiIndex are tuples."""
    out = np.empty(len(index), dtype=object)
    out[:] = list(index)
    return out if isinstance(index, pd.MultiIndex) else np.asarray(index)
