"""Missing values as a state of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from cel.errors import ConfigError
from cel.preprocessing.affine import laid_out
from cel.preprocessing.category_codes import MISSING, has_labels
from cel.preprocessing.step import STEPS, Columns, Step
from cel.space import Feature, FeatureSpace

__all__ = ["FLAG", "Imputer", "companions", "frozen", "without_gaps"]

FLAG = "__missing"  # how the flag of a column's gaps ends


class Imputer(Step):
    """Fills gaps and remembers them, so that decoding gives them back.

    A categorical feature gets one more category. A number or rank gets the median of the training
    rows and a two-level flag `<name>__missing` beside it. The missing state can be left but not
    reached: no advice is to lose a value.

    Args:
        features: which features; None means those with gaps in the training rows.
        label: the name of the additional category.

    Attributes:
        codes_: categorical feature -> code of its additional category.
        ranks_: ordinal feature -> rank that fills its gaps.
        fill_: number -> value that fills its gaps.

    >>> columns = {"x0": np.array([1.0, np.nan, 5.0])}
    >>> imputer = Imputer().fit(columns, FeatureSpace.continuous(1))
    >>> imputer.transform(columns)["x0"], imputer.transform(columns)["x0__missing"]
    (array([1., 3., 5.]), array([0, 1, 0], dtype=int32))
    """

    name = "imputer"
    stage: ClassVar[int] = 0
    codes_: dict[str, int]
    ranks_: dict[str, int]
    fill_: dict[str, float]

    def __init__(self, *, features: Sequence[str] | None = None, label: str = "missing") -> None:
        super().__init__(features=features)
        self.label = label

    def applies(self, feature: Feature) -> bool:
        """Tell whether the step can work on the feature: on every one."""
        return True

    def accepts_missing(self, name: str) -> bool:
        """Tell whether gaps of the feature are filled."""
        return name in getattr(self, "features_", self.features or [name])

    def fit(self, columns: Columns, space: FeatureSpace) -> Self:
        """Choose the features with gaps and learn what fills them."""
        super().fit(columns, space)
        if self.features is None:
            self.features_ = [n for n in self.features_ if _gaps(columns[n], space[n]).any()]
        chosen = [space[n] for n in self.features_]
        self.codes_ = {f.name: len(f.categories) for f in chosen if f.is_categorical}
        self.ranks_ = {
            f.name: _middle_rank(columns[f.name]) for f in chosen if f.kind == "ordinal"
        }
        self.fill_ = {f.name: _middle(columns[f.name], f) for f in chosen if not has_labels(f)}
        for name in self.codes_:
            if self.label in space[name].categories:
                raise ConfigError(
                    f"feature {name!r} has a category {self.label!r} already; choose another "
                    "Imputer(label=...) for its missing values"
                )
        return self

    def encode_space(self, space: FeatureSpace) -> FeatureSpace:
        """Return the space with the additional categories and flags."""
        features = []
        for f in space:
            features.append(self._with_category(f) if f.name in self.codes_ else f)
            if f.name in self.fill_ or f.name in self.ranks_:
                features.append(_flag(f))
        return FeatureSpace(laid_out(features, [1] * len(features)), space.constraints)

    def _with_category(self, feature: Feature) -> Feature:
        allowed = feature.categories if feature.allowed is None else feature.allowed
        return replace(feature, categories=(*feature.categories, self.label), allowed=allowed)

    def transform(self, columns: Columns) -> Columns:
        """Return the columns without gaps, and the flags."""
        out = dict(columns)
        for name, code in self.codes_.items():
            out[name] = np.where(columns[name] == MISSING, np.int32(code), columns[name])
        for name, rank in self.ranks_.items():
            gaps = columns[name] == MISSING
            out[name] = np.where(gaps, np.int32(rank), columns[name])
            out[_flag_name(name)] = gaps.astype(np.int32)
        for name, fill in self.fill_.items():
            gaps = np.isnan(columns[name])
            out[name] = np.where(gaps, fill, columns[name])
            out[_flag_name(name)] = gaps.astype(np.int32)
        return out

    def inverse_transform(self, columns: Columns) -> Columns:
        """Return the columns with their gaps: NaN for numbers, -1 for codes."""
        out = dict(columns)
        for name, code in self.codes_.items():
            out[name] = np.where(columns[name] == code, MISSING, columns[name])
        for name in self.ranks_:
            out[name] = np.where(out.pop(_flag_name(name)) == 1, MISSING, columns[name])
        for name in self.fill_:
            out[name] = np.where(out.pop(_flag_name(name)) == 1, np.nan, columns[name])
        return out


STEPS.add(Imputer.name, Imputer)


def companions(space: FeatureSpace, name: str) -> tuple[str, ...]:
    """Return a column's features in an encoded space: its own, and the flag of its gaps.

    >>> companions(FeatureSpace((Feature(name="a"), _flag(Feature(name="a")).at((1, 2)))), "a")
    ('a', 'a__missing')
    """
    space[name]
    flag = _flag_name(name)
    return (name, flag) if flag in space.names else (name,)


def without_gaps(x: np.ndarray, space: FeatureSpace) -> np.ndarray:
    """Return a copy of encoded rows (..., d) in which every number is known."""
    out = np.array(x)
    for f in space.one_hot_features:
        if f.name.endswith(FLAG) and f.name.removesuffix(FLAG) in space.names:
            out[..., list(f.columns)] = (1.0, 0.0)
    return out


def frozen(space: FeatureSpace, names: Iterable[str]) -> FeatureSpace:
    """Return the space with some columns immutable, together with the flags of their gaps."""
    both = [f for name in names for f in companions(space, name)]
    return space.with_changes(**{name: {"mutable": False} for name in both})


def _gaps(values: np.ndarray, feature: Feature) -> np.ndarray:
    return np.asarray(values == MISSING if has_labels(feature) else np.isnan(values))


def _middle(values: np.ndarray, feature: Feature) -> float:
    """Return the median, on the grid of an integer feature."""
    middle = float(np.nanmedian(values))
    if feature.kind == "integer" and feature.step is not None:
        steps = round((middle - feature.anchor) / feature.step)
        return feature.anchor + feature.step * steps
    return middle


def _middle_rank(codes: np.ndarray) -> int:
    return int(np.quantile(codes[codes != MISSING], 0.5, method="lower"))


def _flag_name(name: str) -> str:
    return f"{name}{FLAG}"


def _flag(feature: Feature) -> Feature:
    return Feature(
        name=_flag_name(feature.name),
        kind="categorical",
        categories=(False, True),
        allowed=(False,),
        mutable=feature.mutable,
        weight=feature.weight,
    )
