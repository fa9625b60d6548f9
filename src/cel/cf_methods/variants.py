"""Names that are promises: the published algorithm under its name, ours under names of our own.

A class has one set of defaults, chosen to serve users. A *name* in a suite, a table or
`cel.explain` stands for an algorithm: a bare name is the publication with its published settings,
a name with a suffix says what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cel.cf_methods.base import METHODS, BaseCounterfactualMethod
from cel.errors import ConfigError
from cel.registry import did_you_mean

__all__ = ["VARIANTS", "Variant", "method_names", "named"]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A method with settings, under a name.

    Attributes:
        name: what tables call it.
        method: registry name of the class.
        params: settings that make it what the name says.
        published: whether it is the algorithm of the publication.
        what: how it finds its answers, in a few words.
        departs: what still differs from the publication, or from the bare name.
    """

    name: str
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    published: bool = False
    what: str = ""
    departs: str = ""


def _published(name: str, what: str, departs: str = "", /, **params: Any) -> Variant:
    of = name.removesuffix("_global").removesuffix("_local")
    return Variant(name=name, method=of, params=params, published=True, what=what, departs=departs)


def _ours(name: str, of: str, what: str, /, **params: Any) -> Variant:
    return Variant(name=name, method=of, params=params, what=what)


# Of the authors' configuration: distance, validity, plausibility, choice, groups, difference.
_SHIFTS = {"weights": (0.1, 1e5, 1e4, 1e4, 1e3, 1e2), "lr": 5e-4, "steps": 2000, "stride": 8}

