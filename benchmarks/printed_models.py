"""Columns and networks of publications, rebuilt for `published.py`: what was explained there.

Each table stands for the files of a published repository, as far as they can be made from ours,
and has a recipe: how that repository trains. Own code after their descriptions and sources.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from cel.datasets import FileDataset, load_dataset
from cel.models import wrap
from cel.space import FeatureSpace
from printed_settings import FOUR, TWO, adult_columns, cut, unit

OUTLIER = 3.0  # standard deviations beyond which CARLA's file of GMC has no row


@dataclass(frozen=True)
class Recipe:
    """How a ReLU network is trained; `hidden` () is a linear model."""

    hidden: tuple[int, ...]
    epochs: int
    batch: int
    lr: float
    rms: bool = False
    decay: float = 0.0
    stop: int = 0  # ends after so many epochs in a row that do not lower the loss
    even: bool = False  # weights begin uniform by the rule of Glorot and Bengio

    def fit(self, x, y, space, seed):
        """Return a model of two classes, wrapped so that every method can explain it."""
        torch.manual_seed(seed)
        sizes, layers = [x.shape[1], *self.hidden, 2], []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
            if self.even:
                nn.init.xavier_uniform_(layers[-2].weight)
        net = nn.Sequential(*layers[:-1])
        kind = torch.optim.RMSprop if self.rms else torch.optim.Adam
        descent = kind(net.parameters(), lr=self.lr, weight_decay=self.decay)
        rows, labels = torch.as_tensor(x), torch.as_tensor(y).long()
        how = "sum" if self.decay else "mean"  # what weights are weighed against
        last, idle = torch.inf, 0
        for _ in range(self.epochs):
            for at in torch.split(torch.randperm(len(x)), self.batch):
                descent.zero_grad()
                loss = nn.functional.cross_entropy(net(rows[at]), labels[at], reduction=how)
                loss.backward()
                descent.step()
            if self.stop:
                idle = idle + 1 if loss.item() >= last else 0
                last = loss.item()
                if idle == self.stop:
                    break
        return wrap(net, classes=(0, 1), output="logits", space=space)


def carla_adult():
    """Adult in CARLA: numbers in [0, 1], education as a rank, two columns per category."""
    data = load_dataset("adult", binary=True)
    columns = []
    for name, column in adult_columns(data.frame):
        columns += [column, 1 - column] if name in TWO else [column]
    return _free(np.stack(columns, 1), data.table.y, data.target.desired_position or 0)


def carla_gmc():
    """GMC in CARLA: all 115,527 complete rows without a number beyond three deviations."""
    data = FileDataset("give_me_some_credit")
    whole = data.card.rows.model_copy(update={"downsample": False})
    data.card = data.card.model_copy(update={"rows": whole})
    x = data.frame.to_numpy(dtype=float)
    keep = (np.abs((x - x.mean(0)) / x.std(0)) < OUTLIER).all(1)
    columns = np.stack([unit(c) for c in x[keep].T], 1)
    return _free(columns, data.table.y[keep], data.target.desired_position or 0)


def coded_heloc():
    """HELOC of T-Rex: special values stay numbers, two columns become one per code."""
    data = load_dataset("heloc", binary=True)
    columns = []
    for name in data.frame:
        values = data.frame[name].to_numpy(dtype=float)
        if name.startswith("MaxDelq"):
            columns += [(values == code).astype(float) for code in np.unique(values)]
        else:
            columns.append(unit(values))
    goal = data.target.desired_position or 0
    rows = _free(np.stack(columns, 1), data.table.y, goal)
    return replace(rows, test=rows.test[rows.outcomes != goal])  # rejected, and rightly


def standard_german():
    """German credit of RBR: three numbers in standard deviations, a category as free columns.

    The same people come again in a corrected file, whose category has other names and hence other
    columns.
    """
    data = load_dataset("german_credit", binary=True)
    numbers = np.stack([data.frame[n].to_numpy(dtype=float) for n in FOUR], 1)
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    status = data.frame["personal_status_sex"].astype(str).to_numpy()
    own = (status[:, None] == np.unique(status)).astype(float)
    parts = [numbers, own, np.zeros_like(own)]
    goal, labels = data.target.desired_position or 0, data.table.y
    rows = _free(np.concatenate(parts, 1), labels, goal)
    late = np.concatenate([parts[0], parts[2], parts[1]], 1).astype(np.float32)
    wide = FeatureSpace.continuous(late.shape[1], lower=-10.0, upper=10.0)
    return replace(rows, space=wide, late=(late, labels))


def _free(x, y, goal):
    """Return rows whose columns are all free numbers."""
    return cut(FeatureSpace.continuous(x.shape[1]), x, y, goal)


TABLES = {
    "adult_of_carla": carla_adult,
    "gmc_of_carla": carla_gmc,
    "heloc_of_codes": coded_heloc,
    "german_of_rbr": standard_german,
}
RECIPES = {
    ("adult_of_carla", "mlp"): Recipe((50,), 30, 1024, 0.002, rms=True),
    ("adult_of_carla", "lr"): Recipe((), 100, 1024, 0.002, rms=True),
    ("gmc_of_carla", "mlp"): Recipe((50,), 50, 2048, 0.002, rms=True),
    ("gmc_of_carla", "lr"): Recipe((), 50, 2048, 0.002, rms=True),
    ("heloc_of_codes", "mlp"): Recipe((128, 128), 50, 256, 0.001),
    ("german_of_rbr", "mlp"): Recipe(
        (20, 50, 20), 1000, 10_000, 0.001, decay=0.1, stop=3, even=True
    ),
}
