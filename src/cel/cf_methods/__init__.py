"""Counterfactual methods: local, group-wise and global."""

from __future__ import annotations

from cel.cf_methods.base import (
    METHODS,
    BaseCounterfactualMethod,
    GlobalMixin,
    GroupMixin,
    LocalMixin,
)
from cel.cf_methods.query import Answer, Query, TrainRows

__all__ = [
    "METHODS",
    "Answer",
    "BaseCounterfactualMethod",
    "GlobalMixin",
    "GroupMixin",
    "LocalMixin",
    "Query",
    "TrainRows",
]
