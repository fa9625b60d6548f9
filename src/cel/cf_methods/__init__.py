"""Counterfactual methods: local, group-wise and global."""

from __future__ import annotations

from cel.cf_methods.base import (
    METHODS,
    BaseCounterfactualMethod,
    GlobalMixin,
    GroupMixin,
    LocalMixin,
    Options,
)
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.protocols import Need, Support, Task

# Importing the packages is what fills METHODS.
from cel.cf_methods import global_methods, group_methods, local_methods  # isort: skip

__all__ = [
    "METHODS",
    "Answer",
    "BaseCounterfactualMethod",
    "GlobalMixin",
    "GroupMixin",
    "LocalMixin",
    "Need",
    "Options",
    "Query",
    "Support",
    "Task",
    "TrainRows",
    "global_methods",
    "group_methods",
    "local_methods",
]
