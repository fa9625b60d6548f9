"""Single values in words: cells, shares, row labels. Nobody is shown `nan` or `None`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from cel.text import visible

__all__ = ["GAP", "cell", "cell_pair", "joined", "percent", "percent_pair", "row_name"]

GAP = "missing"
CENTS = 1e12  # below this, numbers with two digits after the point are shown as they are
LONGEST = 80  # characters of a value or a label; longer ones are cut


def cell(value: Any, digits: int = 6) -> str:
    r"""Return one cell as people read it.

    Args:
        value: of any kind.
        digits: significant digits of numbers that have many.

    >>> cell(1200.0), cell(0.1), cell(None), cell(""), cell("a\x1b[2J"), cell(2 / 3)
    ('1200', '0.1', 'missing', 'an empty text', 'a\\x1b[2J', '0.666667')
    >>> cell(1234567.89)
    '1234567.89'
    """
    if _is_gap(value):
        return GAP
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return _number(value, digits)
    text = visible(value)
    if not text.strip():
        return "an empty text"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def cell_pair(before: Any, after: Any) -> tuple[str, str]:
    """Return two cells with as many digits as it takes to tell them apart.

    >>> cell_pair(1 / 3, 1 / 3 + 1e-9)
    ('0.333333333', '0.333333334')
    """
    for digits in (6, 9, 12):
        shown = cell(before, digits), cell(after, digits)
        if shown[0] != shown[1]:
            return shown
    return cell(before, 17), cell(after, 17)


def percent(share: float, digits: int = 0) -> str:
    """Return a share in per cent; one that is not quite nothing or all does not look like it.

    >>> percent(0.314), percent(0.001), percent(0.9996), percent(1.0), percent(float("nan"))
    ('31 %', 'under 1 %', 'over 99 %', '100 %', 'unknown')
    """
    if not math.isfinite(share):
        return "unknown"
    least = 10.0**-digits
    if 0 < share * 100 < least:
        return f"under {least:g} %"
    if 0 < (1 - share) * 100 < least:
        return f"over {100 - least:g} %"
    return f"{share * 100:.{digits}f} %"


def percent_pair(before: float, after: float) -> tuple[str, str]:
    """Return two shares with as many digits as it takes to tell them and a half apart.

    >>> percent_pair(0.31, 0.58), percent_pair(0.4996, 0.5004)
    (('31 %', '58 %'), ('49.96 %', '50.04 %'))
    >>> percent_pair(0.31, 0.5004)
    ('31.00 %', '50.04 %')
    """
    for digits in range(3):
        shown = percent(before, digits), percent(after, digits)
        half = any(v != 0.5 and round(v * 100, digits) == 50 for v in (before, after))
        if shown[0] != shown[1] and not half:
            return shown
    return percent(before, 3), percent(after, 3)


def row_name(label: Any) -> str:
    """Return the label of a row; the parts of a MultiIndex are set apart.

    >>> row_name(("Ann", 3)), row_name(np.int64(7))
    ('Ann / 3', '7')
    """
    if isinstance(label, tuple):
        return " / ".join(cell(part) for part in label)
    return cell(label)


def joined(parts: list[str]) -> str:
    """Return parts as a list in a sentence.

    >>> joined(["a"]), joined(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _is_gap(value: Any) -> bool:
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _number(value: float, digits: int) -> str:
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if abs(value) < CENTS and value == round(value, 2):
        return repr(value)
    short = repr(value)
    return short if len(short.lstrip("-")) <= digits + 1 else f"{value:.{digits}g}"
