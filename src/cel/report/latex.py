"""Score tables as LaTeX."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cel.metrics import METRICS

__all__ = ["escape", "shown", "to_latex"]

DEFAULT = ["coverage", "validity", "sparsity", "l2_hamming", "log_density", "lof", "time_s"]


def escape(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    return text.replace("\\", "").replace("_", r"\_").replace("%", r"\%").replace("&", r"\&")


def shown(mean: float, std: float) -> str:
    """Return mean and standard deviation with as many digits as they deserve.

    >>> shown(0.123, 0.0456)
    '0.12±0.05'
    >>> shown(float("nan"), 0.0)
    '–'
    """
    if not np.isfinite(mean):
        return "–"
    digits = 2 if abs(mean) < 100 else 0
    if abs(mean) >= 1e5:
        return f"{mean:.1e}"
    spread = f"±{std:.{digits}f}" if np.isfinite(std) else ""
    return f"{mean:.{digits}f}{spread}"


def _arrow(metric: str) -> str:
    better = METRICS.get(metric).better if metric in METRICS else "none"
    return {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}.get(better, "")


def to_latex(summary: pd.DataFrame, metrics: list[str] | None = None, caption: str = "") -> str:
    """Return a table of datasets and methods against metrics, one per model.

    Args:
        summary: as returned by `cel.benchmark.summarise`.
        metrics: columns; by default the usual ones that are there.
        caption: printed above each table, followed by the model.
    """
    columns = [m for m in (metrics or DEFAULT) if m in set(summary["metric"])]
    parts = [_one(part, columns, f"{caption} {model}".strip())
             for model, part in summary.groupby("model")]  # fmt: skip
    return "\n".join(parts)


def _one(summary: pd.DataFrame, metrics: list[str], caption: str) -> str:
    head = " & ".join(["", "method", *(escape(m) + _arrow(m) for m in metrics)])
    lines = [
        r"\begin{table}[ht]\centering\scriptsize",
        rf"\caption{{{escape(caption)}}}",
        rf"\begin{{tabular}}{{ll{'r' * len(metrics)}}}",
        r"\toprule",
        head + r" \\",
    ]
    for dataset, part in summary.groupby("dataset"):
        lines.append(r"\midrule")
        best = {m: _best(part[part["metric"] == m], m) for m in metrics}
        for i, (method, rows) in enumerate(part.groupby("method")):
            values = rows.set_index("metric")
            cells = [_cell(values, m, best[m], str(method)) for m in metrics]
            name = escape(str(dataset)) if i == 0 else ""
            lines.append(" & ".join([name, escape(str(method)), *cells]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)


def _best(rows: pd.DataFrame, metric: str) -> set[str]:
    better = METRICS.get(metric).better if metric in METRICS else "none"
    known = rows.dropna(subset=["mean"])
    if better == "none" or known.empty:
        return set()
    rounded = known["mean"].round(2)
    top = rounded.max() if better == "higher" else rounded.min()
    return set(known["method"][rounded == top])


def _cell(values: pd.DataFrame, metric: str, best: set[str], method: str) -> str:
    if metric not in values.index:
        return "--"
    mean, std = float(values.loc[metric, "mean"]), float(values.loc[metric, "std"])  # type: ignore[arg-type]
    text = shown(mean, std).replace("±", r"$\pm$").replace("–", "--")
    return rf"\textbf{{{text}}}" if method in best else text
