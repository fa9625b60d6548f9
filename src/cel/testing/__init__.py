"""Checks that every method must pass, for our tests and for those of other packages."""

from __future__ import annotations

from cel.testing.contract import CHECKS, Report, check_method
from cel.testing.problems import PROBLEMS, Problem

__all__ = ["CHECKS", "PROBLEMS", "Problem", "Report", "check_method"]
