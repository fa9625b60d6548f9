"""The paper's four figures: box plots per dataset and metric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import MissingDependencyError
from cel.paths import replacing
from cel.report.catalogue import (
    COLOURS,
    dataset_title,
    method_colours,
    method_order,
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


@dataclass(frozen=True)
class FigureSpec:
    """A printed figure: rows are datasets, columns are metrics, boxes are methods."""

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
    printed = [m for m in methods if m in spec.methods or m not in COLOURS]
    datasets = [d for d in spec.datasets if d in known]
    return Parts(datasets or known, printed or methods, [m for m in metrics if m], known, methods)


def write_figures(scores: pd.DataFrame, folder: Path) -> list[Path]:
    """Write each figure that the run can fill as SVG and PNG; return the files.

    A box holds the values of all folds and models.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "report") from None

    folder.mkdir(parents=True, exist_ok=True)
    out = []
    style: dict[Any, Any] = {"svg.hashsalt": "cel", "svg.fonttype": "none", "font.size": 7.5}
    with matplotlib.rc_context(style):
        for spec in FIGURES:
            parts = figure_parts(spec, scores)
            if parts is None:
                continue
            rows = scores[scores["paradigm"] == spec.paradigm]
            size = (2.1 * len(parts.metrics) + 0.6, 1.35 * len(parts.datasets) + 0.9)
            figure = Figure(figsize=size, layout="constrained")
            _draw(figure, parts, rows)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once, saved twice
            for ending, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 160})):
                path = folder / f"{spec.name}.{ending}"
                replacing(path, partial(figure.savefig, format=ending, **options))
                out.append(path)
    return out


def _draw(figure: Any, parts: Parts, rows: pd.DataFrame) -> None:
    shape = (len(parts.datasets), len(parts.metrics))
    axes = figure.subplots(*shape, squeeze=False)
    colours = method_colours(parts.methods)
    known = dict(iter(rows.groupby(["dataset", "metric", "method"])["value"]))
    for i, dataset in enumerate(parts.datasets):
        for j, metric in enumerate(parts.metrics):
            values = [_known(known, dataset, metric, m) for m in parts.methods]
            _boxes(axes[i, j], values, [colours[m] for m in parts.methods], metric)
            if i == 0:
                info = metric_info(metric)
                axes[i, j].set_title(f"{info.title} {info.arrow}", fontsize=8.5)
        axes[i, 0].set_ylabel(_label(dataset_title(dataset)))
    from matplotlib.patches import Patch

    marks = [Patch(facecolor=colours[m], label=_label(method_title(m))) for m in parts.methods]
    columns = min(len(marks), max(2, 2 * len(parts.metrics) - 2))
    figure.legend(handles=marks, loc="outside lower center", ncols=columns, frameon=False)


def _label(text: str) -> str:
    """Return a text that is neither a formula nor, with `_` in front, left out of the legend."""
    shown = visible(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _known(table: dict[Any, pd.Series], dataset: str, metric: str, method: str) -> np.ndarray:
    values = table.get((dataset, metric, method))
    return np.array([]) if values is None else values.dropna().to_numpy(float)


def _boxes(axis: Any, values: list[np.ndarray], colours: list[str], metric: str) -> None:
    drawn = axis.boxplot(
        values, widths=0.65, patch_artist=True, showfliers=True,
        medianprops={"color": "black", "linewidth": 0.9},
        flierprops={"marker": ".", "markersize": 2.5},
    )  # fmt: skip
    for box, colour in zip(drawn["boxes"], colours, strict=True):
        box.set(facecolor=colour, linewidth=0.6)
    axis.set_xticks([])
    axis.tick_params(length=2, width=0.5)
    axis.grid(axis="y", linewidth=0.3, alpha=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    _scale(axis, np.concatenate(values) if values else np.array([]), metric)


def _scale(axis: Any, values: np.ndarray, metric: str) -> None:
    """Logarithmic for times, and where a few values would flatten all the others."""
    if not len(values):
        axis.text(0.5, 0.5, "no value", transform=axis.transAxes, ha="center", va="center")
        axis.set_yticks([])
        return
    if metric_info(metric).unit == "share":
        axis.set_ylim(-0.04, 1.04)
    elif metric.startswith(("time_", "ms_")) and values.min() > 0:
        axis.set_yscale("log")
    elif np.ptp(values) > 1000:
        axis.set_yscale("symlog", linthresh=10)
