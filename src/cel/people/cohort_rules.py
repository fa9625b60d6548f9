"""Rules for a group or for everybody, through the front door."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.cf_methods.explanations import ExplanationMethod, GlobalExplanation, Unit
from cel.cf_methods.goals import Wish
from cel.cf_methods.variants import named
from cel.display.offline import simple_page, write_page
from cel.display.person_page import html_table
from cel.display.words import cell, percent
from cel.door import Explainer
from cel.errors import ConfigError, DataError
from cel.preprocessing import Encoding
from cel.preprocessing.category_codes import has_labels
from cel.protocols import Task
from cel.result import ExplanationResult
from cel.text import html

__all__ = ["CohortRules", "explain_global", "explain_group"]


@dataclass(frozen=True, eq=False)
class CohortRules:
    """A few rules for many rows.

    Attributes:
        table: one line per rule, numbered from 1: `who` it is for, `what` changes (in original
            units and labels), `rows` that follow it, `reached` (share of them that the model then
            gives the wanted outcome) and `cost` in bins.
        result: the rows with the rules applied; see `rule`.
        wanted: the outcome that the rules lead to.
        method: name of the method.
        reason: why it was chosen.
        explanations: what the method found, for those who want more.
    """

    table: pd.DataFrame
    result: ExplanationResult
    wanted: str
    method: str
    reason: str
    explanations: tuple[GlobalExplanation, ...] = ()

    def __len__(self) -> int:
        return len(self.table)

    @property
    def rule(self) -> pd.Series:
        """The number of the rule of each row, 0 for none; indexed like the rows."""
        ids = self.result.cf_group_ids
        numbers = {int(i): n for n, i in zip(self.table.index, self.table["id"], strict=True)}
        index = self.result.originals().index
        if ids is None:
            return pd.Series(0, index=index, name="rule")
        return pd.Series([numbers.get(int(i), 0) for i in ids], index=index, name="rule")

    def __str__(self) -> str:
        done = int(self.result.found.sum())
        asked = int(self.result.explained.sum())
        share = percent(done / asked) if asked else "none"
        head = f"{len(self)} rules towards {self.wanted}: {done:,} of {asked:,} rows ({share})"
        lines = [
            f"{n}. {line.who}: {line.what}  ({line.rows:,} rows, {percent(line.reached)} reach it)"
            for n, line in self._lines()
        ]
        reasons = [e.reason for e in self.explanations if e.reason]
        return "\n".join([head, *lines, *reasons, self.reason, ""])

    def _lines(self) -> list[tuple[int, Any]]:
        return list(enumerate(self.table.itertuples(), 1))

    def show(self) -> None:
        """Print the rules."""
        sys.stdout.write(str(self))

    def _repr_html_(self) -> str:
        head, *_ = str(self).split("\n", 1)
        lines = [
            [str(n), t.who, t.what, f"{t.rows:,}", percent(t.reached), f"{t.cost:.2f}"]
            for n, t in self._lines()
        ]
        heads = ["rule", "who", "what", "rows", "reach it", "cost (bins)"]
        return f"<p>{html(head)}</p>{html_table(heads, lines)}<p>{html(self.reason)}</p>"

    def save_html(self, path: str | Path, *, title: str = "Rules") -> Path:
        """Write one offline page with the rules."""
        body = f"<header><h1>{html(title)}</h1></header><section>{self._repr_html_()}</section>"
        return write_page(path, simple_page(title, body))


def explain_group(
    model: Any,
    rows: Any,
    *,
    background: Any,
    target: Any = None,
    method: str | None = None,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> CohortRules:
    """Return a few rules that together help the given rows.

    Args:
        model: any model, as for `cel.explain`.
        rows: the group, in original units.
        background: training rows.
        target: the wanted outcome, as for `cel.explain`.
        method: "glance", "tcrex", "ares" or "globe_ce"; by default the one that fits.
        settings: of the method, such as {"n_actions": 2}.
        **options: constraints and others, as for `cel.Explainer`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> people = pd.DataFrame({"debt": np.arange(40.0), "age": np.arange(40) % 7})
    >>> model = LogisticRegression().fit(people, people.debt < 20)
    >>> rules = explain_group(model, people[25:], background=people, target=True)
    >>> rules.table.index[0], rules.table.what.iloc[0].split()[0]
    (1, 'debt')
    """
    return _ruled(model, rows, background, target, method, "group", settings or {}, options)


def explain_global(
    model: Any,
    *,
    background: Any,
    rows: Any = None,
    target: Any = None,
    method: str | None = None,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> CohortRules:
    """Return a few rules for everybody whom the model refuses.

    Args:
        model: any model, as for `cel.explain`.
        background: training rows.
        rows: whom the rules are made for; by default all background rows.
        target: the wanted outcome, as for `cel.explain`.
        method: "globe_ce", "ares", "glance" or "tcrex"; by default the one that fits.
        settings: of the method.
        **options: constraints and others, as for `cel.Explainer`.
    """
    everybody = background if rows is None else rows
    return _ruled(model, everybody, background, target, method, "global", settings or {}, options)


def _ruled(
    model: Any,
    rows: Any,
    background: Any,
    target: Any,
    method: str | None,
    scope: str,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> CohortRules:
    explainer = Explainer(model, background, target=target, **options)
    known, space = explainer.model, explainer.space
    task = Task(known.task)
    name, reason = _choice(task, known, scope) if method is None else (method, "As asked.")
    cls, published = named(name)
    if not issubclass(cls, ExplanationMethod):
        raise ConfigError(
            f"{name} makes no rules; use glance, tcrex, ares or globe_ce, or leave method= out"
        )
    if task is Task.REGRESSION and target is None:
        raise ConfigError("say what the prediction should become, such as target='>= 200'")
    made = cls(known, space=space, fit_split="test", **{**published, **settings})
    made.fit(explainer.background)
    if not isinstance(rows, pd.DataFrame):
        raise DataError(f"rules need rows as a DataFrame, got {type(rows).__name__}")
    wish = Wish(target) if task is Task.REGRESSION else target
    result = made.explain(rows, wish)
    found = tuple(made.explanations_.values())
    wanted = ", ".join(dict.fromkeys(cell(e.target) for e in found)) or cell(target)
    if task is Task.REGRESSION:
        wanted = cell(target)
    table = _numbered([u for e in found for u in e.units], result)
    return CohortRules(table, result, wanted, name, f"Method {name}: {reason}", found)


def _choice(task: Task, known: Any, scope: str) -> tuple[str, str]:
    """Return the method that fits, and why."""
    if scope == "group":
        if task is Task.REGRESSION:
            return "tcrex", "boxes of rows with the wanted value; GLANCE is for classes."
        return "glance", "few actions, each for the rows that it helps; any classifier will do."
    if task is Task.REGRESSION:
        return "globe_ce", "directions work for numbers as outcomes; AReS is for classes."
    pipeline = Encoding.of(known).pipeline
    features = [] if pipeline is None else list(pipeline.raw_space_)
    labels = sum(has_labels(f) for f in features)
    if 2 * labels > len(features):
        return (
            "ares",
            f"{labels} of {len(features)} columns are labels: what its rules are.",
        )
    return "globe_ce", "most columns are numbers; every row goes a shared way as far as it needs."


def _numbered(units: Sequence[Unit], result: ExplanationResult) -> pd.DataFrame:
    """Return the rules from 1 on, those that most rows follow first."""
    ids = np.full(len(result), -1) if result.cf_group_ids is None else result.cf_group_ids
    lines = []
    for unit in units:
        here = ids == unit.id
        reached = float(result.found[here].mean()) if here.any() else np.nan
        what = unit.then_text if unit.kind != "box" else f"go to {unit.then_text}"
        lines.append((unit.if_text, what, int(here.sum()), reached, unit.cost, unit.id))
    names = ["who", "what", "rows", "reached", "cost", "id"]
    table = pd.DataFrame(lines, columns=names)
    table = table.sort_values("rows", ascending=False, kind="stable", ignore_index=True)
    return table.set_axis(pd.RangeIndex(1, len(table) + 1, name="rule"), axis=0)
