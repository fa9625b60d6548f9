"""The paper's tables as LaTeX, in its layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from cel.report.catalogue import dataset_title, method_title, metric_info
from cel.report.latex import escape, shown
from cel.report.tables import Entry, Line, PaperTable

__all__ = ["tables_to_latex"]

_ARROWS = {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}


def tables_to_latex(tables: Iterable[PaperTable]) -> str:
    """Return one `table*` per table, ready to be included; needs booktabs and multirow."""
    head = "% Needs: booktabs, multirow. Mean and sample standard deviation over folds.\n"
    return head + "\n".join(_one(t) for t in tables)


def _one(table: PaperTable) -> str:
    titles = [
        escape(title) + _ARROWS.get(metric_info(m).better, "")
        for title, m in zip(table.titles, table.metrics, strict=True)
    ]
    lines = [
        r"\begin{table*}[ht]",
        r"\centering\scriptsize",
        rf"\caption{{{escape(table.caption)}.}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{l|l|{'r' * len(titles)}}}",
        r"\toprule",
        " & ".join(["", "Method", *titles]) + r" \\",
    ]
    kept = [line for line in table.lines if line.printed]
    for dataset, group in groupby(kept, key=lambda line: line.dataset):
        lines += [r"\midrule", *_block(dataset, list(group))]
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""]
    return "\n".join(lines)


def _block(dataset: str, group: Sequence[Line]) -> list[str]:
    name = rf"\multirow{{{len(group)}}}{{*}}{{{escape(dataset_title(dataset))}}}"
    out = []
    for i, line in enumerate(group):
        cells = [_cell(e) for e in line.entries]
        first = name if i == 0 else ""
        out.append(" & ".join([first, escape(method_title(line.method)), *cells]) + r" \\")
    return out


def _cell(entry: Entry) -> str:
    if entry.state not in ("done", "partial"):
        return rf"\emph{{{escape(entry.state)}}}"
    mean = 0.0 if abs(entry.mean) < 0.005 else entry.mean  # prints 0.00 and not -0.00
    text = shown(mean, entry.std).replace("±", r"\pm ")
    if entry.state == "partial":
        return f"${text}^*$"
    return rf"$\mathbf{{{text}}}$" if entry.best else f"${text}$"
