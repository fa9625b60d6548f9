"""Values of single rows, kept beside the scores of a cell, and comparisons made from them.

A table of rows has one line per explained row, indexed by the row's label: `found`, and one column
per metric, NaN where the row has no value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark.keys import key_of
from cel.benchmark.plan import Block, Cell, Plan, paradigms_of, target_of
from cel.benchmark.store import Store
from cel.errors import CelError
from cel.metrics.rowwise import common_rows, win_shares
from cel.paths import is_plain_file
from cel.protocols import Status
from cel.result import ExplanationResult
from cel.space.distances import changed_features, gower

__all__ = [
    "COMMON",
    "PAIR_COLUMNS",
    "ROW_METRICS",
    "common_table",
    "compare_finished",
    "compare_rows",
    "pair_table",
    "pool_common",
    "read_rows",
    "row_tables",
    "write_cell",
    "write_rows",
]

# Compared row by row: metrics with one value per found row. Others are kept if a suite adds them.
ROW_METRICS = (
    "l2_hamming", "gower", "sparsity", "redundancy", "density_percentile", "log_density",
    "prob_plausibility", "lof", "isolation_forest", "ynn",
)  # fmt: skip
NOT_COMPARED = (
    "sparsity_encoded", "l2_hamming_encoded", "density_spread", "coach_percentile",
    "coach_plausibility",
)  # fmt: skip
COMMON = ("gower", "sparsity", "l2_hamming", "density_percentile")
PAIR_COLUMNS = ["dataset", "model", "fold", "metric", "a", "b", "win", "rows"]
VERSION = 1
ENOUGH = 0.5  # a method that solved fewer rows is not asked which rows are common


# -- one cell --------------------------------------------------------------------------------


def write_rows(folder: Path, scores: Any, extra: Sequence[str] = ()) -> None:
    """Write the values of single rows beside the scores of a cell.

    Args:
        folder: of the entry that is being written.
        scores: `cel.metrics.Scores` of the cell.
        extra: further metrics to keep, where they have values by row.
    """
    table = scores.per_row()
    wanted = [m for m in dict.fromkeys([*ROW_METRICS, *extra]) if m in table]
    wanted = [m for m in wanted if m not in NOT_COMPARED]
    kept = table[wanted].astype(np.float32)
    kept.insert(0, "found", (table["status"] == Status.FOUND.value).to_numpy())
    kept = kept[(table["status"] != Status.NOT_APPLICABLE.value).to_numpy()]
    kept.index = kept.index.map(str)
    kept.to_parquet(folder / "rows.parquet", compression="zstd")


def read_rows(store: Store, cell: Cell) -> pd.DataFrame | None:
    """Return the table of rows of a cell.

    Without one, distances of the stored counterfactuals; None if nothing can be read.
    """
    try:
        path = store.folder("score", cell.score_key) / "rows.parquet"
        stored = store.folder("explain", cell.explain_key) / "result.parquet"
        if is_plain_file(path):
            return pd.read_parquet(path) if store.sound("score", cell.score_key) else None
        return _distances(ExplanationResult.from_parquet(stored)) if stored.exists() else None
    except (CelError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError):
        return None  # scores stand on their own; `cel run` repairs the file


def _distances(result: ExplanationResult) -> pd.DataFrame:
    found = result.found
    out = {"found": found, "gower": np.full(len(found), np.nan)}
    out["sparsity"] = out["gower"].copy()
    before, after = result.x_origs[found], result.x_cfs[found]
    out["gower"][found] = gower(before, after, result.space)
    out["sparsity"][found] = np.asarray(changed_features(before, after, result.space)).mean(1)
    table = pd.DataFrame(out, index=[str(i) for i in result.source_ids])
    return table[result.explained]


# -- one block -------------------------------------------------------------------------------


def row_tables(
    store: Store, plan: Plan, block: Block
) -> Iterator[tuple[dict[str, str], dict[str, pd.DataFrame]]]:
    """Give the tables of methods that answered for the same rows with the same target.

    A cell that failed or was refused stands there with all rows unanswered: refusing a whole
    dataset is no advantage either. Cells that were not run are left out.

    Yields:
        ({label: paradigm}, {label: table}).
    """
    groups: dict[Any, list[Cell]] = {}
    kinds = paradigms_of(plan)
    for cell in block.cells:
        target = target_of(plan.suite, plan.facts[cell.method.method].scope)
        groups.setdefault(target, []).append(cell)
    for cells in groups.values():
        found = {c.method.label: read_rows(store, c) for c in cells}
        known = {m: t for m, t in found.items() if t is not None}
        if not known:
            continue
        rows = next(iter(known.values())).index
        failed = [c.method.label for c in cells if store.failure(c.score_key) is not None]
        silent = {m: pd.DataFrame({"found": False}, index=rows) for m in failed if m not in known}
        paradigms = {c.method.label: kinds[block.dataset, c.method.label] for c in cells}
        yield paradigms, {m: {**silent, **known}[m] for m in found if m in known or m in silent}


def pair_table(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return for every pair of methods and every metric how often the first is better.

    Args:
        tables: tables of rows by method.

    Returns:
        Lines of metric, a, b, win (share of rows, ties half) and rows; an unanswered row counts
        as last. Also for `success`, where a found row beats one that is not.
    """
    from cel.metrics import METRICS

    labels = list(tables)
    if len(labels) < 2:
        return pd.DataFrame(columns=["metric", "a", "b", "win", "rows"])
    rows = _shared_index(tables.values())
    aligned = {m: t.reindex(rows) for m, t in tables.items()}
    metrics = list(dict.fromkeys(c for t in tables.values() for c in t.columns if c != "found"))
    found = np.stack([t["found"].to_numpy(dtype=float) for t in aligned.values()], 1)
    parts = [_wins("success", labels, found, lower=False)]
    for metric in metrics:
        if metric not in METRICS or METRICS.get(metric).better == "none":
            continue
        columns = [t.get(metric, pd.Series(np.nan, index=rows)) for t in aligned.values()]
        values = np.stack([c.to_numpy(dtype=float) for c in columns], 1)
        if not np.isnan(values).all():
            parts.append(_wins(metric, labels, values, METRICS.get(metric).better == "lower"))
    return pd.concat(parts, ignore_index=True)


