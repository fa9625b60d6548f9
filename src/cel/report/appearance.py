"""Names, colours and orders that all tables and figures share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cel.benchmark.ranking import RANKED
from cel.cf_methods import METHODS
from cel.cf_methods.variants import VARIANTS
from cel.errors import CelError
from cel.metrics import METRICS

__all__ = [
    "COLOURS",
    "PARADIGMS",
    "RANKED",
    "SYMBOLS",
    "MetricInfo",
    "dataset_title",
    "is_guest",
    "kind_of",
    "method_colours",
    "method_order",
    "method_symbols",
    "method_title",
    "metric_info",
    "model_title",
    "scope_of",
]

PARADIGMS = ("local", "global", "group", "regression")

# label: (title, scope, colour). Colours keep a distance of at least 15 in CIELAB from each other,
# also as people with protanopia or deuteranopia see them, and are readable on white and on black.
_METHODS = {
    "wachter": ("Wachter", "local", "#4b82f0"),
    "artelt": ("Artelt", "local", "#14b5f0"),
    "dice": ("DiCE", "local", "#167f49"),
    "cchvae": ("CCHVAE", "local", "#b2c414"),
    "ppcef": ("PPCEF", "local", "#f03158"),
    "cem": ("CEM", "local", "#7924f0"),
    "cegp": ("CEGP", "local", "#506614"),
    "cadex": ("CADEX", "local", "#f0a865"),
    "sace": ("SACE", "local", "#47cec2"),
    "cearm": ("CEARM", "local", "#bc5db3"),
    "ares": ("AReS", "global", "#9d26ba"),
    "globe_ce": ("GLOBE-CE", "global", "#146684"),
    "glance_global": ("GlobalGLANCE", "global", "#a28614"),
    "glance": ("GLANCE", "group", "#f08f85"),
    "tcrex": ("T-CREx", "group", "#9a7f8a"),
}
COLOURS = {label: colour for label, (_, _, colour) in _METHODS.items()}
SPARE = (
    "#e3120b", "#2f9e44", "#1c7ed6", "#f59f00", "#ae3ec9", "#0ca678", "#b5651d", "#5f6c7b",
    "#d6336c", "#74b816", "#4263eb", "#e8590c",
)  # fmt: skip
SYMBOLS = (
    "circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "x", "triangle-down",
)  # fmt: skip
_SCOPES = {"group_ppcef_global": "global", "group_ppcef_local": "local"}
_TITLES = {
    "actionable": "Actionable",
    "auto": "Auto",
    "causal": "Causal",
    "cells": "Cells",
    "clue": "CLUE",
    "exact_tree": "Exact tree",
    "face": "FACE",
    "geco": "GeCo",
    "live_regions": "LIRE",
    "moc": "MOC",
    "revise": "REVISE",
    "dicoflex": "DiCoFlex",
    "elastic_net": "Elastic net",
    "growing_spheres": "Growing Spheres",
    "group_ppcef": "PPCEF (groups)",
    "group_ppcef_global": "PPCEF (one shift)",
    "group_ppcef_local": "PPCEF (a shift each)",
    "nearest": "Nearest row",
    "nice": "NICE",
    "exact_relu": "Exact ReLU",
    "feature_tweak": "FeatureTweak",
    "focus": "FOCUS",
    "probe": "PROBE",
    "rbr": "RBR",
    "rnce": "RNCE",
    "robust_nearest": "Robust neighbour",
    "roar": "ROAR",
    "trex": "T-Rex",
}

# How a method finds its answers, in a word or two; the leaderboard sorts and searches by it.
_KINDS = {
    "nearest point": ("wachter", "cem", "cegp", "cadex", "growing_spheres", "cearm"),
    "proved": ("actionable", "exact_relu", "exact_tree"),
    "data rows": ("nice", "nearest", "face", "sace", "live_regions"),
    "sets": ("dice", "moc", "geco"),
    "density": ("artelt", "ppcef"),
    "latent": ("cchvae", "revise", "clue", "dicoflex"),
    "robust": ("roar", "probe", "rbr", "robust_nearest", "rnce", "trex"),
    "trees": ("cells", "feature_tweak", "focus"),
    "causal": ("causal",),
    "portfolio": ("auto",),
    "rules and shifts": ("ares", "globe_ce", "glance", "tcrex", "group_ppcef"),
}

_DATASETS = {
    "adult": "Adult Census",
    "audit": "Audit",
    "bank_marketing": "Bank Marketing",
    "concrete": "Concrete",
    "credit_default": "Credit Default",
    "give_me_some_credit": "Give Me Some Credit",
    "heloc": "HELOC",
    "law": "Law",
    "mixed": "Mixed",
    "scm20d": "SCM20D",
    "synthetic": "Synthetic",
    "yacht": "Yacht",
}
_MODELS = {"mlp": "MLP", "lr": "LR", "mlp_regressor": "MLP (regression)", "linear": "Linear"}
_METRICS = {
    "coverage": "Coverage",
    "density_percentile": "Density percentile",
    "gower": "Gower distance",
    "isolation_forest": "Isolation forest",
    "l1": "L1",
    "l2": "L2",
    "l2_hamming": "L2-Hamming",
    "l2_hamming_encoded": "L2-Hamming (columns)",
    "lof": "LOF",
    "lof_median": "LOF (median)",
    "cpu_ms_per_row": "CPU ms per row",
    "time_cpu_s": "CPU time (s)",
    "log_density": "Log-density",
    "mae": "MAE",
    "ms_per_row": "ms per row",
    "prob_plausibility": "Plausibility",
    "sparsity_encoded": "Sparsity (columns)",
    "time_s": "Time (s)",
    "ynn": "yNN",
}


@dataclass(frozen=True)
class MetricInfo:
    """How a metric is shown: title, direction ("higher", "lower", "none"), meaning, unit, rows.

    `rows` says over which rows it is a mean: "found" for those with a verified answer only.
    """

    name: str
    title: str
    better: str
    meaning: str
    unit: str
    rows: str = ""

    @property
    def arrow(self) -> str:
        """↑ when higher is better, ↓ when lower is."""
        return {"higher": "↑", "lower": "↓"}.get(self.better, "")


def metric_info(name: str) -> MetricInfo:
    """Return how to show a metric; counts of rows and unknown names have no direction.

    >>> metric_info("lof").title, metric_info("lof").arrow
    ('LOF', '↓')
    """
    title = _METRICS.get(name, name.replace("_", " ").capitalize())
    if name not in METRICS:
        return MetricInfo(name, title, "none", "", "")
    metric = METRICS.get(name)
    return MetricInfo(name, title, metric.better, metric.meaning, metric.unit, metric.rows)


def _variant_of(label: str) -> str:
    """The bare name of a name with a suffix: `wachter_exact` is of `wachter`; else the name."""
    known = VARIANTS.get(label)
    if label in _METHODS or known is None:
        return label
    return known.method


def is_guest(label: str) -> bool:
    """Tell whether a label is neither a name of this library nor one of its methods."""
    return label not in _METHODS and label not in VARIANTS and label not in METHODS


def method_title(label: str) -> str:
    """Return how a method is written.

    >>> method_title("globe_ce"), method_title("globe_ce_informed"), method_title("mine")
    ('GLOBE-CE', 'GLOBE-CE informed', 'mine')
    """
    if label in _METHODS:
        return _METHODS[label][0]
    if label in _TITLES:
        return _TITLES[label]
    bare = _variant_of(label)
    if bare != label and label.startswith(f"{bare}_"):
        return short(f"{method_title(bare)} {label.removeprefix(bare)[1:].replace('_', ' ')}")
    return short(label)


def short(text: str, most: int = 60) -> str:
    """Return a title that fits beside a chart; a longer one is cut.

    >>> short("wachter"), len(short("x" * 10_000))
    ('wachter', 60)
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def scope_of(label: str) -> str:
    """Return local, global or group; a method that is not known counts as local."""
    if label in _METHODS:
        return _METHODS[label][1]
    if label in _SCOPES:
        return _SCOPES[label]
    bare = _variant_of(label)
    if bare in _METHODS:
        return _METHODS[bare][1]
    return METHODS.get(bare).scope.value if bare in METHODS else "local"


