"""The language of rules: predicates, edits, units in words, and the base of its methods."""

from __future__ import annotations

from cel.cf_methods.explanations.base import ExplanationMethod
from cel.cf_methods.explanations.cohort import Applied, Cohort, Learned
from cel.cf_methods.explanations.edits import BinCost, Edits, Price, predict_edits, settle
from cel.cf_methods.explanations.units import GlobalExplanation, Unit
from cel.cf_methods.explanations.wording import Term, Wording

__all__ = [
    "Applied",
    "BinCost",
    "Cohort",
    "Edits",
    "ExplanationMethod",
    "GlobalExplanation",
    "Learned",
    "Price",
    "Term",
    "Unit",
    "Wording",
    "predict_edits",
    "settle",
]
