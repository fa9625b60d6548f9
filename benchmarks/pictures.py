"""Draw the pictures of docs/methods.md: what each method answers on Moons.

    python benchmarks/pictures.py [--only nice,face] [--out docs/images/methods]

Rows (squares) of one class of Moons are explained to the other; ways are lines, answers rings.
The ground has two colours, one for each predicted class; dots are training rows. What else is
drawn for a method is said in `sketches.py`. No text and no transparent pixel: the pictures look
the same on a light and on a dark page.
"""

from __future__ import annotations

import argparse
import io
from functools import cached_property
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from sklearn.ensemble import RandomForestClassifier

import cel
from cel.cf_methods import METHODS
from cel.datasets import load_dataset
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.models.generative import default_density
from cel.models.generative.levels import DensityLevels, log_density_of
from cel.protocols import Need
from sketches import SKETCHES

COLOURS = ["#0b6e4f", "#b3541e", "#5b3a8e", "#1f5fa8", "#a3246b", "#5c6b00"]
GROUND = ["#f3efe9", "#dfe9f4"]
DOTS = ["#cdbca4", "#93afd0"]
LINE = "#8a8a8a"
GRID = 200
MANY = 48
LIMIT = 25_000


class Moons:
    """Moons, its models and its density; everything is made when it is first asked for."""

    def __init__(self):
        self.split = load_dataset("moons").split()
        self.models = {}

    def model(self, kind, seed=0):
        """Return a model; one with another seed is trained on rows drawn with replacement."""
        key = kind, seed
        if key not in self.models:
            x, y = self.split.train.X, self.split.train.y
            if seed:
                drawn = np.random.default_rng(seed).integers(len(x), size=len(x))
                x, y = x[drawn], y[drawn]
            if kind == "forest":
                made = RandomForestClassifier(30, max_depth=4, random_state=seed)
                self.models[key] = cel.wrap(made.fit(x, y), space=self.split.space)
            else:
                made = LogisticRegression() if kind == "lr" else MLPClassifier(random_state=seed)
                if kind == "small":
                    made = MLPClassifier(hidden=(16,), lr=0.02, random_state=seed)
                self.models[key] = made.fit(x, y)
        return self.models[key]

    @cached_property
    def density(self):
        parts = self.split.train, self.split.valid
        labels = [self.model("mlp").predict_proba(p.X).argmax(1) for p in parts]
        return default_density(self.split.space).fit(
            parts[0].X, labels[0], space=self.split.space, valid=(parts[1].X, labels[1])
        )

    @cached_property
    def level(self):
        """Return the log-density of a quarter of the rows of the class."""
        x = self.split.train.X
        labels = self.model("mlp").predict_proba(x).argmax(1)
        known = DensityLevels.of(self.density, x, labels)
        return float(known.thresholds(0.25, np.array([1]))[0])

    def rows(self, model, n):
        """Return n test rows of class 0, spread from left to right."""
        x = self.split.test.X
        x = x[model.predict_proba(x).argmax(1) == 0]
        return x[np.argsort(x[:, 0])[np.linspace(4, len(x) - 5, n).astype(int)]]