_ALL = [
    _published(
        "wachter",
        "Adam on lambda (1 - p)^2 + L1/MAD, lambda raised until the class is reached",
        "lambda is bracketed and bisected per row; categories are relaxed to simplices",
        solver="gradient",
        loss="squared_prob",
    ),
    _ours("wachter_exact", "wachter", "closed forms and tangents of the same problem"),
    _published(
        "artelt",
        "convex programs over the components of a Gaussian mixture; linear models only",
        "components by BIC over 2, 3, 5, 9 instead of cross-validation over 2 to 9",
    ),
    _ours(
        "artelt_scp",
        "artelt",
        "the same programs around tangents, for models that are not linear",
        extension="scp",
    ),
    _published(
        "dice",
        "random changes of one more feature at a time, 100 valid ones, an arbitrary one shown",
        select="first",
    ),
    _ours("dice_closest", "dice", "the same 100, the closest one shown"),
    _ours(
        "dice_gradient",
        "dice",
        "Adam on a set of four with the determinant of the paper",
        method="gradient",
        total_CFs=4,
    ),
    _ours(
        "dice_genetic",
        "dice",
        "a genetic search for a set of ten",
        method="genetic",
        total_CFs=10,
    ),
    _published(
        "cchvae",
        "growing shells in the latent space of a conditional autoencoder",
        "one Gaussian code instead of a hierarchy of heads; 300 samples a shell, published 1,000",
        screened=False,
    ),
    _ours("cchvae_screened", "cchvae", "a linear fit says which samples are worth scoring"),
    _published(
        "revise",
        "Adam on codes of an autoencoder, one weight of the distance",
        "the autoencoder is conditional on what cannot change",
        rounds=1,
        steps=1000,
    ),
    _ours("revise_searched", "revise", "the weight of the distance searched for each row"),
    _published(
        "dicoflex",
        "draws from an autoregressive flow trained on rows and their nearest rows of the class",
        "neighbours keep their row's constraints; only valid draws are answers; twelve passes",
        flow="maf",
        hidden=16,
        norms=(2.0,),
        patience=50,
        epochs=12,
    ),
    _ours("dicoflex_coupling", "dicoflex", "a coupling flow, for three exponents of the distance"),
    _published(
        "ppcef",
        "Adam on |x' - x| + alpha (validity + plausibility) under a flow",
        "alpha rises and other starts are tried for rows that fail",
        solver="gradient",
    ),
    _ours("ppcef_tangents", "ppcef", "both demands as constraints, through tangents"),
    _published(
        "cem",
        "FISTA with the shrinkage of the paper; pertinent negatives move away from the values "
        "without information, to either side; c by bisection",
        "the margin kappa is one of logits",
        pn_constraint="two-sided",
        threshold="paper",
        kappa=0.2,
    ),
    _ours(
        "elastic_net",
        "cem",
        "the nearest point by L1 + L2, without the set of pertinent negatives",
    ),
    _published(
        "cegp",
        "FISTA towards prototypes with bisection of c, points compared by distance",
        "categories at expected distances instead of one number each",
        search="c",
    ),
    _ours("cegp_first", "cegp", "stops where the way enters the class"),
    _published(
        "cadex",
        "Adam on the cross-entropy, the first point past the boundary",
        "steps of 0.002, published 0.001, and the last one is bisected; the box holds",
    ),
    _published(
        "sace",
        "good pairs of training rows, their differences copied; rows without a pair unanswered",
        fallback=None,
    ),
    _ours("sace_nearest", "sace", "rows without a pair get their nearest unlike neighbour"),
    _published(
        "cearm",
        "Bayesian optimisation of the outputs; reconstructed from an abstract",
        "the publication was read as an abstract only; the distance term is ours",
    ),
    _published(
        "moc",
        "NSGA-II on outcome, Gower distance, changed features and nearest training row; the "
        "nearest valid person of the front",
        "parents by tournament; likeness to at most 1,000 training rows; copies die first; the "
        "nearest answer is never crowded out",
        mu=20,
        generations=175,
        patience=None,
        donors=0.0,
        ice_points=20,
        max_rows=1000,
    ),
    _ours(
        "moc_donors",
        "moc",
        "the same, half of the first people near rows of the class; ends when nothing new is "
        "dominated",
    ),
    _published(
        "geco",
        "one more group of features at a time, values as frequent as in the data, cheapest first",
        "the best of twelve sets of changed groups are joined; values of at most 1,000 rows",
        size=100,
        parents=100,
        give_up=1,
    ),
    _ours("geco_quick", "geco", "30 people survive, the best ten change one more group"),
    Variant(
        name="rnce",
        method="robust_nearest",
        published=True,
        what="the nearest training row certified under every change of the weights by at most "
        "0.005, moved towards the row while it stays certified",
        departs="bounds of intervals instead of an integer program; rows lie inside the region of "
        "the row; features are given back",
    ),
    Variant(
        name="trex",
        method="robust_nearest",
        params={"test": "stability", "optimal": False},
        published=True,
        what="the nearest training row whose class is stable under noise",
        departs="noise on encoded numbers, none on categories; rows lie inside the region of the "
        "row",
    ),
    _published(
        "ares",
        "two-level rules by the objective of the paper, the first matching rule of the list",
        "candidates by a beam instead of frequent item sets; quantile bins",
        objective="original",
        oracle=False,
    ),
    _ours("ares_oracle", "ares", "two-term objective; each row the cheapest rule that works"),
    _published(
        "globe_ce",
        "random sparse directions, chosen at one cost",
        "answers stay in the domain, categories are decoded",
        generator="random",
        select="fixed",
        n_sample=1000,
    ),
    _ours(
        "globe_ce_informed",
        "globe_ce",
        "directions from class means, neighbours and gradients, chosen over all costs",
    ),
    _published(
        "glance",
        "clusters merged to four actions, each the most effective of its cluster's; each row "
        "the cheapest action that works",
        "random mixtures instead of DiCE for the centroids' counterfactuals",
        generator="random",
        sparsify=False,
        goal=0.0,
    ),
    _published(
        "glance_global",
        "the same with one action",
        "as glance",
        generator="random",
        sparsify=False,
        goal=0.0,
        n_actions=1,
    ),
    _ours("glance_informed", "glance", "neighbours as counterfactuals, thinned and stretched"),
    _ours(
        "glance_assigned",
        "glance",
        "as glance_informed, each row the action of its cluster, whether it works or not",
        oracle=False,
    ),
    _published(
        "tcrex",
        "boxes of a surrogate tree, rows clipped into the cheapest one",
        "boxes in encoded units",
        completion="clip",
        n_rules=1,
        actionable=False,
        confidence=0.0,
        max_leaf_nodes=8,
    ),
    _published(
        "group_ppcef",
        "shifts shared by groups, fitted under a flow together with who takes which; each row "
        "the cheapest shift that leads to a plausible place",
        "shifts are fitted on training rows and carried to new ones; magnitudes of new rows are "
        "searched; shifts start at mean ways to plausible rows; eight descent steps are made as "
        "one",
        **_SHIFTS,
    ),
    _published(
        "group_ppcef_global",
        "the same with one shift for all rows",
        "as group_ppcef",
        level="global",
        **_SHIFTS,
    ),
    _published(
        "group_ppcef_local",
        "the same with one shift for each row: PPCEF with this distance and these weights",
        "the box holds; eight descent steps are made as one",
        level="local",
        **_SHIFTS,
    ),
    _ours(
        "group_ppcef_near",
        "group_ppcef",
        "the distance weighted ten thousand times as much; four descent steps as one",
        stride=4,
    ),
    _ours(
        "tcrex_donor",
        "tcrex",
        "up to five boxes, open features filled from real rows inside",
    ),
]

VARIANTS: dict[str, Variant] = {v.name: v for v in _ALL}
"""Every name that stands for a method with settings."""


def method_names() -> list[str]:
    """Return all names that `named` knows."""
    return sorted({*VARIANTS, *METHODS.names()})


def named(name: str) -> tuple[type[BaseCounterfactualMethod], dict[str, Any]]:
    """Return the class and the settings that a name stands for.

    >>> cls, params = named("sace")
    >>> cls.__name__, params
    ('SACE', {'fallback': None})
    >>> named("sace_nearest")[1]
    {}
    """
    if name in VARIANTS:
        variant = VARIANTS[name]
        return METHODS.get(variant.method), dict(variant.params)
    if name in METHODS:
        return METHODS.get(name), {}
    raise ConfigError(f"unknown method {name!r}; {did_you_mean(name, method_names())}")
