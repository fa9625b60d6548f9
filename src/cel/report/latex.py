"""Score tables as LaTeX."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd

from cel.report.appearance import (
    dataset_title,
    method_order,
    method_title,
    metric_info,
    model_title,
)
from cel.text import latex

__all__ = ["HEAD", "escape", "number", "shown", "to_latex"]

HEAD = (
    "% Needs in the preamble: \\usepackage{booktabs,multirow,graphicx}\n"
    "% Numbers are mean and sample standard deviation over folds; the deviation has two digits,\n"
    "% the mean as many decimals. Bold: the best mean of a dataset and those that round to it.\n"
    "% Distances, sparsity and plausibility are means over the rows found, whose share stands in\n"
    "% the column Valid., Found or Success.\n"
)
DEFAULT = ["success", "mae", "sparsity", "l2_hamming", "log_density", "lof", "ms_per_row"]
MOST_LINES = 44  # of a table that fits on a page
_ARROWS = {"higher": r"\,$\uparrow$", "lower": r"\,$\downarrow$"}


def escape(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    >>> escape("50% of a_b")
    '50\\% of a\\_b'
    """
    return latex(" ".join(str(text).split()))


def shown(mean: float, std: float) -> str:
    """Return mean and standard deviation with as many digits as they deserve.

    The deviation gets two digits, the mean as many decimals. Without a deviation the mean gets
    three digits.

    >>> shown(0.12345, 0.00456)
    '0.1235±0.0046'
    >>> shown(1234.5, 87.6)
    '1234±88'
    >>> shown(-0.0001, 0.01)
    '0.000±0.010'
    >>> shown(float("nan"), 0.0)
    '–'
    """
    if not np.isfinite(mean):
        return "–"
    digits = _decimals(mean, std)
    if abs(mean) >= 1e6:
        return f"{mean:.1e}"
    text = f"{mean:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text + (f"±{std:.{digits}f}" if np.isfinite(std) else "")


def _decimals(mean: float, std: float) -> int:
    """Decimals so that the deviation has two digits; without one, the mean three."""
    if np.isfinite(std) and std > 0:
        return int(np.clip(1 - math.floor(math.log10(std)), 0, 4))
    if mean == 0 or float(mean).is_integer():
        return 2 if abs(mean) < 100 else 0
    return int(np.clip(2 - math.floor(math.log10(abs(mean))), 0, 4))


def number(mean: float, std: float, *, best: bool = False) -> str:
    r"""Return a number for math mode, with a true minus; only the mean of the best is bold.

    >>> number(-0.5, 0.011, best=True)
    '$\\mathbf{-0.500} \\pm 0.011$'
    >>> number(float("nan"), 0.0)
    '--'
    """
    text = shown(mean, std)
    if text == "–":
        return "--"
    value, sign, spread = text.partition("±")
    if "e" in value:
        digits, _, power = value.partition("e")
        value = rf"{digits}\cdot 10^{{{int(power)}}}"
    value = rf"\mathbf{{{value}}}" if best else value
    return f"${value} \\pm {spread}$" if sign else f"${value}$"


def to_latex(
    summary: pd.DataFrame, metrics: list[str] | None = None, caption: str = "", suite: str = ""
) -> str:
    """Return a table of datasets and methods against metrics, one per model and page.

    Args:
        summary: as returned by `cel.benchmark.summarise`.
        metrics: columns; by default the usual ones that are there.
        caption: printed above each table, followed by the model.
        suite: name of the suite, for captions without a text and for labels.
    """
    known = set(summary["metric"])
    title = caption or (f"Suite {suite}" if suite else "Scores")
    parts = []
    for model, part in summary.groupby("model"):
        filled = part.dropna(subset=["mean"])["metric"]
        columns = [m for m in (metrics or DEFAULT) if m in known and (metrics or m in set(filled))]
        if "success" in known - set(columns) and any(
            metric_info(m).rows == "found" for m in columns
        ):
            columns.insert(0, "success")  # a mean over found rows with the share that it covers
        name = f"{title}, {model_title(str(model))}"
        label = re.sub(r"[^a-z0-9]+", "-", f"{suite or 'scores'}-{model}".lower()).strip("-")
        parts.append(_one(part, columns, name, label))
    return HEAD + "\n".join(parts)


