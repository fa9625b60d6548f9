"""Speed of the instance, robust, latent, population and causal methods beside what was asked.

    CEL_DATA=... python benchmarks/speed_lines.py [--methods roar,geco_quick,...] [--write]

One run, one thread, CPU seconds. What was asked is rows per CPU-second on an idle machine, on
which `wachter_exact` answered 2,303 rows of HELOC with the network (1,000 rows in one call). The
same call is the yardstick of every run here: *asked here* is what was asked, times its present
speed over 2,303. A line with fewer rows than 1,000 is a slow method; more rows would only help
it. `20 rows` is a call of the size that suite `quick` makes, in milliseconds per row.

`--write` puts the table into docs/performance.md. Models: `mlp` is the network 256-256, `small`
one hidden layer of 16, `lr` a logistic regression; `free` lets every column move in [0, 1],
without grids, directions and relations. `causal` explains 8 features of which 7 follow from
others (128 sets of actions), with a linear model.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from cel.cf_methods.variants import named
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.models.generative import default_density
from cel.protocols import Need
from cel.space import FeatureSpace
from cel.space.causal import Mechanism, StructuralModel
from marked import put_between
from methods import cpu, draw, load_dataset, markdown

YARDSTICK = 2303.0
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


@dataclass(frozen=True)
class Line:
    """A method, the model it explains, rows per call, and rows per second that were asked for."""

    name: str
    model: str = "mlp"
    rows: int = 1000
    asked: float = float("nan")


LINES = [
    Line("wachter_exact"),
    Line("dice_genetic", rows=500),
    Line("nice", asked=2000),
    Line("nearest", asked=5000),
    Line("face", asked=3000),
    Line("growing_spheres", rows=300, asked=200),
    Line("roar", "lr free", asked=20000),
    Line("roar", "lr", asked=20000),
    Line("roar", asked=1500),
    Line("probe", rows=500, asked=600),
    Line("rbr", rows=300, asked=100),
    Line("robust_nearest", "lr", asked=1500),
    Line("robust_nearest", "small", asked=1500),
    Line("trex", rows=300, asked=1500),
    Line("revise", rows=300, asked=400),
    Line("revise_searched", rows=300, asked=400),
    Line("clue", asked=1500),
    Line("dicoflex", rows=500, asked=1000),
    Line("dicoflex_coupling", asked=1000),
    Line("group_ppcef_near", asked=2000),
    Line("moc", rows=100, asked=120),
    Line("moc_donors", rows=200, asked=120),
    Line("geco", rows=100, asked=400),
    Line("geco_quick", rows=300, asked=400),
    Line("causal", "chain", asked=2000),
]


class Place:
    """HELOC, its models, its density and its rows; everything made when it is first asked for."""

    def __init__(self):
        self.split = load_dataset("heloc", binary=True).split()
        self.goal = self.split.target.desired_position or 0
        self.models = {}

    def model(self, kind):
        if kind not in self.models:
            made = LogisticRegression() if kind == "lr" else MLPClassifier()
            if kind == "small":
                made = MLPClassifier(hidden=(16,))
            self.models[kind] = made.fit(self.split.loader("train"))
        return self.models[kind]

    def density(self, model):
        labels = [model.predict_proba(p.X).argmax(1) for p in (self.split.train, self.split.valid)]
        return default_density(self.split.space).fit(
            self.split.train.X, labels[0], space=self.split.space,
            valid=(self.split.valid.X, labels[1]),
        )  # fmt: skip

    def pool(self, model):
        x = self.split.train.X
        return np.random.default_rng(0).permutation(
            x[model.predict_proba(x).argmax(1) != self.goal]
        )


def chain(n):
    """Return a method for 8 features in a chain of causes, and rows that it has to explain."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(8)]
    space = FeatureSpace.continuous(8)
    weights = {
        n: dict(zip(names[:i], rng.normal(0, 0.3, i), strict=True)) for i, n in enumerate(names)
    }
    scm = StructuralModel(space, {n: Mechanism.linear(w) for n, w in weights.items() if w})
    x = rng.random((4 * n, 8)).astype(np.float32)
    slope = rng.normal(0, 2, 8)
    score = (x - 0.5) @ slope
    model = LogisticRegression().fit(x, (score > np.quantile(score, 0.6)).astype(int))
    cls, params = named("causal")
    method = cls(model, scm=scm, space=space, max_cut=7, **params).fit(x)
    return method, x[model.predict_proba(x).argmax(1) == 0][:n], 1


def prepared(line, place):
    """Return (fitted method, rows, wanted class, seconds of the fit)."""
    if line.model == "chain":
        return *chain(line.rows), 0.0
    kind, _, free = line.model.partition(" ")
    model = place.model(kind)
    cls, params = named(line.name)
    if Need.DENSITY in cls.needs:
        params["gen_model"] = place.density(model)
    goal, data = place.split.target.classes[place.goal], place.split
    rows = draw(place.pool(model), line.rows)
    if free:
        params["space"] = FeatureSpace.continuous(rows.shape[1])
        goal, data = place.goal, place.split.train.X
    method, seconds = cpu(lambda: cls(model, **params).fit(data))
    return method, rows, goal, seconds


def measured(line, place):
    """Return the line of the table, without what is asked here."""
    method, rows, goal, fit_s = prepared(line, place)
    method.explain(rows[:2], goal)  # whatever is imported or compiled on first use
    _, few = cpu(lambda: method.explain(rows[:20], goal))
    result, seconds = cpu(lambda: method.explain(rows, goal))
    found = np.isfinite(result.x_cfs).all(1)
    return {
        "method": f"`{line.name}`", "model": line.model, "rows": line.rows, "fit s": fit_s,
        "20 rows, ms/row": 50 * few, "rows/s": line.rows / seconds, "answered": found.mean(),
        "asked": line.asked,
    }  # fmt: skip


def table(lines):
    """Measure all lines and compare them with what was asked, at the speed of this machine."""
    place, out = Place(), []
    for line in lines:
        out.append(measured(line, place))
        print(out[-1], flush=True)
    frame = pd.DataFrame(out)
    here = frame.loc[frame["method"] == "`wachter_exact`", "rows/s"].iloc[0] / YARDSTICK
    frame["asked here"] = frame["asked"] * here
    frame["share"] = frame["rows/s"] / frame["asked here"]
    return frame


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", help="names, the yardstick is always measured")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    wanted = options.methods.split(",") if options.methods else None
    lines = [n for n in LINES if wanted is None or n.name in (*wanted, "wachter_exact")]
    text = markdown(table(lines))
    print(text)
    if options.write:
        put_between(PAGE, "speed lines", text)


if __name__ == "__main__":
    main()