def ground(ax, moons, model, certain):
    """Draw what the model predicts, and training rows."""
    axis = np.linspace(0, 1, GRID, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    chance = model.predict_proba(grid)[:, 1].reshape(GRID, GRID)
    ax.contourf(axis, axis, chance, levels=[0, 0.5, 1], colors=GROUND)
    if certain:
        ax.contourf(axis, axis, chance, levels=[0.1, 0.9], colors=["#ffffff"], alpha=0.7)
    ax.contour(axis, axis, chance, levels=[0.5], colors=LINE, linewidths=1.0)
    x = moons.split.train.X
    labels = model.predict_proba(x).argmax(1)
    ax.scatter(*x.T, c=[DOTS[k] for k in labels], s=3, linewidths=0)
    return axis, grid


def background(ax, moons, sketch, method, axis, grid):
    """Draw what is the same for all rows: other models, plausible places, decoded rows."""
    if "models" in sketch.shows:
        for seed in range(1, 6):
            chance = moons.model(sketch.model, seed).predict_proba(grid)[:, 1]
            chance = chance.reshape(GRID, GRID)
            ax.contour(axis, axis, chance, levels=[0.5], colors=LINE, linewidths=0.4)
    if "level" in sketch.shows:
        dense = log_density_of(moons.density, grid, np.ones(len(grid), dtype=int))
        dense = dense.reshape(GRID, GRID)
        ax.contour(axis, axis, dense, levels=[moons.level], colors="#3f6ea3", linewidths=0.9)
    if "decoded" in sketch.shows:
        codes = getattr(method, "codes_", None)
        x = torch.as_tensor(moons.split.train.X)
        with torch.no_grad():
            written = codes.decode(codes.encode(x), x).numpy()
        ax.scatter(*written.T, c="#555555", s=4, linewidths=0)


def ways(ax, sketch, result, i, colour):
    """Draw how a row gets to its answer, and what else belongs to it."""
    x, y, shows = result.x_origs[i], result.x_cfs[i], sketch.shows
    line = {"color": colour, "lw": 0.9}
    if "path" in shows and result.logs["path"][i] is not None:
        points = np.concatenate([x[None], np.asarray(result.logs["path"][i]).reshape(-1, 2)])
        ax.plot(*points.T, marker=".", ms=3.5, **line)
    elif "action" in shows:
        done = result.logs["action"][i] or {}
        # Acting on x0 moves x1 along with it; acting on x1 moves x1 alone.
        corner = np.array([y[0], x[1] + done.get("x1", 0.0)])
        ax.plot(*np.stack([x, corner]).T, **line)
        ax.plot(*np.stack([corner, y]).T, ls=":", **line)
    elif "set" in shows and result.x_sets is not None:
        sets = result.x_sets[i][np.isfinite(result.x_sets[i]).all(1)]
        for other in sets:
            ax.plot(*np.stack([x, other]).T, color=colour, lw=0.4, alpha=0.6)
        ax.scatter(*sets.T, c=colour, s=8, linewidths=0)
    else:
        ax.plot(*np.stack([x, y]).T, **line)
    radius = {"shell": float(np.linalg.norm(y - x)), "noise": 0.1}
    for name in radius.keys() & set(shows):
        centre = x if name == "shell" else y
        ax.add_patch(
            plt.Circle(centre, radius[name], fill=False, ec=colour, lw=0.6, ls=(0, (3, 2)))
        )


def draw(name, moons):
    """Return the picture of a method as the bytes of a PNG file."""
    sketch, cls = SKETCHES[name], METHODS.get(name)
    model, params = moons.model(sketch.model), dict(sketch.params)
    if Need.DENSITY in cls.needs:
        params["gen_model"] = moons.density
    method = cls(model, **params).fit(moons.split)
    groups = "groups" in sketch.shows
    rows = moons.rows(model, MANY if groups else 4 if "set" in sketch.shows else 6)
    result = method.explain(rows, moons.split.target.classes[1])
    figure = plt.figure(figsize=(4.2, 3.15))
    ax = figure.add_axes((0, 0, 1, 1))
    axis, grid = ground(ax, moons, model, "certain" in sketch.shows)
    background(ax, moons, sketch, method, axis, grid)
    for i in range(len(rows)):
        number = int(result.cf_group_ids[i]) if groups else i
        colour = COLOURS[number % len(COLOURS)]
        ax.scatter(*rows[i], c=colour, s=9 if groups else 26, marker="s", ec="white", lw=0.5)
        if not result.found[i]:
            continue
        ways(ax, sketch, result, i, colour)
        size = 12 if groups else 36
        ax.scatter(*result.x_cfs[i], fc="white", ec=colour, s=size, lw=1.2, zorder=3)
    if "donor" in sketch.shows:
        real = METHODS.get("nice")(model, reward="none").fit(moons.split)
        donors = real.explain(rows, moons.split.target.classes[1]).x_cfs
        for i, donor in enumerate(donors):
            ax.scatter(*donor, c=COLOURS[i], s=24, marker="*", linewidths=0)
    ax.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1))
    ax.axis("off")
    return encoded(figure), int(result.found.sum()), len(rows)


def encoded(figure):
    """Return a figure as a PNG file of few colours."""
    raw = io.BytesIO()
    figure.savefig(raw, dpi=100, facecolor="white")
    plt.close(figure)
    out = io.BytesIO()
    image = Image.open(raw).convert("RGB")
    image.quantize(160, kmeans=1, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of methods, separated by commas")
    home = Path(__file__).parents[1] / "docs" / "images" / "methods"
    parser.add_argument("--out", type=Path, default=home)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    moons = Moons()
    for name in options.only.split(",") if options.only else SKETCHES:
        picture, found, asked = draw(name, moons)
        (options.out / f"{name}.png").write_bytes(picture)
        large = " TOO LARGE" if len(picture) > LIMIT else ""
        print(f"{name}: {found} of {asked} rows, {len(picture) / 1000:.1f} kB{large}", flush=True)


if __name__ == "__main__":
    main()
