"""Classifiers to be explained."""

from __future__ import annotations

from cel.models.classifiers.logistic import LogisticRegression
from cel.models.classifiers.mlp import MLPClassifier
from cel.models.classifiers.node import NODE

__all__ = ["NODE", "LogisticRegression", "MLPClassifier"]
