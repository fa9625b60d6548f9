"""Print or write what docs/methods.md says in numbers: the table of names, and what each costs.

    python benchmarks/names.py
    python benchmarks/names.py --write

Settings come from `cel.cf_methods.variants`, numbers of the table from the shipped scores of
`standard`: means over models and folds, then over its classification datasets. Below the heading
of each method stand its picture (`pictures.py`) and its times: those of `standard`, or of `quick`
for names that `standard` has no scores of yet.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cel.benchmark.shipped import shipped_table
from cel.cf_methods.variants import VARIANTS
from sketches import SKETCHES

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"
HEADING = re.compile(r"^### .*\(`(\w+)`.*$", re.MULTILINE)
MARKS = ("<!-- shown -->", "<!-- end of shown -->")

SHOWN = {
    "success": ("answered", 2),
    "gower": ("distance", 3),
    "sparsity": ("changed", 2),
    "density_percentile": ("density percentile", 2),
    "cpu_ms_per_row": ("CPU ms per row", 1),
}


def effects():
    """{metric: {name: mean}} over the datasets of classification, and on how many each name is."""
    scores = shipped_table("standard")
    places = set(scores.loc[scores["method"] == "cadex", "dataset"])
    wanted = scores[scores["metric"].isin(SHOWN) & scores["dataset"].isin(places)]
    means = wanted.groupby(["metric", "method", "dataset"])["value"].mean()
    counts = wanted.groupby("method")["dataset"].nunique()
    short = {m: f" ({n} of {len(places)})" for m, n in counts.items() if n < len(places)}
    means = means.groupby(["metric", "method"]).mean()
    return {m: means[m].to_dict() for m in SHOWN if m in means}, short


def lines():
    table, short = effects()
    head = ["name", "", "what it does", "settings", "departs from the publication"]
    head += [title for title, _ in SHOWN.values()]
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, v in VARIANTS.items():
        settings = ", ".join(f"{k}={x!r}" for k, x in v.params.items())
        cells = [f"`{name}`", "published" if v.published else "ours", v.what]
        cells += [f"`{settings}`" if settings else "defaults", v.departs]
        for metric, (_, digits) in SHOWN.items():
            value = table.get(metric, {}).get(name)
            told = "" if value is None else f"{value:.{digits}f}"
            cells.append(told + short.get(name, "") if metric == "success" else told)
        out.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return out


def times():
    """{name: (suite, {dataset: CPU ms per row}, CPU seconds of a fit)} of the shipped scores."""
    out = {}
    for suite in ("quick", "standard"):
        scores = shipped_table(suite)
        table = scores.groupby(["metric", "method", "dataset"])["value"].mean()
        fit = table["time_fit_s"].groupby("method").median()
        for name, rows in table["cpu_ms_per_row"].groupby("method"):
            out[name] = suite, rows.droplevel("method").to_dict(), float(fit[name])
    return out


def measured(method, known):
    """Return a sentence about what the names of a method took."""
    names = [method, *(n for n, v in VARIANTS.items() if v.method == method and n != method)]
    said = []
    for name in names:
        if name in known:
            suite, rows, fit = known[name]
            low, high = min(rows.values()), max(rows.values())
            took = f"{short(low)} to {short(high)} ms a row, fit {short(fit)} s"
            said.append(f"`{name}` {took} (`{suite}`)")
    return f"*Measured:* {'; '.join(said) if said else 'no shipped scores yet'}."


def short(value):
    """Return a number with two digits, and no more than two decimals."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def blocks():
    """{method: its picture and its times, as they stand below its heading}."""
    known = times()
    return {
        name: f"{MARKS[0]}\n![{sketch.told}](images/methods/{name}.png)\n\n"
        f"{measured(name, known)}\n{MARKS[1]}"
        for name, sketch in SKETCHES.items()
    }


def with_blocks(text):
    """Return the page with a block below the heading of every method, old ones replaced."""
    between = re.compile(re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1]) + "\n\n", re.DOTALL)
    known = blocks()
    return HEADING.sub(
        lambda found: f"{found[0]}\n\n{known[found[1]]}" if found[1] in known else found[0],
        between.sub("", text),
    )


def write():
    """Put the table in the place of the one that starts with the same head, and all blocks."""
    told, table = PAGE.read_text(encoding="utf-8").split("\n"), lines()
    start = next(i for i, line in enumerate(told) if line.startswith("| name |"))
    end = next(i for i in range(start, len(told)) if not told[i].startswith("|"))
    text = "\n".join([*told[:start], *table, *told[end:]])
    PAGE.write_text(with_blocks(text), encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    else:
        print("\n".join(lines()))
