"""Plots of a result: what changes, where values lie, what several answers trade."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cel.display.comparison_facts import Facts, asked
from cel.display.words import cell, cell_pair, row_name
from cel.errors import ConfigError, DataError, MissingDependencyError, MissingInputError
from cel.protocols import Task
from cel.registry import did_you_mean
from cel.space.distances import gower

if TYPE_CHECKING:
    from cel.result import ExplanationResult

__all__ = ["draw"]

# Two colours that differ for every kind of colour vision; shapes tell the same.
OLD, NEW, GREY = "#D55E00", "#0072B2", "#B8BEC4"
WIDE = 7.0  # inches
LONGEST = 26  # characters of a name beside an axis


def draw(result: ExplanationResult, kind: str, row: Any, most: int) -> Any:
    """Return the figure of `ExplanationResult.plot`."""
    kinds = {"changes": _changes, "position": _position, "tradeoff": _tradeoff}
    if kind not in kinds:
        raise ConfigError(f"unknown kind {kind!r}; {did_you_mean(str(kind), kinds)}")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ConfigError(f"most is {most!r}; say how many columns to draw, 1 or more")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "report") from None
    place = None if row is None else _place(result, row)
    return kinds[kind](Figure, result, place, most)


def _place(result: ExplanationResult, row: Any) -> int:
    """Return the position of an answered row by its label."""
    labels = result.originals().index
    found = [i for i, label in enumerate(labels) if label == row]
    if not found:
        known = ", ".join(row_name(v) for v in labels[:5])
        raise DataError(f"no row has the label {row!r}; the first labels are {known}")
    if not result.found[found[0]]:
        raise DataError(f"row {row!r} has no answer to draw: {result.status[found[0]]}")
    return found[0]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _answered(result: ExplanationResult, place: int | None) -> Facts:
    rows = np.flatnonzero(result.found) if place is None else np.array([place])
    if not len(rows):
        raise DataError("no row has an answer, so there is nothing to draw")
    return Facts.of(result, rows)


# -- what changes ----------------------------------------------------------------------------


def _changes(make: Any, result: ExplanationResult, place: int | None, most: int) -> Any:
    facts = _answered(result, place)
    if place is None and len(facts) > 1:
        return _how_often(make, facts, most)
    surroundings = facts.surroundings
    if surroundings is None:
        raise MissingInputError(
            "the plot needs the background rows, which files of results do not hold; draw it "
            "from the result that cel.explain returned"
        )
    columns = np.flatnonzero(facts.moved[0])[:most]
    figure = make(figsize=(WIDE, 1.4 + 0.5 * len(columns)), layout="constrained")
    axes = figure.subplots()
    for y, j in enumerate(columns):
        had, has = (values[0] for values in facts.changed[int(j)])
        start, end = (_standing(surroundings, facts.names[j], v) for v in (had, has))
        texts = cell_pair(had, has)
        if np.isfinite(start):
            axes.plot([start, end], [y, y], color=GREY, lw=2, zorder=1)
            axes.scatter(start, y, s=60, facecolor="white", edgecolor=OLD, lw=2, zorder=2)
        axes.scatter(end, y, s=60, marker="D", color=NEW, zorder=3)
        axes.text(103, y, f"{_short(texts[0])} → {_short(texts[1])}", va="center", clip_on=False)
    axes.set_yticks(range(len(columns)), [_short(cell(facts.names[j])) for j in columns])
    axes.set_ylim(len(columns) - 0.4, -0.6)
    axes.set_xlim(-3, 102)
    axes.set_xlabel("background rows at or below the value (labels: rows that have it), %")
    axes.set_title(_title(facts), loc="left", fontsize=11)
    _plain(axes)
    return figure


def _standing(surroundings: Any, name: str, value: Any) -> float:
    import pandas as pd

    if cell(value) == "missing":
        return float("nan")
    return 100 * float(surroundings.usual(name, pd.Series([value], dtype=object))[0])


def _how_often(make: Any, facts: Facts, most: int) -> Any:
    often = facts.moved.sum(0)
    columns = [j for j in np.argsort(-often, kind="stable")[:most] if often[j]]
    figure = make(figsize=(WIDE, 1.2 + 0.36 * len(columns)), layout="constrained")
    axes = figure.subplots()
    share = 100 * often[columns] / len(facts)
    bars = axes.barh(range(len(columns)), share, color=NEW)
    axes.bar_label(bars, [f"{often[j]:,}" for j in columns], padding=4)
    axes.set_yticks(range(len(columns)), [_short(cell(facts.names[j])) for j in columns])
    axes.invert_yaxis()
    axes.set_xlim(0, max(share) * 1.12)
    axes.set_xlabel(f"answers that change the column, % of {len(facts):,}")
    axes.set_title("What changes most often", loc="left", fontsize=11)
    _plain(axes)
    return figure


# -- where values lie ------------------------------------------------------------------------


def _position(make: Any, result: ExplanationResult, place: int | None, most: int) -> Any:
    if place is None:
        answered = np.flatnonzero(result.found)
        place = int(answered[0]) if len(answered) else None
    facts = _answered(result, place)
    if facts.surroundings is None:
        raise MissingInputError(
            "the plot needs the background rows, which files of results do not hold; draw it "
            "from the result that cel.explain returned"
        )
    columns = np.flatnonzero(facts.moved[0])[:most]
    high = -(-len(columns) // 2)
    wide = min(len(columns), 2)
    figure = make(figsize=(3.5 * wide, 0.7 + 2.1 * high), layout="constrained")
    grid = np.atleast_1d(figure.subplots(high, wide)).ravel()
    for axes, j in zip(grid, columns, strict=False):
        had, has = (values[0] for values in facts.changed[int(j)])
        _distribution(axes, facts, facts.names[j], had, has)
    for axes in grid[len(columns) :]:
        axes.set_visible(False)
    figure.suptitle(_title(facts), x=0.01, ha="left", fontsize=11)
    return figure


def _distribution(axes: Any, facts: Facts, name: str, had: Any, has: Any) -> None:
    surroundings = facts.surroundings
    assert surroundings is not None
    texts = cell_pair(had, has)
    if surroundings.labelled(name):
        shares = surroundings.shares(name)
        kept = list(dict.fromkeys([*shares.index[:6], *[v for v in (had, has) if v in shares]]))
        colours = [OLD if v == had else NEW if v == has else GREY for v in kept]
        hatches = ["///" if v == had else "" for v in kept]
        axes.barh(range(len(kept)), [100 * shares[v] for v in kept], color=colours, hatch=hatches)
        axes.set_yticks(range(len(kept)), [_short(cell(v)) for v in kept])
        axes.invert_yaxis()
        axes.set_xlabel("% of background rows")
    else:
        axes.hist(surroundings.numbers(name), bins=30, color=GREY)
        if texts[0] != "missing":
            axes.axvline(float(had), color=OLD, lw=2, ls="--")
        axes.axvline(float(has), color=NEW, lw=2.5)
        axes.set_ylabel("rows")
    axes.set_title(f"{_short(cell(name))}: {_short(texts[0])} → {_short(texts[1])}", fontsize=10)
    _plain(axes)


# -- what several answers trade --------------------------------------------------------------


def _tradeoff(make: Any, result: ExplanationResult, place: int | None, most: int) -> Any:
    if result.task is Task.REGRESSION:
        raise ConfigError("the trade-off is drawn against probabilities; regression has none")
    if result.context is None or result.context.model is None:
        raise MissingInputError("the plot needs the model, which files of results do not hold")
    if place is None and result.x_sets is None and int(result.found.sum()) < 2:
        raise DataError("there is one answer only; ask for several with n=")
    points, rows = _members(result, place)
    after = result.compared(points, rows)
    count = after[3].sum(1)
    chance = 100 * asked(result, after[1], points, rows)
    cost = gower(result.x_origs[rows], points, result.space)
    figure = make(figsize=(WIDE, 4.2), layout="constrained")
    axes = figure.subplots()
    shapes = ("o", "s", "D", "^", "v", "P", "X")
    for k, number in enumerate(sorted(set(count.tolist()))[:most]):
        here = count == number
        label = f"{number} column{'s' if number != 1 else ''}"
        axes.scatter(
            cost[here], chance[here], s=46, marker=shapes[k % len(shapes)], alpha=0.85,
            label=label, color=_shade(k), edgecolor="white", lw=0.6,
        )  # fmt: skip
    axes.set_xlabel("cost: mean change in units of the range (Gower)")
    axes.set_ylabel("probability of the wanted class, %")
    axes.legend(title="changes", loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    name = (
        "all answers" if place is None else f"answers of row {row_name(result.source_ids[place])}"
    )
    axes.set_title(f"Near or sure: {name}", loc="left", fontsize=11)
    _plain(axes)
    return figure


def _members(result: ExplanationResult, place: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the answers (m, d) of one row or of all, and the rows (m,) that they answer."""
    keep = result.found if place is None else np.arange(len(result)) == place
    if result.x_sets is None:
        rows = np.flatnonzero(keep & result.found)
        return result.x_cfs[rows], rows
    row, number = np.nonzero(~np.isnan(result.x_sets).any(-1) & keep[:, None])
    return result.x_sets[row, number], row


def _shade(k: int) -> str:
    """Return colours of Okabe and Ito, which differ for every kind of colour vision."""
    return ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")[k % 7]


def _title(facts: Facts) -> str:
    title = f"Row {row_name(facts.labels[0])}: {facts.now[0]} → {facts.then[0]}"
    return title if len(title) <= 70 else title[:69] + "…"


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
