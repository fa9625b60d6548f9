"""The paper's tables as LaTeX, in its layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from cel.report.appearance import dataset_title, method_title, metric_info
from cel.report.latex import HEAD, escape, number
from cel.report.paper_tables import Entry, Line, PaperTable

__all__ = ["tables_to_latex"]

_ARROWS = {"higher": r"\,$\uparrow$", "lower": r"\,$\downarrow$"}


def tables_to_latex(tables: Iterable[PaperTable]) -> str:
    """Return one `table*` per table, ready to be included; the first lines say what it needs."""
    return HEAD + "% A star: fewer folds than planned.\n" + "\n".join(_one(t) for t in tables)


def _one(table: PaperTable) -> str:
    titles = [
        escape(title) + _ARROWS.get(metric_info(m).better, "")
        for title, m in zip(table.titles, table.metrics, strict=True)
    ]
    lines = [
        r"\begin{table*}[ht]",
        r"\centering\small",
        rf"\caption{{{escape(table.caption)}.}}",
        rf"\label{{tab:{table.name.replace('_', '-')}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{ll{'r' * len(titles)}}}",
        r"\toprule",
        " & ".join(["Dataset", "Method", *titles]) + r" \\",
    ]
    kept = [line for line in table.lines if line.printed]
    for dataset, group in groupby(kept, key=lambda line: line.dataset):
        lines += [r"\midrule", *_block(dataset, list(group))]
    lines += [r"\bottomrule", r"\end{tabular}}", r"\end{table*}", ""]
    return "\n".join(lines)


def _block(dataset: str, group: Sequence[Line]) -> list[str]:
    name = rf"\multirow{{{len(group)}}}{{*}}{{{escape(dataset_title(dataset))}}}"
    alike = [_all_best([line.entries[i] for line in group]) for i in range(len(group[0].entries))]
    out = []
    for i, line in enumerate(group):
        cells = [_cell(e, alike[j]) for j, e in enumerate(line.entries)]
        first = name if i == 0 else ""
        out.append(" & ".join([first, escape(method_title(line.method)), *cells]) + r" \\")
    return out


def _all_best(entries: Sequence[Entry]) -> bool:
    """Whether bold would tell nothing: every number of the column has it."""
    there = [e for e in entries if e.state in ("done", "partial")]
    return len(there) > 1 and all(e.best for e in there)


def _cell(entry: Entry, alike: bool) -> str:
    if entry.state not in ("done", "partial"):
        return rf"\emph{{{escape(entry.state)}}}"
    text = number(entry.mean, entry.std, best=entry.best and not alike)
    return f"{text}$^*$" if entry.state == "partial" else text
