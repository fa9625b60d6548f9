"""Settings of publications, rebuilt for `published.py`: their columns, and how they searched.

Own code after the descriptions and the published repositories; each piece stands for one thing
that differs from what this library does by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from cel.datasets import load_dataset
from cel.space import Feature, FeatureSpace

TWO = {  # Adult in CARLA: every category has two values
    "workclass": "Private",
    "marital-status": "Married-civ-spouse",
    "occupation": "Exec-managerial",
    "relationship": "Husband",
    "race": "White",
    "sex": "Male",
    "native-country": "United-States",
}
SCHOOL = [
    "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad",
    "Some-college", "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
]  # fmt: skip
FOUR = ["duration_in_month", "credit_amount", "age"]  # and one category: German credit in RBR


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows of a dataset, cut into training and test rows."""

    space: FeatureSpace
    train: np.ndarray
    labels: np.ndarray
    test: np.ndarray
    goal: int
    outcomes: np.ndarray | None = None  # of the test rows
    late: tuple[np.ndarray, np.ndarray] | None = None  # rows that come later, and their labels


def encoded(name):
    """Return a dataset as the library encodes it."""
    split = load_dataset(name, binary=True).split()
    goal = split.target.desired_position or 0
    return Rows(split.space, split.train.X, split.train.y, split.test.X, goal)


def cut(space, x, y, goal):
    """Return a seeded fifth of the rows as test rows, the others as training rows."""
    order = np.random.default_rng(0).permutation(len(x))
    x, y, part = x[order].astype(np.float32), y[order], len(x) // 5
    return Rows(space, x[part:], y[part:], x[:part], goal, y[:part])


def unit(column):
    """Return a column on [0, 1]."""
    return (column - column.min()) / (column.max() - column.min())


def adult_columns(frame):
    """Give the names of Adult's features, each with its column on [0, 1]."""
    for name in frame:
        values = frame[name]
        if name in TWO:
            yield name, (values.astype(str) == TWO[name]).to_numpy(dtype=float)
        elif name == "education":
            yield name, np.array([SCHOOL.index(v) for v in values.astype(str)]) / 15
        else:
            yield name, unit(values.to_numpy(dtype=float))


def two_valued_adult():
    """Adult with one column per feature: numbers in [0, 1], education as a rank, 0 or 1 else."""
    data = load_dataset("adult", binary=True)
    x = np.stack([column for _, column in adult_columns(data.frame)], 1)
    goal = data.target.desired_position or 0
    return cut(FeatureSpace.continuous(x.shape[1]), x, data.table.y, goal)


def german_of_four():
    """German credit with duration, amount, age and personal status alone."""
    data = load_dataset("german_credit", binary=True)
    numbers = np.stack([unit(data.frame[n].to_numpy(dtype=float)) for n in FOUR], 1)
    status = data.frame["personal_status_sex"].astype(str)
    kinds = sorted(status.unique())
    labels = (status.to_numpy()[:, None] == np.array(kinds)).astype(float)
    places = range(len(FOUR), len(FOUR) + len(kinds))
    features = [Feature(name=n, columns=(i,), lower=0, upper=1) for i, n in enumerate(FOUR)]
    features.append(
        Feature(name="status", kind="categorical", columns=tuple(places), categories=tuple(kinds))
    )
    x = np.concatenate([numbers, labels], 1)
    goal = data.target.desired_position or 0
    return cut(FeatureSpace(tuple(features)), x, data.table.y, goal)


def whole_heloc():
    """HELOC without rows that hold a special value, all columns free in [0, 1]."""
    data = load_dataset("heloc", binary=True)
    keep = (data.frame.to_numpy() >= 0).all(1)
    x = np.stack([unit(c) for c in data.frame.to_numpy(dtype=float)[keep].T], 1)
    goal = data.target.desired_position or 0
    return cut(FeatureSpace.continuous(x.shape[1]), x, data.table.y[keep], goal)


