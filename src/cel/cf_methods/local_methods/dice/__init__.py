"""DiCE: a set of diverse counterfactuals per row, by four searches."""

from __future__ import annotations

from cel.cf_methods.local_methods.dice.dice import DiCE
from cel.cf_methods.local_methods.dice.intervals import DiCEIntervals

__all__ = ["DiCE", "DiCEIntervals"]