def _shared_index(tables: Iterable[pd.DataFrame]) -> pd.Index:
    first, *others = tables
    rows: pd.Index = first.index
    for table in others:
        rows = rows.intersection(table.index, sort=False)
    return rows


def _wins(metric: str, labels: list[str], values: np.ndarray, lower: bool) -> pd.DataFrame:
    shares = win_shares(values, lower_is_better=lower)
    places = list(combinations(range(len(labels)), 2))
    return pd.DataFrame(
        {
            "metric": metric,
            "a": [labels[i] for i, _ in places],
            "b": [labels[j] for _, j in places],
            "win": [shares[i, j] for i, j in places],
            "rows": len(values),
        }
    )


def common_table(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return sums over each method's own rows and over the rows that all methods answered.

    Methods that answered less than half of the rows are left out: they would leave too few.
    Lines of method, rows (explained), own, common (numbers of rows) and, for each metric of
    `COMMON` that all have, `<metric>_own` and `<metric>`.
    """
    names = ["method", "rows", "own", "common"]
    rows = _shared_index(tables.values()) if tables else pd.Index([])
    aligned = {m: t.reindex(rows) for m, t in tables.items()}
    if len(aligned) < 2 or not len(rows):
        return pd.DataFrame(columns=names)
    answered = np.stack([t["found"].to_numpy(dtype=bool) for t in aligned.values()], 1)
    shared, asked = common_rows(answered, enough=ENOUGH)
    good = {m: t for (m, t), a in zip(aligned.items(), asked, strict=True) if a}
    if len(good) < 2:
        return pd.DataFrame(columns=names)
    metrics = [m for m in COMMON if all(m in t for t in good.values())]
    lines = []
    for method, table in good.items():
        own = table["found"].to_numpy(dtype=bool)
        line: dict[str, Any] = {
            "method": method, "rows": len(rows), "own": int(own.sum()),
            "common": int(shared.sum()),
        }  # fmt: skip
        for metric in metrics:
            values = table[metric].to_numpy(dtype=float)
            line |= {f"{metric}_own": np.nansum(values[own]), metric: np.nansum(values[shared])}
        lines.append(line)
    return pd.DataFrame(lines)


def pool_common(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Bring folds together: sums over rows become means over rows.

    Args:
        table: lines of `common_table` with the columns `by` added.
        by: what is kept apart, besides the method.
    """
    if table.empty:
        return table
    sums = table.drop(columns=[c for c in ("fold",) if c in table])
    out = sums.groupby([*by, "method"], sort=False).sum(min_count=1).reset_index()
    for name in [m for m in COMMON if m in out]:
        out[f"{name}_own"] /= out["own"]
        out[name] = out[name] / out["common"].where(out["common"] > 0)
    return out


# -- a run -----------------------------------------------------------------------------------


def compare_rows(
    store: Store, plan: Plan, *, keep: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compare all methods row by row, block by block.

    What was computed before is read from the store as long as no cell has changed.

    Args:
        store: of the run.
        plan: of the run.
        keep: write what is computed now into the store.

    Returns:
        Pairs (`PAIR_COLUMNS`), and sums on common rows: paradigm, dataset, model, fold and the
        columns of `common_table`.
    """
    made = [_block(store, plan, b, keep) for b in plan.blocks]
    pairs = [p for p, _ in made if len(p)]
    common = [c for _, c in made if len(c)]
    about = ["paradigm", "dataset", "model", "fold", "method", "rows", "own", "common"]
    return (
        pd.concat(pairs, ignore_index=True)[PAIR_COLUMNS]
        if pairs
        else pd.DataFrame(columns=PAIR_COLUMNS),
        pd.concat(common, ignore_index=True) if common else pd.DataFrame(columns=about),
    )


def compare_finished(store: Store, plan: Plan) -> None:
    """Compare the methods of every block whose cells are all done or refused, and keep it.

    The table of the run then finds it, instead of comparing all blocks one after the other.
    """
    for block in plan.blocks:
        if all(_state(store, cell) != "missing" for cell in block.cells):
            _block(store, plan, block, keep=True)


def _block(
    store: Store, plan: Plan, block: Block, keep: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    states = [(c.method.label, c.score_key, _state(store, c)) for c in block.cells]
    key = key_of("pairs", VERSION, states)
    folder = store.folder("pairs", key)
    if store.has("pairs", key) and store.intact("pairs", key):
        return tuple(pd.read_parquet(folder / f"{n}.parquet") for n in ("pairs", "common"))  # type: ignore[return-value]
    about: dict[str, Any] = {"dataset": block.dataset, "model": block.model, "fold": block.fold}
    pairs, common = [], []
    for paradigms, tables in row_tables(store, plan, block):
        pairs.append(pair_table(tables).assign(**about))
        for paradigm in dict.fromkeys(paradigms.values()):
            same = {m: t for m, t in tables.items() if paradigms[m] == paradigm}
            common.append(common_table(same).assign(paradigm=paradigm, **about))
    out = tuple(
        pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        for parts in (pairs, common)
    )
    if keep and len(out[0]):
        with store.writing("pairs", key, about) as place:
            for name, table in zip(("pairs", "common"), out, strict=True):
                table.to_parquet(place / f"{name}.parquet", index=False, compression="zstd")
    return out  # type: ignore[return-value]


def _state(store: Store, cell: Cell) -> str:
    if store.has("score", cell.score_key):
        return "done"
    return "failed" if store.failure(cell.score_key) is not None else "missing"


def write_cell(folder: Path, scores: Any, result: ExplanationResult, device: str = "cpu") -> None:
    """Write the scores of a cell, and apart from them its times.

    Args:
        folder: of the entry that is being written.
        scores: `cel.metrics.Scores` of the cell.
        result: what was scored.
        device: where it was found; times of a GPU are marked as such.
    """
    values = {name: _number(scores[name]) for name in scores}
    timed = {s.name for s in scores.scores if s.metric.unit in ("s", "ms")}
    document = {
        "rows": len(result),
        "status": result.counts(),
        "scores": {n: v for n, v in values.items() if n not in timed},
        "reasons": dict(scores.reasons) | ({} if device == "cpu" else _marked(timed, device)),
    }
    if result.proof is not None:
        document["proof"] = {k: n for k, n in result.proofs().items() if k != "infeasible"}
    (folder / "scores.json").write_text(json.dumps(document, sort_keys=True))
    (folder / "times.json").write_text(json.dumps({n: values[n] for n in sorted(timed)}))


def _marked(timed: Iterable[str], device: str) -> dict[str, str]:
    return dict.fromkeys(timed, f"on {device}, not on a core")


def _number(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
