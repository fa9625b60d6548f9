"""Relations and implications as people write them: "credits_open <= credits_total"."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cel.errors import ConfigError
from cel.registry import did_you_mean
from cel.space import Implication, LinearRelation

__all__ = ["read_implication", "read_relation"]

_NUMBER = r"(?:\d+(?:[_,]\d{3})*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_SIGNS = ("<=", ">=", "==", "<", ">", "=")


def read_relation(wish: Any, columns: Collection[str]) -> tuple[LinearRelation, ...]:
    """Read a linear relation; an equation becomes two.

    Args:
        wish: a `LinearRelation`, or a text of numbers, columns, + - * and one of <=, >=, ==; names
            that are no single words stand in backticks.
        columns: the columns that there are.

    >>> [str(r) for r in read_relation("open <= total - 2", ["open", "total"])]
    ['open <= total - 2']
    """
    if isinstance(wish, LinearRelation):
        for name in wish.features:
            _known(name, columns, str(wish))
        return (wish,)
    if not isinstance(wish, str):
        raise ConfigError(f"cannot read the relation {wish!r}; write 'a <= b' or 'a + 2*b <= 10'")
    sign = next((s for s in _SIGNS if s in wish), None)
    if sign is None or wish.count(sign) > 1:
        raise ConfigError(f"relation {wish!r} needs one of <=, >= or ==")
    left, right = (_terms(side, columns, wish) for side in wish.split(sign))
    names = list(dict.fromkeys([*left, *right]))
    terms = {n: left.get(n, 0.0) - right.get(n, 0.0) for n in names if n}
    terms = {n: c for n, c in terms.items() if c}
    bound = right.get("", 0.0) - left.get("", 0.0)
    if not terms:
        raise ConfigError(f"relation {wish!r} names no column, or each one on both sides")
    upper = LinearRelation.of(terms, bound)
    lower = LinearRelation.of({n: -c for n, c in terms.items()}, -bound)
    if sign in ("==", "="):
        return upper, lower
    return (upper,) if sign in ("<=", "<") else (lower,)


def _terms(text: str, columns: Collection[str], whole: str) -> dict[str, float]:
    """Return the coefficient of each column of a sum, and that of "" for plain numbers."""
    known = sorted((c for c in columns if re.fullmatch(r"[\w. ]+", c)), key=len, reverse=True)
    name = "|".join([r"`[^`]+`", *map(re.escape, known), r"[^\W\d]\w*"])
    before, after = rf"(?:({_NUMBER})\s*\*?\s*)?", rf"(?:\*\s*({_NUMBER}))?"
    term = re.compile(rf"\s*([-+]?)\s*{before}({name})?\s*{after}\s*")
    out: dict[str, float] = {}
    at = 0
    while at < len(text):
        found = term.match(text, at)
        if found is None or not (found[2] or found[3]) or (at and not found[1]):
            raise ConfigError(
                f"cannot read {text[at:].strip()!r} in the relation {whole!r}; write it as sums "
                "such as 'a + 2*b <= c - 10', names of several words in backticks"
            )
        size = float((found[2] or "1").replace("_", "").replace(",", "")) * float(found[4] or 1)
        column = "" if found[3] is None else found[3].strip("`")
        if column:
            _known(column, columns, whole)
        out[column] = out.get(column, 0.0) + (-size if found[1] == "-" else size)
        at = found.end()
    if not out:
        raise ConfigError(f"one side of the relation {whole!r} is empty")
    return out


def read_implication(wish: Any, columns: Collection[str]) -> Implication:
    """Read an implication.

    Args:
        wish: an `Implication`, {"if": {"job": "pilot"}, "then": {"licence": ["A", "B"]}}, or the
            text "job = pilot -> licence in A, B".
        columns: the columns that there are.

    >>> str(read_implication("job = pilot -> licence in A, B", ["job", "licence"]))
    'job in {pilot} -> licence in {A, B}'
    """
    if isinstance(wish, str) and wish.count("->") == 1:
        sides = [_side(side, wish) for side in wish.split("->")]
    elif isinstance(wish, Mapping) and set(map(str, wish)) == {"if", "then"}:
        sides = [_pair(wish[key], wish) for key in ("if", "then")]
    elif isinstance(wish, Implication):
        sides = [(wish.feature, wish.values), (wish.then_feature, wish.then_values)]
    else:
        raise ConfigError(
            f"cannot read the implication {wish!r}; write 'job = pilot -> licence in A, B' or "
            "{'if': {'job': 'pilot'}, 'then': {'licence': ['A', 'B']}}"
        )
    for name, _ in sides:
        _known(name, columns, str(wish))
    return Implication(sides[0][0], sides[0][1], sides[1][0], sides[1][1])


def _side(text: str, whole: str) -> tuple[str, tuple[Any, ...]]:
    found = re.fullmatch(r"\s*(.+?)\s*(?:==|=|\bin\b)\s*(.+?)\s*", text)
    if found is None:
        raise ConfigError(
            f"cannot read {text.strip()!r} in the implication {whole!r}; write 'column = value' "
            "or 'column in value, value'"
        )
    values = [v.strip().strip("'\"") for v in found[2].strip("{}[]()").split(",")]
    return found[1].strip("`"), tuple(values)


def _pair(side: Any, whole: Any) -> tuple[str, tuple[Any, ...]]:
    if not isinstance(side, Mapping) or len(side) != 1:
        raise ConfigError(f"implication {whole!r}: each side names one column and its values")
    name, values = next(iter(side.items()))
    many = isinstance(values, Sequence | set) and not isinstance(values, str)
    return str(name), tuple(values) if many else (values,)


def _known(name: str, columns: Collection[str], whole: str) -> None:
    if name not in columns:
        raise ConfigError(f"{whole!r}: unknown column {name!r}; {did_you_mean(name, columns)}")
