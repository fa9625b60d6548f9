"""Write what comes with the package, from one or several runs of a suite.

    python benchmarks/baselines.py quick runs/quick
    python benchmarks/baselines.py paper runs/paper runs/paper-large
    python benchmarks/baselines.py standard shipped runs/standard --without yacht
    python benchmarks/baselines.py standard shipped runs/standard --line rbr

Sources are folders of runs, exported tables of scores, or `shipped`, which is what comes with the
package now; where two have the same cell, the later one counts. `--without` leaves out datasets
of the last source, e.g. those that a run has not finished. `--line` takes these lines alone from
the last source and compares them with the shipped rows of all others, which must be all rows of
the suite. From folders also come the comparisons of rows (who beats whom how often, means on
common rows, values of the first rows of every fold), the scores of experiments, why cells have no
scores, and which version and models the others belong to. `benchmarks/complete.py` tells what is
still missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from cel.benchmark import collect, open_run
from cel.benchmark.experiments import experiment_scores
from cel.benchmark.origins import origins
from cel.benchmark.row_scores import common_table, compare_rows, pair_table, pool_common
from cel.benchmark.score_tables import cell_table
from cel.benchmark.shipped import KINDS, refused_cells, sample_rows, shipped_path

CELL = ["dataset", "model", "method", "fold"]
EXPERIMENT = ["experiment", *CELL]
PLACE = ["dataset", "model"]
ROWS = {"quick": 200}  # of a fold, to compare a new method with
FEW_ROWS = 40


def latest(parts, keys):
    """One table; of lines with the same keys those of the later source count."""
    filled = [p.assign(source=i) for i, p in enumerate(parts) if len(p)]
    if not filled:
        return pd.DataFrame()
    table = pd.concat(filled, ignore_index=True)
    last = table.groupby(keys)["source"].transform("max")
    return table[table["source"] == last].drop(columns="source").reset_index(drop=True)


def tables_of(suite, source):
    """{kind: table} of one source."""
    if source == "shipped":
        there = {kind: shipped_path(suite, kind) for kind in KINDS}
        return {kind: pd.read_parquet(path) for kind, path in there.items() if path.exists()}
    if not Path(source).is_dir():
        return {"scores": pd.read_parquet(source)}
    store, plan = open_run(source)
    pairs, common = compare_rows(store, plan)
    made = {
        "scores": collect(store, plan),
        "pairs": _over_folds(pairs),
        "common": pool_common(common, ["paradigm", *PLACE]),
        "rows": sample_rows(store, plan, limit=ROWS.get(suite, FEW_ROWS)),
        "blank": refused_cells(cell_table(store, plan)),
        "origins": origins(store, plan),
    }
    if suite == "paper":
        made["experiments"] = experiment_scores(store, plan)
    return made


def unscored(blank, scores):
    """Of the cells that were refused, those that no source has scores of."""
    if blank.empty:
        return blank
    there = set(scores[CELL].drop_duplicates().itertuples(index=False, name=None))
    return blank[[c not in there for c in blank[CELL].itertuples(index=False, name=None)]]


def _over_folds(pairs):
    """Means over folds: one line per dataset, model, metric and pair."""
    if pairs.empty:
        return pairs
    keys = [*PLACE, "metric", "a", "b"]
    out = pairs.groupby(keys, sort=True).agg(win=("win", "mean"), rows=("rows", "sum"))
    return out.reset_index().assign(fold=-1).astype({"win": "float32"})


def with_lines(old, new, lines):
    """Return shipped tables in which some lines are those of a run.

    Args:
        old: {kind: table}, with all rows of the suite.
        new: {kind: table} of the run.
        lines: labels that are taken from the run.
    """
    mine = {k: t[t["method"].isin(lines)] for k, t in new.items() if "method" in t}
    out = {**old}
    keys = {"scores": CELL, "rows": CELL, "experiments": EXPERIMENT, "origins": CELL}
    for kind in keys.keys() & old.keys() & mine.keys():
        out[kind] = latest([old[kind], mine[kind]], keys[kind])
    _all_rows_are_there(out["scores"], out["rows"])
    pairs, common = [], []
    for (dataset, model, fold), part in out["rows"].groupby([*PLACE, "fold"]):
        about = {"dataset": dataset, "model": model, "fold": fold}
        order = [m for m in dict.fromkeys(old["rows"]["method"]) if m in set(part["method"])]
        tables = {m: _by_row(part[part["method"] == m]) for m in order}
        pairs.append(pair_table(tables).assign(**about))
        for paradigm, names in old["common"].groupby("paradigm")["method"].unique().items():
            same = {m: t for m, t in tables.items() if m in names}
            if set(lines) & set(same):
                common.append(common_table(same).assign(paradigm=paradigm, **about))
    out["pairs"] = _put(old["pairs"], _over_folds(pd.concat(pairs)), ["metric", "a", "b"], lines)
    pooled = pool_common(pd.concat(common), ["paradigm", *PLACE])
    out["common"] = _put(old["common"], pooled, ["paradigm", "method"], lines)
    return out


def _all_rows_are_there(scores, rows):
    told = scores[scores["metric"] == "rows"].set_index(CELL)["value"]
    there = rows.groupby(CELL).size().reindex(told.index)
    if not (there == told).all():
        raise SystemExit(f"rows are missing: {there[there != told].head().to_dict()}")


def _by_row(part):
    return part.set_index("row").drop(columns=CELL)


def _put(old, new, keys, lines):
    """The old table with the values of `new` where one of `lines` is concerned, in its order."""
    keys = [*PLACE, *keys]
    concerned = old[[k for k in keys if k in ("a", "b", "method")]].isin(lines).any(axis=1)
    values = [c for c in old if c not in keys]
    fresh = old[keys].merge(new[[*keys, *values]], on=keys, how="left")
    if fresh[values[0]].isna()[concerned.to_numpy()].any():
        raise SystemExit("the run has not all that is shipped of these lines")
    out = old.copy()
    for name in values:
        out[name] = old[name].where(~concerned.to_numpy(), fresh[name].to_numpy())
    return out.astype(old.dtypes.to_dict())


def write(suite, kind, table):
    path = shipped_path(suite, kind)
    path.parent.mkdir(exist_ok=True)
    table.to_parquet(path, index=False, compression="zstd")
    size = path.stat().st_size / 1024
    print(f"{kind}: {len(table)} lines, {size:.0f} kB in {path.parent.name}/{path.name}")


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("suite")
    asked.add_argument("sources", nargs="+")
    asked.add_argument("--without", action="append", default=[], metavar="DATASET")
    asked.add_argument("--line", action="append", default=[], metavar="LABEL")
    given = asked.parse_args()
    suite = given.suite
    made = [tables_of(suite, s) for s in given.sources]
    if given.line:
        old, new = made
        made = [with_lines(old, new, given.line)]
    made[-1] = {k: t[~t["dataset"].isin(given.without)] for k, t in made[-1].items()}
    keys = {
        "blank": CELL,
        "scores": CELL,
        "rows": CELL,
        "experiments": EXPERIMENT,
        "origins": CELL,
    }
    tables = {
        kind: latest([m[kind] for m in made if kind in m], keys.get(kind, PLACE)) for kind in KINDS
    }
    scores = tables["scores"].sort_values([*CELL, "metric"], ignore_index=True)
    tables |= {"scores": scores, "blank": unscored(tables["blank"], scores)}
    print(scores.groupby(CELL).ngroups, "cells")
    print(scores.groupby(PLACE)["method"].nunique().unstack().to_string())
    for kind, table in tables.items():
        if len(table):
            write(suite, kind, table)
        elif kind == "blank":
            shipped_path(suite, kind).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
