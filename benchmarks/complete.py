"""Which cells of a suite have neither shipped scores nor a reason? Ends with 1 if there are any.

    python benchmarks/complete.py                # paper and standard
    python benchmarks/complete.py standard

A cell is a line of a suite on one (dataset, fold, model). It is blank without a reason if the
shipped tables have no scores of it and no method refused it; a value is blank without a reason if
its cell has scores and this one is no number, and nothing says why.
"""

from __future__ import annotations

import sys

import pandas as pd

from cel.benchmark.plan import make_plan
from cel.benchmark.shipped import cell_states, shipped_table
from cel.benchmark.spec import load_suite

SUITES = ("paper", "standard")


def holes(cells: pd.DataFrame) -> pd.DataFrame:
    """Blank cells without a reason: one line per line of the suite, one column per dataset."""
    blank = cells[(cells["state"] != "done") & (cells["reason"] == "")]
    table = pd.crosstab(blank["method"], blank["dataset"])
    return table.assign(all=table.sum(axis=1)) if len(table) else table


def silent_values(scores: pd.DataFrame) -> pd.DataFrame:
    """Values of scored cells that are no numbers, and nothing says why: counts by metric."""
    silent = scores[scores["value"].isna() & (scores["reason"] == "")]
    return pd.crosstab(silent["metric"], silent["dataset"])


def told(suite: str, scores: pd.DataFrame, blank: pd.DataFrame) -> tuple[str, int]:
    """The text about a suite, and how many blanks without a reason it has."""
    cells = cell_states(make_plan(load_suite(suite)), scores, blank)
    done = int((cells["state"] == "done").sum())
    why = cells[(cells["state"] != "done") & (cells["reason"] != "")]
    found, values = holes(cells), silent_values(scores)
    count = len(cells) - done - len(why)
    out = [
        f"{suite}: {len(cells)} cells, {done} with scores, {len(why)} without but with a reason",
        f"{suite}: {count} blank cells without a reason",
        f"{suite}: {int(values.to_numpy().sum())} blank values without a reason",
    ]
    for (state, reason), part in why.groupby(["state", "reason"]):
        lines = ", ".join(sorted(set(part["method"])))
        out.append(f"  {len(part)} {state}: {reason} ({lines})")
    out += [t.to_string() for t in (found, values) if len(t)]
    return "\n".join(out), count + int(values.to_numpy().sum())


def main() -> None:
    asked = sys.argv[1:] or SUITES
    results = [told(s, shipped_table(s), shipped_table(s, "blank")) for s in asked]
    print("\n\n".join(text for text, _ in results))
    sys.exit(any(count for _, count in results))


if __name__ == "__main__":
    main()
