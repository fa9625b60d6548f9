"""A first card for a user's own file, with every guess spelled out."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.config import write_yaml
from cel.datasets.files import check_file, open_bytes, sha256_of
from cel.datasets.specs import MAX_CATEGORIES, FileSpec
from cel.errors import ConfigError, DataError
from cel.protocols import Task
from cel.registry import did_you_mean

__all__ = ["Guess", "check_text", "guess_card", "write_card"]

_FEW = 20  # whole numbers with so few values are taken for classes when they are the target


@dataclass
class Guess:
    """A card as plain values, and one remark per guess."""

    card: dict[str, Any]
    remarks: list[str] = field(default_factory=list)


def guess_card(path: Path, target: str) -> Guess:
    """Infer a card from a CSV file.

    Text becomes categorical, whole numbers integer, other numbers continuous; columns that cannot
    be features (one value, or a different word in nearly every row) are dropped.
    """
    check_file(path, FileSpec(path=path.name))
    frame = _read(path)
    if str(target).startswith("Unnamed: ") or target not in frame:
        hint = did_you_mean(target, map(str, frame.columns))
        raise ConfigError(f"{path}: target column {target!r} is missing; {hint}")
    guess = Guess({})
    outcome = _guess_target(frame[target], guess)
    features, drop = _guess_features(frame.drop(columns=target), guess)
    if not features:
        raise DataError(f"{path}: no column besides {target!r} can be a feature")
    used = [f["column"] if "column" in f else f["name"] for f in features]
    gaps = _tell_gaps(frame[[*used, target]], guess)
    guess.card |= {
        "name": path.name.split(".")[0],
        "title": path.name.split(".")[0],
        "task": outcome.pop("task").value,
        "sources": [{"files": [{"path": path.name, "sha256": sha256_of(path)}]}],
        "features": features,
        "drop": drop,
        "target": {"columns": [target], **outcome},
        "rows": {"missing": "drop" if gaps else "error"},
    }
    return guess


def write_card(guess: Guess, path: Path) -> None:
    """Write a guessed card for the user to edit; an existing file is not replaced."""
    lines = ["Guessed by `cel data init`. Check kinds and bounds, say what may not change", ""]
    lines[-1] = "(mutable, direction, allowed, protected) and which class is desired."
    write_yaml(path, guess.card, comment="\n".join([*lines, *guess.remarks]))


def _read(path: Path) -> pd.DataFrame:
    try:
        check_text(path)
        frame = pd.read_csv(path, skipinitialspace=True)
        if frame.empty:
            raise DataError(f"{path}: a header and no rows below it")
        return frame
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason}); save it as UTF-8") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(f"{path}: cannot be read as CSV ({error})") from None


def check_text(path: Path) -> None:
    """Refuse what pandas would rename or keep silently: NUL bytes, one name for two columns."""
    import csv

    with open_bytes(path) as file, io.TextIOWrapper(file, encoding="utf8", newline="") as text:
        first = text.readline()
        header = next(csv.reader([first], skipinitialspace=True), []) if first.strip() else []
        numbered = enumerate(itertools.chain([first], text), 1)
        bad = next((n for n, line in numbered if "\x00" in line), None)
    if bad is not None:
        raise DataError(f"{path}: line {bad} holds a NUL byte; this is no text, or UTF-16 text")
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise DataError(f"{path}: column {twice[0]!r} is in the header twice; rename one of them")


def _tell_gaps(frame: pd.DataFrame, guess: Guess) -> int:
    """Remark on rows with missing values, naming the first of them; return how many there are."""
    empty = frame.isna()
    rows = np.flatnonzero(empty.any(axis=1).to_numpy())
    if not len(rows):
        return 0
    named = [
        f"row {row + 1} ({', '.join(map(repr, frame.columns[empty.iloc[row]]))})"
        for row in rows[:3]
    ]
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    where = f"{', '.join(named)}{more}, counted from 1 below the header"
    guess.remarks.append(
        f"{len(rows)} rows with missing values are dropped (rows.missing): {where}"
    )
    return len(rows)


def _refuse_stray_words(known: pd.Series, column: str) -> None:
    """Refuse a column of numbers with a few words in it, which would be taken for an id."""
    numbers = pd.to_numeric(known, errors="coerce")
    stray = np.flatnonzero(numbers.isna().to_numpy())
    if 0 < len(stray) <= 0.1 * len(known):
        row = int(known.index[stray[0]]) + 1
        more = f" and {len(stray) - 1} more" if len(stray) > 1 else ""
        raise DataError(
            f"column {column!r}: {known.iloc[stray[0]]!r} in row {row}{more} is no number, the "
            "others are; correct the file, or leave the field empty where the value is missing"
        )


def _guess_target(values: pd.Series, guess: Guess) -> dict[str, Any]:
    known = values.dropna()
    levels = known.unique()
    if len(levels) < 2:
        raise DataError(
            f"target {values.name!r} has {len(levels)} different values in {len(values)} rows; "
            "two are needed"
        )
    number = pd.api.types.is_numeric_dtype(known) and not pd.api.types.is_bool_dtype(known)
    if number and (len(levels) > _FEW or not _whole(known)):
        guess.remarks.append(f"target {values.name!r}: numbers, so regression")
        return {"task": Task.REGRESSION}
    if len(levels) > MAX_CATEGORIES:
        raise DataError(f"target {values.name!r} has {len(levels):,} classes; is it an id?")
    labels = [_plain(v) for v in sorted(levels.tolist())]
    guess.remarks.append(f"target {values.name!r}: classes {labels}, so classification")
    return {"task": Task.CLASSIFICATION, "classes": [{"label": v} for v in labels]}


def _guess_features(frame: pd.DataFrame, guess: Guess) -> tuple[list[dict[str, Any]], list[str]]:
    features, drop = [], []
    for column in map(str, frame.columns):
        known = frame[column].dropna()
        count = int(known.nunique())
        header = "" if column.startswith("Unnamed: ") else column
        words = not pd.api.types.is_numeric_dtype(known) or pd.api.types.is_bool_dtype(known)
        if words and header and count > _FEW:
            _refuse_stray_words(known, column)
        if not header or count < 2:
            reason = "no header" if not header else f"{count} different value"
            reason = reason if count else f"no value in any of {len(frame)} rows"
        elif words and count > min(MAX_CATEGORIES, max(_FEW, len(known) // 2)):
            reason = f"{count:,} different words, an id?"
        else:
            features.append(_guess_feature(known, column, words, guess))
            continue
        drop.append(header)
        guess.remarks.append(f"{column!r}: dropped ({reason})")
    return features, drop


def _guess_feature(known: pd.Series, name: str, words: bool, guess: Guess) -> dict[str, Any]:
    if words:
        labels = sorted({_plain(v) for v in known.unique().tolist()}, key=str)
        guess.remarks.append(f"{name!r}: categorical with {len(labels)} categories")
        return {"name": name, "kind": "categorical", "categories": labels}
    kind = "integer" if _whole(known) else "continuous"
    low, high = float(known.min()), float(known.max())
    if not np.isfinite([low, high]).all():
        raise DataError(f"column {name!r} holds an infinite value; correct the file")
    guess.remarks.append(f"{name!r}: {kind}, {low:g} .. {high:g}")
    bounds = (int(low), int(high)) if kind == "integer" else (low, high)
    return {"name": name, "kind": kind, "lower": bounds[0], "upper": bounds[1]}


def _whole(values: pd.Series) -> bool:
    return bool((values.astype(np.float64) % 1 == 0).all())


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() if isinstance(value, str) else value
