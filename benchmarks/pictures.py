"""Draw the pictures of docs/methods.md: what populations find for a few rows of Moons.

    python benchmarks/pictures.py [--out docs/images]

A network is trained on Moons; its boundary is drawn with the answers of MOC, of which all people
of the first front with the wanted class are shown, and of GeCo.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch

from cel.cf_methods.local_methods import MOC, GeCo
from cel.datasets import load_dataset
from cel.models.classifiers import MLPClassifier

ROWS = 4
COLOURS = ["#0b6e4f", "#b3541e", "#5b3a8e", "#1f5fa8"]


def panel(ax, title, result, train, labels, model):
    """Draw boundary, training rows, rows and their answers."""
    axis = np.linspace(0, 1, 160, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    chance = model.predict_proba(grid)[:, 1].reshape(160, 160)
    ax.contourf(axis, axis, chance, levels=[0, 0.5, 1], colors=["#f3efe9", "#e3ecf5"])
    ax.scatter(*train.T, c=np.where(labels == 1, "#9db8d6", "#d6c6b0"), s=3, linewidths=0)
    for i, colour in enumerate(COLOURS):
        x, sets = result.x_origs[i], result.x_sets[i]
        sets = sets[np.isfinite(sets).all(1)]
        for answer in sets:
            ax.plot([x[0], answer[0]], [x[1], answer[1]], color=colour, lw=0.5, alpha=0.6)
        ax.scatter(*sets.T, c=colour, s=9, linewidths=0)
        ax.scatter(*x, c=colour, s=34, marker="s", edgecolors="white", linewidths=0.6)
        ax.scatter(*result.x_cfs[i], facecolors="none", edgecolors=colour, s=42, linewidths=1.2)
    ax.set(title=title, xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1), aspect="equal")


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "images")
    options = parser.parse_args()
    split = load_dataset("moons").split()
    model = MLPClassifier().fit(split.loader("train"))
    train = split.train.X
    labels = model.predict_proba(train).argmax(1)
    rest = split.test.X[model.predict_proba(split.test.X).argmax(1) == 0]
    rows = rest[np.argsort(rest[:, 0])[np.linspace(5, len(rest) - 6, ROWS).astype(int)]]
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.7), layout="constrained")
    for ax, method in zip(axes, (MOC(model, mu=40), GeCo(model)), strict=True):
        result = method.fit(split).explain(rows, split.target.classes[1])
        panel(ax, type(method).__name__, result, train, labels, model)
    path = options.out / "populations-moons.png"
    figure.savefig(path, dpi=80)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
