"""What the picture of each method shows: a table, read by `pictures.py` and `names.py`.

A new method needs a line here, `python benchmarks/pictures.py --only NAME`, and a section with
its name in the heading in docs/methods.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sketch:
    """How a method is drawn on Moons.

    Attributes:
        told: what is to be seen, for those who cannot see it.
        model: "mlp", "lr", "small" (a network of 16 units) or "forest".
        shows: what is drawn besides rows, ways and answers: "set" (all answers of a row),
            "path" (points on the way), "donor" (the nearest training row of the class), "shell"
            (a circle through the answer), "noise" (a circle of one standard deviation), "models"
            (boundaries of models trained again), "level" (where rows count as plausible),
            "decoded" (what the autoencoder makes of training rows), "certain" (how sure the model
            is), "action" (actions apart from consequences), "groups" (many rows, coloured by
            what they share).
        params: settings of the class.
    """

    told: str
    model: str = "mlp"
    shows: tuple[str, ...] = ()
    params: dict = field(default_factory=dict)


SKETCHES = {
    "wachter": Sketch("Each row goes to the nearest point beyond the boundary."),
    "artelt": Sketch(
        "Rows go to the nearest point inside the ellipsoids of a mixture.",
        "lr",
    ),
    "dice": Sketch(
        "Four rows, each with a set of answers that differ from each other.",
        shows=("set",),
        params={"total_CFs": 8},
    ),
    "cchvae": Sketch(
        "Answers lie near rows that the autoencoder can write (dots).", shows=("decoded",)
    ),
    "revise": Sketch(
        "Answers are rows that the autoencoder writes (dots), as near as its codes allow.",
        shows=("decoded",),
    ),
    "clue": Sketch(
        "Rows leave the pale band of uncertainty, along what the autoencoder writes (dots).",
        shows=("decoded", "certain"),
    ),
    "dicoflex": Sketch(
        "Ten draws for each row, all among rows of the class.",
        shows=("set",),
        params={"hidden": 32, "epochs": 30},
    ),
    "ppcef": Sketch(
        "Answers enter the region (line) in which rows of the class are plausible.",
        shows=("level",),
    ),
    "cem": Sketch("Rows go to the nearest point by L1 and L2 together."),
    "cegp": Sketch("Ways are pulled towards the prototypes of the class."),
    "cadex": Sketch("Rows walk along the gradient to the first point of the class."),
    "sace": Sketch("Each row takes over the step between a training row and its nearest unlike."),
    "cearm": Sketch("Answers of a Gaussian process, near but not on the boundary."),
    "nice": Sketch(
        "Values come from the nearest row of the class (star); what is not needed stays.",
        shows=("donor",),
    ),
    "nearest": Sketch(
        "The five nearest rows of the class for each row.", shows=("set",), params={"k": 5}
    ),
    "growing_spheres": Sketch(
        "Around each row the first sphere that touches the class.", shows=("shell",)
    ),
    "face": Sketch(
        "Ways lead through training rows in small steps to a dense part of the class.",
        shows=("path",),
    ),
    "moc": Sketch(
        "Each row has a front: from the nearest point to points among rows of the class.",
        shows=("set",),
        params={"mu": 40},
    ),
    "geco": Sketch("Answers that change one feature, to values of training rows.", shows=("set",)),
    "causal": Sketch(
        "x1 follows from x0: the action (solid) is paid for, the consequence (dotted) is free.",
        shows=("action",),
        params={"graph": {"x1": ["x0"]}, "equations": "kernel"},
    ),
    "roar": Sketch(
        "Answers keep a distance from the boundary; thin lines are models trained again.",
        shows=("models",),
        params={"delta": 0.2},
    ),
    "probe": Sketch(
        "One standard deviation of noise around each answer; 9 of 10 noisy copies keep the class.",
        shows=("noise",),
        params={"rate": 0.1},
    ),
    "rbr": Sketch(
        "Answers lie where points around the boundary are mostly of the class; thin lines are "
        "models trained again.",
        shows=("models",),
    ),
    "robust_nearest": Sketch(
        "Answers near training rows of the class that every slightly changed model keeps; thin "
        "lines are models trained again.",
        "small",
        shows=("models",),
    ),
    "cells": Sketch("Rows go just beyond a threshold of the forest.", "forest"),
    "exact_tree": Sketch("The cheapest cell of the class for each row, proved.", "forest"),
    "live_regions": Sketch(
        "Rows go to the nearest box in which training rows of the class live.", "forest"
    ),
    "feature_tweak": Sketch(
        "Rows follow one path of one tree, a step beyond its splits.", "forest"
    ),
    "focus": Sketch(
        "Ways through a soft copy of the forest.", "forest", params={"sharpness": 10.0}
    ),
    "actionable": Sketch("The cheapest action of a linear model, proved.", "lr"),
    "exact_relu": Sketch("The nearest point of the class, proved for a small network.", "small"),
    "auto": Sketch("What `cel.explain` answers without a method: near, few changes."),
    "ares": Sketch("A few rules: what a row has, and what it should have.", shows=("groups",)),
    "globe_ce": Sketch("All rows go one direction, each as far as it must.", shows=("groups",)),
    "glance": Sketch("A few actions; each row takes the cheapest that works.", shows=("groups",)),
    "tcrex": Sketch("Rows go into boxes that hold the class.", shows=("groups",)),
    "group_ppcef": Sketch(
        "Shared shifts into the region (line) in which rows of the class are plausible.",
        shows=("groups", "level"),
        params={"groups": 3},
    ),
}