TABLES = {
    "adult_of_two": two_valued_adult,
    "german_of_four": german_of_four,
    "heloc_whole": whole_heloc,
}


def rows_of(name):
    """Return a dataset by name, ours or one of the settings above."""
    return TABLES[name]() if name in TABLES else encoded(name)


def probe_descent(model, x, goal, rate, variance, rounds, steps=200):
    """Search as the code of PROBE does: every column moves, tests come every `steps` steps.

    Adam (0.001, amsgrad) on three times the excess of the first-order rate, the cross-entropy to
    (0.45, 0.55) and 0.01 times the L1 distance, a weight that falls by 0.1 from round to round and
    so rewards distance from the second on. No box, no categories, noise on all columns. Rows end
    at the first test that finds the class and at most the rate plus 0.01; `rounds` tests at most,
    which stands for the time limit of the code.

    Returns:
        (n, d) ends, NaN for rows without one.
    """
    start = torch.as_tensor(x)
    z = start.clone().requires_grad_(True)
    out, sigma = torch.full_like(start, torch.nan), math.sqrt(variance)
    adam = torch.optim.Adam([z], lr=0.001, amsgrad=True)
    weight, rng = 0.01, torch.Generator().manual_seed(0)
    for _ in range(rounds):
        for _ in range(steps):
            adam.zero_grad()
            scores = model.logits(z)
            lead = scores[:, goal] - scores[:, 1 - goal]
            slope = torch.autograd.grad(lead.sum(), z, retain_graph=True)[0].norm(dim=1)
            lost = 1 - torch.special.ndtr(lead / (sigma * slope).clamp(min=1e-9))
            chance = torch.sigmoid(lead).clamp(1e-6, 1 - 1e-6)
            entropy = -(0.55 * chance.log() + 0.45 * (1 - chance).log())
            loss = 3 * (lost - rate).clamp(min=0) + entropy + weight * (z - start).abs().sum(1)
            loss.sum().backward()
            adam.step()
        with torch.no_grad():
            open_ = out.isnan().any(1).nonzero()[:, 0]
            noise = torch.randn(len(open_), 1000, z.shape[1], generator=rng)
            copies = (z[open_, None] + sigma * noise).flatten(0, 1)
            kept = (model.logits(copies).argmax(1) == goal).reshape(len(open_), -1)
            valid = model.logits(z[open_]).argmax(1) == goal
            done = open_[valid & (1 - kept.float().mean(1) < rate + 0.01)]
            out[done] = z[done]
            if len(done) == len(open_):
                break
        weight -= 0.1
    return out.numpy()


STEP, COPIES = 0.01, 200  # of the ascent, and of each point


def stable_ascent(model, x, goal, sigma, tau, steps):
    """Go on from counterfactuals (n, d) as T-Rex:I does: up the stability, until it reaches tau.

    Each step is 0.01 long, along the slope of `mean(p(x_i) - |p(x') - p(x_i)|)` over noisy copies
    x_i of the point x', and stays in [0, 1].
    """
    z, rng = torch.as_tensor(x), torch.Generator().manual_seed(0)
    open_ = torch.arange(len(z))
    for _ in range(steps):
        if not len(open_):
            break
        at = z[open_].clone().requires_grad_(True)
        noise = sigma * torch.randn(COPIES, z.shape[1], generator=rng)
        there = model.logits((at[:, None] + noise).flatten(0, 1)).softmax(1)[:, goal]
        there = there.reshape(len(at), COPIES)
        here = model.logits(at).softmax(1)[:, goal]
        stable = (there - (there - here[:, None]).abs()).mean(1)
        slope = torch.autograd.grad(stable.sum(), at)[0]
        step = STEP * slope / slope.norm(dim=1, keepdim=True).clamp(min=1e-9)
        z[open_] = (at + step).detach().clamp(0, 1)
        open_ = open_[stable.detach() < tau]
    return z.numpy()