def _one(summary: pd.DataFrame, metrics: list[str], caption: str, label: str) -> str:
    """The table of one model, as many parts as it takes pages."""
    titles = [escape(metric_info(m).title) + _ARROWS.get(metric_info(m).better, "")
              for m in metrics]  # fmt: skip
    folds = int(summary["folds"].max())
    over = f"mean and sample standard deviation over {folds} folds" if folds > 1 else "one fold"
    pages = _pages([_block(str(d), part, metrics) for d, part in summary.groupby("dataset")])
    out = []
    for number, blocks in enumerate(pages, start=1):
        part = f", part {number} of {len(pages)}" if len(pages) > 1 else ""
        name = label if number == 1 else f"{label}-{number}"
        out += [
            r"\begin{table*}[ht]",
            r"\centering\small",
            rf"\caption{{{escape(caption)}: {over}{part}.}}",
            rf"\label{{tab:{name}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{ll{'r' * len(metrics)}}}",
            r"\toprule",
            " & ".join(["Dataset", "Method", *titles]) + r" \\",
        ]
        for dataset, rows in blocks:
            out += [r"\midrule", f"{dataset} & {rows[0]}", *(f" & {row}" for row in rows[1:])]
        out += [r"\bottomrule", r"\end{tabular}}", r"\end{table*}", ""]
    return "\n".join(out)


def _block(dataset: str, part: pd.DataFrame, metrics: list[str]) -> tuple[str, list[str]]:
    """Title of a dataset and its lines, each without the column of the dataset."""
    best = {m: _best(part[part["metric"] == m], m) for m in metrics}
    by_method = {str(m): rows for m, rows in part.groupby("method")}
    lines = []
    for method in method_order(by_method):
        values = by_method[method].set_index("metric")
        cells = [_cell(values, m, method in best[m]) for m in metrics]
        lines.append(" & ".join([escape(method_title(method)), *cells]) + r" \\")
    return escape(dataset_title(dataset)), lines


def _pages(blocks: list[tuple[str, list[str]]]) -> list[list[tuple[str, list[str]]]]:
    """Blocks of lines on pages of at most `MOST_LINES`; only a block longer than that is cut.

    >>> [[(d, len(x)) for d, x in page] for page in _pages([("a", ["-"] * 30), ("b", ["-"] * 60)])]
    [[('a', 30)], [('b', 44)], [('b', 16)]]
    """
    pages: list[list[tuple[str, list[str]]]] = [[]]
    for dataset, lines in blocks:
        for start in range(0, len(lines), MOST_LINES):
            piece = lines[start : start + MOST_LINES]
            if pages[-1] and sum(len(x) for _, x in pages[-1]) + len(piece) > MOST_LINES:
                pages.append([])
            pages[-1].append((dataset, piece))
    return pages


def _best(rows: pd.DataFrame, metric: str) -> set[str]:
    """Methods whose mean is best, and those that cannot be told from it as printed.

    Nobody is best where all are alike.
    """
    better = metric_info(metric).better
    known = rows.dropna(subset=["mean"])
    if better == "none" or len(known) < 2:
        return set()
    top = known["mean"].max() if better == "higher" else known["mean"].min()
    line = known[known["mean"] == top].iloc[0]
    digits = _decimals(float(line["mean"]), float(line["std"]))
    same = known["method"][known["mean"].round(digits) == round(float(top), digits)]
    return set() if len(same) == len(known) else set(same)


def _cell(values: pd.DataFrame, metric: str, best: bool) -> str:
    if metric not in values.index:
        return "--"
    mean, std = float(values.loc[metric, "mean"]), float(values.loc[metric, "std"])  # type: ignore[arg-type]
    return number(mean, std, best=best)
