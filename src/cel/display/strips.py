"""Small drawings inside a page: where a value lies among the background rows."""

from __future__ import annotations

import numpy as np

from cel.display.comparison_facts import Facts
from cel.display.words import cell
from cel.text import html

__all__ = ["StripMaker", "position_strip", "share_bar"]

BINS = 24
WIDTH, HEIGHT, PAD = 168, 34, 8


class StripMaker:
    """Draws strips; the bars of a column are counted once.

    Args:
        facts: rows side by side with their answers, and their background.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._bars: dict[int, tuple[float, float, np.ndarray]] = {}

    def strip(self, row: int, column: int) -> str:
        """Return the drawing of one changed value, nothing where there is no background."""
        facts = self.facts
        if facts.surroundings is None:
            return ""
        name = facts.names[column]
        had, has = (values[row] for values in facts.changed[column])
        if facts.surroundings.labelled(name):
            return share_bar(float(facts.usual[row, column]), cell(has))
        if column not in self._bars:
            self._bars[column] = _bars(facts.surroundings.numbers(name))
        return position_strip(*self._bars[column], _float(had), _float(has))


def position_strip(
    low: float, high: float, counts: np.ndarray, before: float, after: float
) -> str:
    """Return an SVG histogram with a ring at the old value and a filled point at the new one.

    Args:
        low: left end of the bars.
        high: right end.
        counts: (BINS,) heights.
        before: old value, NaN for none.
        after: new value.
    """
    ends = [v for v in (low, high, before, after) if np.isfinite(v)]
    left, right = min(ends), max(ends)
    scale = (WIDTH - 2 * PAD) / ((right - left) or 1.0)
    tallest = max(float(counts.max()), 1.0) if len(counts) else 1.0
    step = (high - low) / max(len(counts), 1)
    bars = []
    for k, count in enumerate(counts):
        if count:
            tall = 18 * float(count) / tallest
            x, wide = PAD + (low + k * step - left) * scale, max(step * scale - 0.6, 0.6)
            bars.append(
                f'<rect x="{x:.1f}" y="{20 - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}"/>'
            )
    marks = [f'<line x1="{PAD}" x2="{WIDTH - PAD}" y1="26" y2="26"/>']
    if np.isfinite(before):
        marks.append(
            f'<circle class="old" cx="{PAD + (before - left) * scale:.1f}" cy="26" r="4"/>'
        )
    marks.append(f'<circle class="new" cx="{PAD + (after - left) * scale:.1f}" cy="26" r="4"/>')
    label = html(f"from {cell(before)} to {cell(after)} among {cell(low)} to {cell(high)}")
    return (
        f'<svg class="strip" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}"><g class="bars">{"".join(bars)}</g>{"".join(marks)}'
        "</svg>"
    )


def share_bar(share: float, name: str) -> str:
    """Return an SVG bar for the share of background rows that have a label."""
    full = WIDTH - 2 * PAD
    share = share if np.isfinite(share) else 0.0
    return (
        f'<svg class="strip" role="img" aria-label="{html(name)}: {share:.0%}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
        f'<rect class="track" x="{PAD}" y="13" width="{full}" height="8" rx="4"/>'
        f'<rect class="fill" x="{PAD}" y="13" width="{full * share:.1f}" height="8" rx="4"/></svg>'
    )


def _bars(numbers: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Return ends and counts between the first and the last hundredth of the values."""
    if not len(numbers):
        return np.nan, np.nan, np.zeros(0)
    low, high = np.quantile(numbers, (0.01, 0.99))
    if low == high:
        low, high = numbers[0], numbers[-1]
    inside = numbers[(numbers >= low) & (numbers <= high)]
    counts, _ = np.histogram(inside, bins=BINS, range=(low, high) if low < high else None)
    return float(low), float(high), counts


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")
