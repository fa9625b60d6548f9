"""The paper's four figures: every value as a point, per dataset and metric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import MissingDependencyError
from cel.paths import replacing
from cel.report.appearance import (
    dataset_title,
    is_guest,
    method_colours,
    method_order,
    method_symbols,
    method_title,
    metric_info,
)
from cel.text import visible

__all__ = ["FIGURES", "FigureSpec", "figure_parts", "write_figures"]

_CLASSIFICATION = (
    "digits", "wine", "heloc", "moons", "give_me_some_credit", "credit_default", "adult",
)  # fmt: skip
_METRICS = (
    ("success",), ("l2_hamming_encoded", "l2_hamming"), ("sparsity_encoded", "sparsity"),
    ("log_density",), ("time_s",),
)  # fmt: skip


WIDTH = 7.0  # inches, the text width of most pages in two columns
FILES: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
    "png": {"dpi": 300},
}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "cel", "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 7,
    "axes.linewidth": 0.5,
}  # fmt: skip
MARKERS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "star": "*",
    "hexagon": "h", "x": "X", "triangle-down": "v",
}  # fmt: skip


@dataclass(frozen=True)
class FigureSpec:
    """A printed figure: rows are datasets, columns are metrics, points are methods."""

    name: str
    caption: str
    paradigm: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    metrics: tuple[tuple[str, ...], ...]


FIGURES = (
    FigureSpec(
        "local", "Local counterfactual methods", "local", _CLASSIFICATION,
        ("artelt", "dice", "cchvae", "ppcef", "cegp", "cadex", "sace"), _METRICS,
    ),
    FigureSpec(
        "regression", "Counterfactual methods on regression tasks", "regression",
        ("concrete", "diabetes", "synthetic"), ("cearm", "wachter"),
        (("mae",), *_METRICS[2:]),
    ),
    FigureSpec(
        "global", "Global counterfactual methods", "global", _CLASSIFICATION,
        ("ares", "globe_ce", "glance_global"), _METRICS,
    ),
    FigureSpec(
        "group", "Group-wise counterfactual methods", "group", _CLASSIFICATION,
        ("glance", "tcrex"), _METRICS,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """What of a figure a run can fill; the `all_` lists go beyond the printed selection."""

    datasets: list[str]
    methods: list[str]
    metrics: list[str]
    all_datasets: list[str]
    all_methods: list[str]


def figure_parts(spec: FigureSpec, scores: pd.DataFrame) -> Parts | None:
    """Return the datasets, methods and metrics of a figure that are in the scores.

    Where the run has none of the printed datasets (or methods) all of its own are taken; methods
    that the paper does not know are always shown.
    """
    rows = scores[scores["paradigm"] == spec.paradigm]
    if rows.empty:
        return None
    there, known = set(rows["metric"]), list(dict.fromkeys(rows["dataset"]))
    metrics = [next((m for m in names if m in there), "") for names in spec.metrics]
    methods = method_order(set(rows["method"]))
    printed = [m for m in methods if m in spec.methods or is_guest(m)]
    datasets = [d for d in spec.datasets if d in known]
    return Parts(datasets or known, printed or methods, [m for m in metrics if m], known, methods)


def write_figures(scores: pd.DataFrame, folder: Path) -> list[Path]:
    """Write each figure that the run can fill as PDF, SVG and PNG; return the files.

    A figure is as wide as the text of a page; type stays readable at that size. Every value of a
    fold and model is a point with the method's own marker, the line is their median. A panel in
    which all values are equal says so instead of drawing them.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "report") from None

    folder.mkdir(parents=True, exist_ok=True)
    out = []
    with matplotlib.rc_context(STYLE):
        for spec in FIGURES:
            parts = figure_parts(spec, scores)
            if parts is None:
                continue
            rows = scores[scores["paradigm"] == spec.paradigm]
            size = (WIDTH, 1.02 * len(parts.datasets) + 0.75)
            figure = Figure(figsize=size, layout="constrained")
            _draw(figure, parts, rows)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once, saved three times
            for ending, options in FILES.items():
                path = folder / f"{spec.name}.{ending}"
                replacing(path, partial(figure.savefig, format=ending, **options))
                out.append(path)
    return out