def kind_of(label: str) -> str:
    """Return how a method finds its answers, in a word or two; "other" for one that is not known.

    >>> kind_of("wachter_exact"), kind_of("glance_global"), kind_of("mine")
    ('nearest point', 'rules and shifts', 'other')
    """
    known = VARIANTS.get(label)
    method = label if known is None else known.method
    return next((kind for kind, names in _KINDS.items() if method in names), "other")


def model_title(name: str) -> str:
    """Return how a model is written."""
    return _MODELS.get(name, name)


def dataset_title(name: str) -> str:
    """Return how a dataset is written: short for those of the paper, else as on its card."""
    from cel.datasets.cards import load_card

    if name in _DATASETS:
        return _DATASETS[name]
    try:
        return short(load_card(name).title)
    except CelError:
        return short(name)


def method_colours(labels: Iterable[str]) -> dict[str, str]:
    """Return a colour per method: always the same for known ones, spare ones in turn for others.

    Variants have shades of the colour of their bare name; symbols tell them apart.

    >>> method_colours(["dice", "mine"])
    {'dice': '#167f49', 'mine': '#e3120b'}
    """
    labels = list(labels)
    guests = sorted(x for x in labels if x not in COLOURS and _variant_of(x) not in COLOURS)
    spare = {x: SPARE[i % len(SPARE)] for i, x in enumerate(guests)}
    out, shades = {}, dict[str, int]()
    for x in labels:
        bare = _variant_of(x)
        if x in COLOURS or x in spare:
            out[x] = COLOURS.get(x) or spare[x]
            continue
        shades[bare] = shades.get(bare, 0) + 1
        out[x] = _shade(COLOURS[bare], shades[bare])
    return out


def _shade(colour: str, number: int) -> str:
    """The colour darker and lighter in turn, further each time."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    share = min(0.22 * ((number + 1) // 2), 0.6)
    goal = 0 if number % 2 else 255
    return "#" + "".join(f"{round(p + (goal - p) * share):02x}" for p in parts)


def method_symbols(labels: Iterable[str]) -> dict[str, str]:
    """Return a symbol per method, in turn, so that neighbours in every list differ."""
    return {x: SYMBOLS[i % len(SYMBOLS)] for i, x in enumerate(labels)}


def method_order(labels: Iterable[str]) -> list[str]:
    """Return labels in the fixed order of all tables, variants behind their bare name."""
    known = list(_METHODS)

    def place(label: str) -> tuple[int, bool, str]:
        bare = _variant_of(label)
        at = known.index(bare) if bare in known else len(known)
        return at, bare != label, label

    return sorted(labels, key=place)
