"""How many units (rules, groups, directions) an explanation has, and how simple they are.

Methods say more in `result.logs`: `units` (the units, or how many), `rule_length` (conditions per
unit, or their mean) and `conflict_rate` (share of rows that more than one unit claims).
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.errors import MissingInputError
from cel.metrics.base import metric

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["conflict_rate", "n_units", "rule_length"]


@metric(
    "n_units",
    better="lower",
    unit="units",
    rows="cell",
    needs={"units"},
    meaning="How many rules, groups or directions one has to read.",
    formula='logs["units"], else the number of different cf_group_ids >= 0',
    reference="Kanamori et al. (CET), 2022; Ley et al., 2023",
)
def n_units(ev: Evaluation) -> float:
    """Number of units of the explanation."""
    told = ev.result.logs.get("units")
    if told is not None:
        return float(len(told)) if isinstance(told, Sized) else float(told)
    assert ev.result.cf_group_ids is not None
    ids = np.unique(ev.result.cf_group_ids)
    return float((ids >= 0).sum())


def _logged(ev: Evaluation, key: str) -> Any:
    if key not in ev.result.logs:
        raise MissingInputError(f"the method did not log {key!r}")
    return ev.result.logs[key]


@metric(
    "rule_length",
    better="lower",
    unit="conditions",
    rows="cell",
    meaning="How many conditions a rule has, on average.",
    formula='mean of logs["rule_length"]',
    reference="Kanamori et al. (CET), 2022",
)
def rule_length(ev: Evaluation) -> float:
    """Mean number of conditions per unit."""
    lengths = np.asarray(_logged(ev, "rule_length"), dtype=np.float64)
    if not lengths.size:
        raise MissingInputError("the method has no rules")
    return float(lengths.mean())


@metric(
    "conflict_rate",
    better="lower",
    unit="share",
    rows="cell",
    meaning="How many people are claimed by more than one rule.",
    formula='logs["conflict_rate"]',
    reference="Kanamori et al. (CET), 2022; Rawal and Lakkaraju (AReS), 2020",
)
def conflict_rate(ev: Evaluation) -> float:
    """Share of rows matched by several units."""
    return float(_logged(ev, "conflict_rate"))
