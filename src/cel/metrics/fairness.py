"""Is recourse as cheap and as likely for one protected group as for another?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from cel.errors import ConfigError, MissingInputError
from cel.metrics.base import METRICS, Noted, metric
from cel.space.feature import Feature

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["cost_gap", "effectiveness_auc", "effectiveness_gap", "protected_groups"]

By = Literal["each", "joint"]


def protected_groups(ev: Evaluation, feature: str | None, by: By) -> dict[str, np.ndarray]:
    """Return group labels (s,) of the selected rows by attribute; "" where a value is unknown.

    Categories are groups of their own; numbers are split at their training median.
    """
    if by not in ("each", "joint"):
        raise ConfigError(f"by must be 'each' or 'joint', got {by!r}")
    asked = [ev.space[feature]] if feature is not None else [f for f in ev.space if f.protected]
    if not asked:
        raise MissingInputError("no feature of the space has protected=True")
    labels = {f.name: _labels(ev, f) for f in asked}
    if by == "each" or len(labels) == 1:
        return labels
    columns = list(labels.values())
    joint = columns[0]
    for column in columns[1:]:
        both = np.char.add(np.char.add(joint, " & "), column)
        joint = np.where((joint == "") | (column == ""), "", both)
    return {" & ".join(labels): joint}


def _labels(ev: Evaluation, feature: Feature) -> np.ndarray:
    x = ev.x[:, list(feature.columns)]
    names = np.array([str(c) for c in feature.categories], dtype=str)
    if feature.one_hot and len(feature.columns) > 1:
        return np.where(x.max(1) > 0.5, names[x.argmax(1)], "")
    if len(names):
        rank = np.round((x[:, 0] - feature.anchor) / (feature.step or 1.0)).astype(int)
        inside = (rank >= 0) & (rank < len(names))
        return np.where(inside, names[np.clip(rank, 0, len(names) - 1)], "")
    known = ev.context.x_train if ev.has("train") else ev.result.x_origs
    assert known is not None
    middle = float(np.nanmedian(known[:, feature.columns[0]]))
    return np.where(x[:, 0] <= middle, f"<= {middle:.3g}", f"> {middle:.3g}")


def _gap(ev: Evaluation, values: np.ndarray, labels: np.ndarray, min_rows: int) -> Noted:
    """Largest difference between group means."""
    groups, member = np.unique(labels, return_inverse=True)
    known = ~np.isnan(values)
    size = np.bincount(member[known], minlength=len(groups))
    total = np.bincount(member[known], weights=values[known], minlength=len(groups))
    use = (size >= max(min_rows, 1)) & (groups != "")
    if use.sum() < 2:
        told = ", ".join(f"{g or 'unknown'}: {n}" for g, n in zip(groups, size, strict=True))
        return Noted(np.nan, f"needs two groups of {min_rows} rows, got {told or 'none'}")
    means = total[use] / size[use]
    told = ", ".join(f"{g} {m:.3g}" for g, m in zip(groups[use], means, strict=True))
    return Noted(float(means.max() - means.min()), told)


def _largest(gaps: dict[str, Noted]) -> Noted:
    """The largest gap over the attributes, with its groups; NaN when no attribute has one."""
    told = "; ".join(f"{name}: {gap.note}" for name, gap in gaps.items())
    known = [gap.value for gap in gaps.values() if not np.isnan(gap.value)]
    return Noted(max(known, default=np.nan), told)


def _cost(ev: Evaluation, name: str) -> np.ndarray:
    """Costs of the verified counterfactuals, by another metric."""
    chosen = METRICS.get(name)
    if chosen.rows != "found" or chosen.better != "lower":
        raise ConfigError(f"cost must be a distance of found rows, got {name!r}")
    for need in sorted(chosen.needs):
        if not ev.has(need):
            raise MissingInputError(f"cost {name!r} needs {need}")
    return np.asarray(chosen(ev), dtype=np.float64)


@metric(
    "cost_gap",
    better="lower",
    rows="found",
    needs={"protected"},
    meaning="How much more expensive recourse is for one protected group than for another.",
    formula="max - min over groups g of mean cost(x, x' | g), the largest over protected features",
    reference="Ustun, Spangher and Liu, 2019; Gupta et al., 2019; von Kuegelgen et al., 2022",
)
def cost_gap(
    ev: Evaluation,
    cost: str = "gower",
    feature: str | None = None,
    by: By = "each",
    min_rows: int = 10,
) -> Noted:
    """Largest difference between the mean costs of protected groups."""
    values = _cost(ev, cost)
    groups = protected_groups(ev, feature, by)
    return _largest({name: _gap(ev, values, g, min_rows) for name, g in groups.items()})


@metric(
    "effectiveness_gap",
    better="lower",
    unit="share",
    rows="explained",
    needs={"protected"},
    meaning="How much more often one protected group gets a verified answer than another.",
    formula="max - min over groups g of success(g), the largest over protected features",
    reference="Kavouras et al. (FACTS), 2023",
)
def effectiveness_gap(
    ev: Evaluation, feature: str | None = None, by: By = "each", min_rows: int = 10
) -> Noted:
    """Largest difference between the success rates of protected groups."""
    values = ev.result.found[ev.positions].astype(np.float64)
    groups = protected_groups(ev, feature, by)
    return _largest({name: _gap(ev, values, g, min_rows) for name, g in groups.items()})


@metric(
    "effectiveness_auc",
    better="higher",
    unit="share",
    rows="explained",
    meaning="How many people are helped, the more the cheaper: the area under the curve of "
    "success against allowed cost.",
    formula="(1/B) integral over b in [0, B] of share of rows with cost <= b "
    "= mean of max(0, 1 - cost / B), 0 for rows without a verified answer",
    reference="Ley et al. (GLOBE-CE), 2023",
)
def effectiveness_auc(ev: Evaluation, cost: str = "gower", budget: float = 1.0) -> np.ndarray:
    """Each row's part of the area under the effectiveness-at-cost curve."""
    if not budget > 0:
        raise ConfigError(f"budget must be positive, got {budget}")
    out = np.zeros(len(ev.result))
    found = ev.of("found").positions
    if len(found):
        out[found] = np.clip(1 - _cost(ev, cost) / budget, 0, None)
    return np.asarray(out[ev.positions])
