"""From raw tables to encoded matrices and exactly back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cel.lazy_names import lazy_names
from cel.preprocessing.encoders import OneHotEncoder, OrdinalEncoder
from cel.preprocessing.encoding import Encoded, Encoding
from cel.preprocessing.given import GivenRows
from cel.preprocessing.imputer import Imputer, companions, frozen, without_gaps
from cel.preprocessing.infer import infer_space
from cel.preprocessing.pipeline import PreprocessingPipeline
from cel.preprocessing.scalers import MinMaxScaler, RobustScaler, StandardScaler
from cel.preprocessing.sheet import Sheet, carried_columns, on_grids
from cel.preprocessing.step import STEPS, Columns, Step

if TYPE_CHECKING:
    from cel.preprocessing.dequantization import NoiseDequantizer, UniformDequantizer
    from cel.preprocessing.dequantization_variational import VariationalDequantizer

__all__ = [
    "STEPS",
    "Columns",
    "Encoded",
    "Encoding",
    "GivenRows",
    "Imputer",
    "MinMaxScaler",
    "NoiseDequantizer",
    "OneHotEncoder",
    "OrdinalEncoder",
    "PreprocessingPipeline",
    "RobustScaler",
    "Sheet",
    "StandardScaler",
    "Step",
    "UniformDequantizer",
    "VariationalDequantizer",
    "carried_columns",
    "companions",
    "frozen",
    "infer_space",
    "on_grids",
    "without_gaps",
]

_LOADS_TORCH = {
    "NoiseDequantizer": "cel.preprocessing.dequantization",
    "UniformDequantizer": "cel.preprocessing.dequantization",
    "VariationalDequantizer": "cel.preprocessing.dequantization_variational",
}


__getattr__ = lazy_names(__name__, _LOADS_TORCH)
