"""Is there a way out for everybody alike? Recourse by protected group, with intervals."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.display.offline import simple_page, write_page
from cel.display.person_page import html_table
from cel.display.words import cell, percent
from cel.door import Explainer
from cel.errors import ConfigError, DataError
from cel.metrics.bootstrap import bootstrap_interval
from cel.registry import did_you_mean
from cel.result import ExplanationResult
from cel.space.distances import gower
from cel.text import html

__all__ = ["RecourseAudit", "audit"]

MOST_GROUPS = 20
FEW_VALUES = 8  # numbers with so few values are groups as they are; others are cut in two
SMALL = 30  # rows of a group below which its numbers are marked


@dataclass(frozen=True, eq=False)
class RecourseAudit:
    """Recourse by protected group.

    Attributes:
        table: one line per feature and group: `rows` of the group, `refused` (rows that the model
            does not give the wanted outcome) and their `refused_share`, then of the refused:
            `answered` (share with a verified answer), `cost` (mean change over all columns, in
            units of their range) and `changes` (columns per answer), the first two with the ends
            of 95 % bootstrap intervals.
        gaps: one line per feature: the largest difference between two groups in `answered` and in
            `cost`, with intervals.
        result: the answers behind it.
        wanted: what the rows should have become.
        notes: what was left out or decided.
    """

    table: pd.DataFrame
    gaps: pd.DataFrame
    result: ExplanationResult
    wanted: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"Recourse towards {self.wanted} by group ({len(self.result):,} rows)"
        parts = [head, "", self._shown().to_string(index=False), ""]
        parts += [self._gap_text(line) for line in self.gaps.itertuples()]
        return "\n".join([*parts, *self.notes, ""])

    def show(self) -> None:
        """Print the audit."""
        sys.stdout.write(str(self))

    def _repr_html_(self) -> str:
        return self._body()

    def save_html(self, path: str | Path, *, title: str = "Recourse by group") -> Path:
        """Write one offline page with tables, gaps and what was decided."""
        body = f"<header><h1>{html(title)}</h1></header><section>{self._body()}</section>"
        return write_page(path, simple_page(title, body))

    def _body(self) -> str:
        shown = self._shown()
        table = html_table(list(shown.columns), shown.to_numpy().tolist())
        told = [self._gap_text(line) for line in self.gaps.itertuples()] + list(self.notes)
        lines = "".join(f"<p>{html(t)}</p>" for t in told)
        return (
            f"<h2>Recourse towards {html(self.wanted)}</h2>"
            f'<div class="numbers">{table}</div>{lines}'
        )

    def _shown(self) -> pd.DataFrame:
        lines: list[Any] = list(self.table.itertuples())
        rows = [
            [
                cell(r.feature), cell(r.group), f"{r.rows:,}",
                f"{r.refused:,} ({percent(r.refused_share)})",
                _range(r.answered, r.answered_low, r.answered_high, share=True),
                _range(r.cost, r.cost_low, r.cost_high, share=False),
                "-" if np.isnan(r.changes) else f"{r.changes:.2f}",
            ]
            for r in lines
        ]  # fmt: skip
        names = ["feature", "group", "rows", "refused", "answered", "cost", "changes"]
        return pd.DataFrame(rows, columns=names)

    @staticmethod
    def _gap_text(line: Any) -> str:
        answered = _range(
            line.answered_gap, line.answered_gap_low, line.answered_gap_high, share=True
        )
        cost = _range(line.cost_gap, line.cost_gap_low, line.cost_gap_high, share=False)
        return (
            f"{cell(line.feature)}: largest gap in answers {answered} ({line.answered_groups}); "
            f"largest gap in cost {cost} ({line.cost_groups})."
        )


def audit(
    model: Any,
    data: pd.DataFrame,
    protected: str | Iterable[str],
    *,
    target: Any = None,
    background: Any = None,
    max_rows: int | None = 2000,
    freeze: bool = True,
    random_state: int = 0,
    **options: Any,
) -> RecourseAudit:
    """Compare how often and how cheaply protected groups can reach an outcome.

    Every row that the model refuses is explained; success and cost are then compared between the
    groups of each protected column. Labels are groups under their own name, numbers with many
    values are cut at their median, gaps are a group.

    Args:
        model: any model, as for `cel.explain`.
        data: rows in original units; protected columns need not be columns of the model.
        protected: one column, or several, each looked at alone.
        target: the wanted outcome, as for `cel.explain`.
        background: training rows; by default `data` itself.
        max_rows: rows that are looked at, drawn at random if there are more; None for all.
        freeze: whether protected columns may not change.
        random_state: seed of the draw and of the intervals.
        **options: constraints and settings, as for `cel.Explainer`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"debt": rng.normal(size=200), "sex": rng.choice(["f", "m"], 200)})
    >>> model = LogisticRegression().fit(people[["debt"]], people.debt < 0)
    >>> found = audit(model, people, "sex", target=True)
    >>> found.table[["group", "answered"]].values.tolist()
    [['f', 1.0], ['m', 1.0]]
    """
    if not isinstance(data, pd.DataFrame):
        raise DataError(f"an audit needs a DataFrame, got {type(data).__name__}")
    names = [protected] if isinstance(protected, str) else list(protected)
    for name in names:
        if name not in data.columns:
            raise ConfigError(f"no column {name!r}; {did_you_mean(name, map(str, data.columns))}")
    if not names:
        raise ConfigError("protected names no column; say whose recourse to compare")
    notes = []
    rows = data
    if max_rows is not None and len(data) > max_rows:
        rows = data.sample(max_rows, random_state=random_state)
        notes.append(f"{max_rows:,} of {len(data):,} rows were drawn at random.")
    known = data if background is None else background
    read = _read_columns(model, list(known.columns), names)
    fixed = options.pop("immutable", ())
    fixed = [fixed] if isinstance(fixed, str) else list(fixed)
    if freeze:
        fixed += [n for n in names if n in read and n not in fixed]
    explainer = Explainer(model, known[read], target=target, immutable=fixed, **options)
    result = explainer.explain(rows[read])
    return _summed_up(result, rows[names], notes, random_state)


def _read_columns(model: Any, columns: list[Any], protected: list[str]) -> list[Any]:
    """Return the columns that the model reads: all, or those it names."""
    from cel.models.adapters.calls import column_names

    own = column_names(model)
    pipeline = getattr(model, "pipeline_", None)
    if own is None and pipeline is not None:
        own = list(pipeline.raw_space_.names)
    return columns if own is None else [c for c in columns if c in own]


def _summed_up(
    result: ExplanationResult, groups: pd.DataFrame, notes: list[str], seed: int
) -> RecourseAudit:
    refused = result.explained & (result.status != "error")
    found = result.found
    cost = np.full(len(result), np.nan)
    cost[found] = gower(result.x_origs[found], result.x_cfs[found], result.space)
    changes = np.full(len(result), np.nan)
    rows = np.flatnonzero(found)
    changes[rows] = result.compared(result.x_cfs[rows], rows)[3].sum(1)
    lines, gaps = [], []
    for name in groups.columns:
        member = _members(groups[name], notes)
        parts = {g: member == g for g in sorted(set(member))}
        lines += [
            {"feature": name, "group": g, "rows": int(here.sum())}
            | _line(refused & here, found, cost, changes, int(here.sum()), seed)
            for g, here in parts.items()
        ]
        few = [g for g, here in parts.items() if (refused & here).sum() < SMALL]
        if few:
            told = ", ".join(map(cell, few[:5]))
            notes.append(f"{name}: fewer than {SMALL} refused rows in {told}; read with care.")
        gaps.append({"feature": name} | _gaps(parts, refused, found, cost, seed))
    wanted = "the wanted outcome"
    if result.target is not None and result.target.classes and refused.any():
        places = np.unique(result.y_cf_targets[refused])
        wanted = ", ".join(cell(result.target.classes[int(p)]) for p in places)
    return RecourseAudit(pd.DataFrame(lines), pd.DataFrame(gaps), result, wanted, tuple(notes))


def _members(values: pd.Series, notes: list[str]) -> np.ndarray:
    """(n,) names of groups."""
    number = pd.api.types.is_numeric_dtype(values.dtype)
    number &= not pd.api.types.is_bool_dtype(values.dtype)
    if number and values.nunique() > FEW_VALUES:
        middle = float(values.median())
        notes.append(f"{values.name}: cut at its median, {cell(middle)}.")
        told = np.where(values <= middle, f"<= {cell(middle)}", f"> {cell(middle)}")
        return np.where(values.isna(), "missing", told).astype(object)
    told = np.array([cell(v) for v in values.astype(object)], dtype=object)
    count = len(set(told))
    if count > MOST_GROUPS:
        raise ConfigError(
            f"{values.name!r} has {count:,} groups, more than {MOST_GROUPS}; merge some of them"
        )
    return told


def _line(
    refused: np.ndarray,
    found: np.ndarray,
    cost: np.ndarray,
    changes: np.ndarray,
    rows: int,
    seed: int,
) -> dict[str, Any]:
    won = found[refused].astype(np.float64)
    paid = cost[refused & found]
    ends = bootstrap_interval(won, seed=seed) if len(won) else (np.nan, np.nan)
    dear = bootstrap_interval(paid, seed=seed) if len(paid) else (np.nan, np.nan)
    return {
        "refused": int(refused.sum()),
        "refused_share": float(refused.sum() / max(rows, 1)),
        "answered": float(won.mean()) if len(won) else np.nan,
        "answered_low": ends[0], "answered_high": ends[1],
        "cost": float(paid.mean()) if len(paid) else np.nan,
        "cost_low": dear[0], "cost_high": dear[1],
        "changes": float(changes[refused & found].mean()) if len(paid) else np.nan,
    }  # fmt: skip


def _gaps(
    parts: dict[Any, np.ndarray],
    refused: np.ndarray,
    found: np.ndarray,
    cost: np.ndarray,
    seed: int,
) -> dict[str, Any]:
    won = {g: found[refused & here].astype(np.float64) for g, here in parts.items()}
    paid = {g: cost[refused & found & here] for g, here in parts.items()}
    out: dict[str, Any] = {}
    for name, values in (("answered", won), ("cost", paid)):
        gap, low, high, told = _largest_gap({g: v for g, v in values.items() if len(v)}, seed)
        out |= {f"{name}_gap": gap, f"{name}_gap_low": low, f"{name}_gap_high": high}
        out[f"{name}_groups"] = told
    return out


def _largest_gap(values: dict[Any, np.ndarray], seed: int) -> tuple[float, float, float, str]:
    """Return the difference of the extreme groups' means, its interval, and their names."""
    if len(values) < 2:
        return np.nan, np.nan, np.nan, "fewer than two groups"
    means = {g: float(v.mean()) for g, v in values.items()}
    top, bottom = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    rng = np.random.default_rng(seed)
    draws = [_resampled(values[g], rng) for g in (top, bottom)]
    low, high = np.quantile(draws[0] - draws[1], (0.025, 0.975))
    told = f"{cell(top)} over {cell(bottom)}" if means[top] > means[bottom] else "no difference"
    return means[top] - means[bottom], float(low), float(high), told


def _resampled(values: np.ndarray, rng: np.random.Generator, n: int = 1000) -> np.ndarray:
    """Return the means (n,) of resampled values."""
    out = np.empty(n)
    size = max(1, 2**22 // len(values))
    for i in range(0, n, size):
        part = min(size, n - i)
        out[i : i + part] = values[rng.integers(len(values), size=(part, len(values)))].mean(1)
    return out


def _range(value: float, low: float, high: float, *, share: bool) -> str:
    if np.isnan(value):
        return "-"
    if share:
        return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{value:.4f} [{low:.4f}, {high:.4f}]"
