"""Small random networks and independent solvers for them."""

import itertools

import numpy as np
import torch
from scipy.optimize import linprog
from torch import nn

from cel.models import wrap

AIM = 1.05e-4


def random_module(widths, seed=0, gain=3.0):
    """ReLU layers whose kinks cross the unit box."""
    rng = torch.Generator().manual_seed(seed)
    parts = []
    for a, b in itertools.pairwise(widths):
        layer = nn.Linear(a, b)
        last = len(parts) == 2 * (len(widths) - 2)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(b, a, generator=rng) * (1.0 if last else gain) / a**0.5)
            layer.bias.copy_(-0.5 * layer.weight.sum(1) + 0.3 * torch.randn(b, generator=rng))
        parts += [layer] if last else [layer, nn.ReLU()]
    return nn.Sequential(*parts)


def wrapped(module, space, classes=2):
    return wrap(module, space=space, task="classification", classes=list(range(classes)))


def weights(module):
    return [
        (m.weight.detach().double().numpy(), m.bias.detach().double().numpy())
        for m in module
        if isinstance(m, nn.Linear)
    ]


def by_patterns(module, x, target, scale, low=0.0, high=1.0):
    """Return the least L1 cost over all activation patterns, one linear program for each."""
    layers = weights(module)
    best = np.inf
    widths = [len(b) for _, b in layers[:-1]]
    d = len(x)
    cost = np.tile(1 / scale, 2)
    ends = np.broadcast_to(low, x.shape), np.broadcast_to(high, x.shape)
    bounds = [(0, b) for b in ends[1] - x] + [(0, b) for b in x - ends[0]]
    for pattern in itertools.product([0, 1], repeat=sum(widths)):
        slope, height, rows, right, start = np.eye(d), np.zeros(d), [], [], 0
        for weight, bias in layers[:-1]:
            slope, height = weight @ slope, weight @ height + bias
            on = np.array(pattern[start : start + len(bias)])
            start += len(bias)
            side = np.where(on, 1.0, -1.0)
            rows.append(-side[:, None] * slope)
            right.append(side * height)
            slope, height = on[:, None] * slope, on * height
        slope, height = layers[-1][0] @ slope, layers[-1][0] @ height + layers[-1][1]
        others = [k for k in range(len(height)) if k != target]
        rows.append(slope[others] - slope[target])
        right.append(height[target] - height[others] - AIM)
        a, b = np.concatenate(rows), np.concatenate(right)
        program = linprog(
            cost, A_ub=np.hstack([a, -a]), b_ub=b - a @ x, bounds=bounds, method="highs"
        )
        if program.status == 0:
            best = min(best, program.fun)
    return best


def by_scip(module, x, target, scale, limit, low=0.0, high=1.0):
    """Return SCIP's optimum of the mixed-integer program, and its point."""
    from pyscipopt import Model, quicksum

    layers, model = weights(module), Model()
    model.hideOutput()
    model.setParam("limits/time", limit)
    now = [model.addVar(lb=low, ub=high) for _ in x]
    moved = [model.addVar(lb=0.0, ub=high - low) for _ in x]
    point = now
    for v, m, origin in zip(now, moved, x, strict=True):
        model.addCons(m >= v - float(origin))
        model.addCons(m >= float(origin) - v)
    ends = np.full(len(x), low), np.full(len(x), high)
    for number, (weight, bias) in enumerate(layers):
        most = np.maximum(weight, 0) @ ends[1] + np.minimum(weight, 0) @ ends[0] + bias
        least = np.maximum(weight, 0) @ ends[0] + np.minimum(weight, 0) @ ends[1] + bias
        z = [
            quicksum(float(w) * v for w, v in zip(row, now, strict=True)) + float(b)
            for row, b in zip(weight, bias, strict=True)
        ]
        if number == len(layers) - 1:
            for k in range(len(bias)):
                if k != target:
                    model.addCons(z[target] - z[k] >= AIM)
            break
        hidden = []
        for expression, bottom, top in zip(z, least, most, strict=True):
            h = model.addVar(lb=0.0, ub=max(float(top), 0.0))
            on = model.addVar(vtype="B")
            model.addCons(h >= expression)
            model.addCons(h <= expression - min(float(bottom), 0.0) * (1 - on))
            model.addCons(h <= max(float(top), 0.0) * on)
            hidden.append(h)
        now, ends = hidden, (np.maximum(least, 0), np.maximum(most, 0))
    model.setObjective(quicksum(float(1 / s) * m for s, m in zip(scale, moved, strict=True)))
    model.optimize()
    if model.getNSols() == 0:
        return model.getStatus(), np.inf, None
    return model.getStatus(), model.getObjVal(), np.array([model.getVal(v) for v in point])
