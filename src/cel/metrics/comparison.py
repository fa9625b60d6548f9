"""Several results side by side: on their own rows and on the rows that all of them solved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.errors import ConfigError, DataError
from cel.metrics.base import METRICS
from cel.metrics.orchestrator import MetricsOrchestrator
from cel.metrics.rowwise import common_rows
from cel.metrics.scores import Scores
from cel.registry import did_you_mean
from cel.result import EvaluationContext, ExplanationResult

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare", "pareto"]

AXES = ("success", "l2_hamming", "prob_plausibility", "sparsity", "time_s")


def compare(
    results: Mapping[str, ExplanationResult],
    *,
    context: EvaluationContext | None = None,
    orchestrator: MetricsOrchestrator | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Score results of the same rows twice: each on its own rows, and on the common ones.

    A method that solves only easy rows looks close and cheap on its own rows; on the rows that
    *all* methods solved ("common") it is compared with the others fairly. Values of the whole run
    (times, numbers of rules) are the same in both lines.

    Args:
        results: results by name; all must explain the same rows in the same order.
        context: model, density and reference rows for all of them.
        orchestrator: which metrics; by default `MetricsOrchestrator(**options)`.
        options: `conf_path` or `metrics` of the orchestrator.

    Returns:
        One line per (method, rows) with rows "own" or "common", one column per metric, and the
        number of found rows `n`.
    """
    import pandas as pd

    if not results:
        raise ConfigError("there is no result to compare")
    _check_same_rows(results)
    judge = orchestrator or MetricsOrchestrator(**options)
    common, _ = common_rows(np.stack([r.found for r in results.values()], 1))
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for name, result in results.items():
        own = judge.compute(result, context)
        shared = judge.compute(result.select(common), context) if common.any() else None
        lines[name, "own"] = {"n": float(result.found.sum()), **own}
        lines[name, "common"] = {"n": float(common.sum()), **_on_common(own, shared)}
    frame = pd.DataFrame.from_dict(lines, orient="index")
    frame.index = pd.MultiIndex.from_tuples(frame.index, names=["method", "rows"])
    return frame


def _on_common(own: Scores, shared: Scores | None) -> dict[str, float]:
    cell = {s.name for s in own.scores if s.metric.rows == "cell"}
    known: Mapping[str, float] = shared if shared is not None else {}
    return {name: own[name] if name in cell else known.get(name, math.nan) for name in own}


def _check_same_rows(results: Mapping[str, ExplanationResult]) -> None:
    (first, base), *others = results.items()
    for name, result in others:
        if len(result) != len(base):
            raise DataError(f"{name!r} has {len(result)} rows, {first!r} has {len(base)}")
        if not np.array_equal(result.source_ids, base.source_ids):
            row = int(np.flatnonzero(result.source_ids != base.source_ids)[0])
            raise DataError(
                f"{name!r} and {first!r} have different rows or another order: row {row} is "
                f"{result.source_ids[row]!r} and {base.source_ids[row]!r}"
            )
        for what in ("x_origs", "y_cf_targets"):
            mine, theirs = getattr(result, what), getattr(base, what)
            if not np.allclose(mine, theirs, atol=1e-6, equal_nan=True):
                raise DataError(f"{name!r} and {first!r} have different {what}")


def pareto(
    frame: pd.DataFrame, axes: Sequence[str] | Mapping[str, str] | None = None
) -> pd.Series[bool]:
    """Tell for each line of a table of metrics whether no other line is better in every way.

    A line is dominated when another one is at least as good on all axes and better on one. NaN
    counts as the worst value.

    Args:
        frame: one line per method, one column per metric.
        axes: columns to weigh, by default success, proximity, plausibility, sparsity and time
            where present; a mapping gives directions ("higher" or "lower") of columns that are no
            registered metrics.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"l2": [1.0, 2.0, 2.0], "success": [0.5, 0.9, 0.5]})
    >>> pareto(table, ["l2", "success"]).tolist()
    [True, True, False]
    """
    import pandas as pd

    chosen = [a for a in AXES if a in frame.columns] if axes is None else list(axes)
    if not chosen:
        raise ConfigError(f"none of the axes {list(axes or AXES)} is a column of the table")
    directions = dict(axes) if isinstance(axes, Mapping) else {}
    columns = [_oriented(frame, a, directions.get(a)) for a in chosen]
    value = np.stack(columns, 1)
    as_good = (value[:, None] >= value[None]).all(-1)
    better = (value[:, None] > value[None]).any(-1)
    dominated = (as_good & better).any(0)
    return pd.Series(~dominated, index=frame.index, name="on_front")


def _oriented(frame: pd.DataFrame, axis: str, direction: str | None) -> np.ndarray:
    """A column in which larger is better and NaN is the worst."""
    if axis not in frame.columns:
        hint = did_you_mean(axis, map(str, frame.columns))
        raise ConfigError(f"the table has no column {axis!r}; {hint}")
    known = direction or METRICS.get(axis).better
    if known not in ("higher", "lower"):
        raise ConfigError(
            f"axis {axis!r} has no direction; say 'higher' or 'lower', not {known!r}"
        )
    values = frame[axis].to_numpy(dtype=np.float64)
    good = values if known == "higher" else -values
    return np.where(np.isnan(good), -np.inf, good)
