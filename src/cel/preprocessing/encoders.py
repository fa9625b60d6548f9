"""Labels as one-hot blocks or as ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self

import numpy as np

from cel.errors import ConfigError
from cel.preprocessing.affine import laid_out
from cel.preprocessing.category_codes import has_labels
from cel.preprocessing.step import STEPS, Columns, Step
from cel.space import Feature, FeatureSpace

__all__ = ["OneHotEncoder", "OrdinalEncoder"]

_BLANK = 1e-6


class _Encoder(Step):
    """Turns the codes of labels into columns.

    Attributes:
        sizes_: feature name -> number of categories.
    """

    stage: ClassVar[int] = 1
    sizes_: dict[str, int]

    def fit(self, columns: Columns, space: FeatureSpace) -> Self:
        """Choose the label features that no earlier step has encoded."""
        super().fit(columns, space)
        self.features_ = [n for n in self.features_ if columns[n].ndim == 1]
        self.sizes_ = {n: len(space[n].categories) for n in self.features_}
        return self


class OneHotEncoder(_Encoder):
    """One column per category, one of them 1: `z_k = [x is category k]`.

    Args:
        features: which features; None means all categorical ones.
        handle_unknown: "error" refuses labels that the space does not list, "ignore" encodes them
            as a block of zeros, which decodes to a missing value.
        max_categories: more categories than this are an error, because each one is a column.

    >>> colour = Feature(name="c", kind="categorical", categories=("red", "blue"))
    >>> columns = {"c": np.array([1, 0], dtype=np.int32)}
    >>> OneHotEncoder().fit(columns, FeatureSpace((colour,))).transform(columns)["c"]
    array([[0, 1],
           [1, 0]], dtype=uint8)
    """

    name = "one_hot_encoder"

    def __init__(
        self,
        *,
        features: Sequence[str] | None = None,
        handle_unknown: Literal["error", "ignore"] = "error",
        max_categories: int = 1000,
    ) -> None:
        super().__init__(features=features)
        self.handle_unknown = handle_unknown
        self.max_categories = max_categories

    def fit(self, columns: Columns, space: FeatureSpace) -> Self:
        """Choose the features and check that their blocks are not too wide."""
        if self.handle_unknown not in ("error", "ignore"):
            raise ConfigError(f"handle_unknown is {self.handle_unknown!r}; use error or ignore")
        super().fit(columns, space)
        for name, size in self.sizes_.items():
            if size > self.max_categories:
                raise ConfigError(
                    f"feature {name!r} has {size} categories, more than "
                    f"max_categories={self.max_categories}; drop it, merge rare categories, or "
                    "raise max_categories"
                )
        return self

    def applies(self, feature: Feature) -> bool:
        """Tell whether the feature holds labels; ordered ones only when asked for by name."""
        named = self.features is not None and feature.name in self.features
        return feature.is_categorical or (named and feature.kind == "ordinal")

    def accepts_unknown(self, name: str) -> bool:
        """Tell whether unlisted categories become a block of zeros."""
        if self.handle_unknown != "ignore":
            return False
        return name in getattr(self, "features_", self.features or [name])

    def encode_space(self, space: FeatureSpace) -> FeatureSpace:
        """Return the space with the fitted features as blocks."""
        features = [self._block(f) if f.name in self.sizes_ else f for f in space]
        widths = [self.sizes_.get(f.name, len(f.columns)) for f in space]
        return FeatureSpace(laid_out(features, widths), space.constraints)

    def _block(self, feature: Feature) -> Feature:
        columns = tuple(range(self.sizes_[feature.name]))
        block = replace(feature, kind="categorical", columns=columns)
        return replace(block, lower=0.0, upper=1.0, step=None, anchor=0.0)

    def transform(self, columns: Columns) -> Columns:
        """Return the columns with codes (n,) replaced by blocks (n, k) of zeros and ones."""
        blocks = {}
        for name, size in self.sizes_.items():
            rows = np.eye(size + 1, size, dtype=np.uint8)  # the last row stands for "none of them"
            blocks[name] = rows.take(np.maximum(columns[name], -1), axis=0, mode="wrap")
        return columns | blocks

    def inverse_transform(self, columns: Columns) -> Columns:
        """Return the columns with blocks replaced by the codes of their largest entries."""
        codes = {}
        for name in self.sizes_:
            block = columns[name]
            best = block.argmax(axis=1)
            if self.handle_unknown == "ignore":
                best[(np.abs(block) < _BLANK).all(axis=1)] = -1
            codes[name] = best
        return columns | codes


class OrdinalEncoder(_Encoder):
    """One column with the rank of the category: `z = 0 .. k-1`, in the order of the space.

    Unordered categories become ordinal features too; their order is then the one of the space.
    Ranks that may be reached are limited by `Feature.allowed`, not by bounds.

    >>> size = Feature(name="s", kind="ordinal", categories=("S", "M", "L"), step=1)
    >>> encoder = OrdinalEncoder().fit({"s": np.array([0, 2])}, FeatureSpace((size,)))
    >>> encoder.encode_space(FeatureSpace((size,)))["s"].upper
    2.0
    """

    name = "ordinal_encoder"

    def applies(self, feature: Feature) -> bool:
        """Tell whether the feature holds labels."""
        return has_labels(feature)

    def encode_space(self, space: FeatureSpace) -> FeatureSpace:
        """Return the space with the fitted features as ranks."""
        features = [self._rank(f) if f.name in self.sizes_ else f for f in space]
        widths = [len(f.columns) for f in space]
        return FeatureSpace(laid_out(features, widths), space.constraints)

    def _rank(self, feature: Feature) -> Feature:
        upper = float(self.sizes_[feature.name] - 1)
        return replace(feature, kind="ordinal", lower=0.0, upper=upper, step=1.0, anchor=0.0)

    def transform(self, columns: Columns) -> Columns:
        """Return the columns as they are: codes are ranks."""
        return columns

    def inverse_transform(self, columns: Columns) -> Columns:
        """Return the columns with the fitted ones rounded to the nearest rank."""
        ranks = {
            n: np.clip(np.rint(columns[n]), 0, size - 1).astype(np.int64)
            for n, size in self.sizes_.items()
        }
        return columns | ranks


for _encoder in (OneHotEncoder, OrdinalEncoder):
    STEPS.add(_encoder.name, _encoder)