def _draw(figure: Any, parts: Parts, rows: pd.DataFrame) -> None:
    shape = (len(parts.datasets), len(parts.metrics))
    axes = figure.subplots(*shape, squeeze=False)
    paint, shapes = method_colours(parts.methods), method_symbols(parts.methods)
    known = dict(iter(rows.groupby(["dataset", "metric", "method"])["value"]))
    for i, dataset in enumerate(parts.datasets):
        for j, metric in enumerate(parts.metrics):
            values = [_known(known, dataset, metric, m) for m in parts.methods]
            marks = [(paint[m], MARKERS[shapes[m]]) for m in parts.methods]
            _points(axes[i, j], values, marks, metric)
            if i == 0:
                info = metric_info(metric)
                axes[i, j].set_title(f"{_label(_short(info.title))} {info.arrow}", fontsize=7.5)
        axes[i, 0].set_ylabel(_label(dataset_title(dataset)), fontsize=7.5)
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="", color=paint[m], marker=MARKERS[shapes[m]], markersize=4,
               label=_label(method_title(m)))
        for m in parts.methods
    ]  # fmt: skip
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(len(handles), 7), frameon=False,
        fontsize=7, columnspacing=1.0, handletextpad=0.2,
    )  # fmt: skip


def _short(title: str) -> str:
    """A title that fits over a narrow panel."""
    return title.replace(" (columns)", "").replace("L2-Hamming", "L2-Ham.")


def _label(text: str) -> str:
    """Return a text that is neither a formula nor, with `_` in front, left out of the legend."""
    shown = visible(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _known(table: dict[Any, pd.Series], dataset: str, metric: str, method: str) -> np.ndarray:
    values = table.get((dataset, metric, method))
    return np.array([]) if values is None else values.dropna().to_numpy(float)


def _points(
    axis: Any, values: list[np.ndarray], marks: list[tuple[str, str]], metric: str
) -> None:
    axis.set_xticks([])
    axis.tick_params(length=2, width=0.5, labelsize=6.5, pad=1.5)
    axis.grid(axis="y", linewidth=0.3, alpha=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    everything = np.concatenate(values) if values else np.array([])
    if not len(everything) or np.ptp(everything) <= 1e-3 * max(1e-3, np.abs(everything).max()):
        told = f"all {everything[0]:.3g}" if len(everything) else "no value"
        axis.text(0.5, 0.5, told, transform=axis.transAxes, ha="center", va="center", fontsize=6.5)
        axis.set_yticks([])
        return
    _scale(axis, everything, metric)
    for i, (mine, (paint, shape)) in enumerate(zip(values, marks, strict=True)):
        across = i + np.linspace(-0.25, 0.25, len(mine)) if len(mine) > 1 else np.array([i])
        axis.plot(
            across[: len(mine)], mine, linestyle="", marker=shape, color=paint, markersize=2.6,
            markeredgewidth=0.3, alpha=0.9,
        )  # fmt: skip
        if len(mine):
            axis.hlines(np.median(mine), i - 0.38, i + 0.38, color="black", linewidth=0.8)
    axis.set_xlim(-0.7, len(values) - 0.3)


def _scale(axis: Any, values: np.ndarray, metric: str) -> None:
    """Logarithmic for times, and where a few values would flatten all the others."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    if metric.startswith(("time_", "ms_", "cpu_")) and values.min() > 0:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(numticks=4))
        axis.minorticks_off()
    elif np.ptp(values) > 1000:
        axis.set_yscale("symlog", linthresh=10)
        axis.minorticks_off()
    else:
        axis.yaxis.set_major_locator(MaxNLocator(4))
