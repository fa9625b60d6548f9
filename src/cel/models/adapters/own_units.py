"""From encoded rows to the numbers that a torch module was trained on, with gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from cel.errors import UnsupportedError
from cel.preprocessing import Encoding
from cel.space import Feature

__all__ = ["OwnUnits"]


@dataclass(frozen=True, eq=False)
class OwnUnits:
    """The columns of a table as one tensor: numbers as they are, labels one column each.

    Attributes:
        features: raw features in the order of the table.
        take: (k,) encoded column of each of the module's columns.
        scale: (k,) what it is multiplied by.
        shift: (k,) what is added.
        width: number of encoded columns.
    """

    features: tuple[Feature, ...]
    take: Tensor
    scale: Tensor
    shift: Tensor
    width: int

    @classmethod
    def of(cls, encoding: Encoding) -> OwnUnits:
        """Read the scaling of a fitted pipeline backwards."""
        pipeline, sheet = encoding.pipeline, encoding.sheet
        assert pipeline is not None
        assert sheet is not None
        if sheet.carried:
            raise UnsupportedError(
                f"column {sheet.carried[0]!r} is neither number nor category and cannot reach a "
                "torch module; drop it, or wrap a function that takes the whole table"
            )
        raw, space = pipeline.raw_space_, pipeline.space_
        features = tuple(raw[n] for n in sheet.names)
        decoded: dict[str, tuple[float, float]] = {}
        for step in pipeline.steps_:
            for name, scale in getattr(step, "scale_", {}).items():
                decoded[name] = (scale, step.shift_[name])  # type: ignore[attr-defined]
        take: list[int] = []
        scales: list[float] = []
        shifts: list[float] = []
        for f in features:
            columns = space[f.name].columns
            columns = columns[1:] if _truth(f) else columns
            scale, shift = decoded.get(f.name, (1.0, 0.0))
            take += columns
            scales += [scale] * len(columns)
            shifts += [shift] * len(columns)
        scale_, shift_ = (torch.tensor(v, dtype=torch.float64) for v in (scales, shifts))
        return cls(features, torch.tensor(take), scale_, shift_, space.width)

    def __call__(self, x: Tensor) -> Tensor:
        """Return encoded rows (n, d) in the units of the table, (n, k)."""
        return x[:, self.take.to(x.device)] * self.scale.to(x) + self.shift.to(x)

    def encoded(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return a first layer (out, k), (out,) of the module as one over encoded rows."""
        out = torch.zeros(len(weight), self.width, dtype=weight.dtype)
        out.index_add_(1, self.take, weight * self.scale.to(weight))
        return out, bias + weight @ self.shift.to(weight)

    def of_table(self, frame: pd.DataFrame) -> Tensor:
        """Return the rows of a raw table as they are, (n, k) float32."""
        parts = []
        for f in self.features:
            values = frame[f.name]
            if f.is_categorical and not _truth(f):
                known = values.astype(object).to_numpy()
                parts += [(known == c).astype(np.float64) for c in f.categories]
            elif f.kind == "ordinal":
                ranks = {c: float(i) for i, c in enumerate(f.categories)}
                parts.append(values.astype(object).map(ranks).to_numpy(dtype=np.float64))
            else:
                parts.append(values.to_numpy(dtype=np.float64, na_value=np.nan))
        return torch.as_tensor(np.stack(parts, 1), dtype=torch.float32)


def _truth(feature: Feature) -> bool:
    return feature.categories == (False, True)
