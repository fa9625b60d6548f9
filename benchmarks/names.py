"""Print or write the table of names of docs/methods.md: what each stands for, and what it does.

    python benchmarks/names.py
    python benchmarks/names.py --write

Settings come from `cel.cf_methods.variants`, numbers from the shipped scores of `standard`:
means over models and folds, then over its classification datasets.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cel.benchmark.shipped import shipped_table
from cel.cf_methods.variants import VARIANTS

SHOWN = {
    "success": ("answered", 2),
    "gower": ("distance", 3),
    "sparsity": ("changed", 2),
    "density_percentile": ("density percentile", 2),
    "cpu_ms_per_row": ("CPU ms per row", 1),
}


def effects():
    """{metric: {name: mean}} over the datasets that local methods of classification have."""
    scores = shipped_table("standard")
    places = set(scores.loc[scores["method"] == "cadex", "dataset"])
    wanted = scores[scores["metric"].isin(SHOWN) & scores["dataset"].isin(places)]
    means = wanted.groupby(["metric", "method", "dataset"])["value"].mean()
    means = means.groupby(["metric", "method"]).mean()
    return {m: means[m].to_dict() for m in SHOWN if m in means}


def lines():
    table = effects()
    head = ["name", "", "what it does", "settings", "departs from the publication"]
    head += [title for title, _ in SHOWN.values()]
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, v in VARIANTS.items():
        settings = ", ".join(f"{k}={x!r}" for k, x in v.params.items())
        cells = [f"`{name}`", "published" if v.published else "ours", v.what]
        cells += [f"`{settings}`" if settings else "defaults", v.departs]
        for metric, (_, digits) in SHOWN.items():
            value = table.get(metric, {}).get(name)
            cells.append("" if value is None else f"{value:.{digits}f}")
        out.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return out


def write():
    """Put the table in the place of the one that starts with the same head."""
    page = Path(__file__).parents[1] / "docs" / "methods.md"
    told, table = page.read_text(encoding="utf-8").split("\n"), lines()
    start = next(i for i, line in enumerate(told) if line.startswith("| name |"))
    end = next(i for i in range(start, len(told)) if not told[i].startswith("|"))
    page.write_text("\n".join([*told[:start], *table, *told[end:]]), encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    else:
        print("\n".join(lines()))
