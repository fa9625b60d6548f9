"""From raw tables to encoded matrices and exactly back."""

from __future__ import annotations

from cel.preprocessing.encoders import OneHotEncoder, OrdinalEncoder
from cel.preprocessing.imputer import Imputer
from cel.preprocessing.infer import infer_space
from cel.preprocessing.pipeline import PreprocessingPipeline
from cel.preprocessing.scalers import MinMaxScaler, RobustScaler, StandardScaler
from cel.preprocessing.step import STEPS, Columns, Step

__all__ = [
    "STEPS",
    "Columns",
    "Imputer",
    "MinMaxScaler",
    "OneHotEncoder",
    "OrdinalEncoder",
    "PreprocessingPipeline",
    "RobustScaler",
    "StandardScaler",
    "Step",
    "infer_space",
]
