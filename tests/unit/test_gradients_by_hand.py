"""Gradients by hand give the bytes of autograd, and only where they are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cel.models.classifiers import MLPClassifier
from cel.models.inputs import read_rows
from cel.models.layers import Network
from cel.models.regressors import MLPRegressor
from cel.models.training import loop
from cel.models.training.by_hand import _ByGraph, _ByHand, gradients
from cel.models.training.fused_adam import FusedAdam
from cel.models.training.many import fit_many

EPOCHS = 12


def rows(maker, n, width, seed):
    """Return rows with 3 classes or 2 targets, or with 1 target where there is one column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 40, width)).astype(np.float32)
    noise = rng.normal(size=(n + 40, 2))
    if maker is MLPClassifier:
        y = np.abs(X[:, :1] + noise).round().clip(0, 2)[:, 0].astype(int)
    else:
        y = (100 + 10 * (X[:, :1] * noise + noise))[:, : min(width, 2)].astype(np.float32)
    return read_rows(X[:n], y[:n], None, (X[n:], y[n:]))


def learned(maker, datas, **settings):
    """Return all weights and losses of models trained together, or alone where there is one."""
    options = {"hidden": (33, 20), "epochs": EPOCHS, "patience": 5, "batch_size": 32, "lr": 3e-3}
    models = [maker(random_state=s, **options | settings) for s in range(len(datas))]
    fit_many(models, datas)
    weights = [t for m in models for t in m.module_.state_dict().values()]
    losses = [torch.tensor(m.history_.drop(columns="seconds").to_numpy()) for m in models]
    return weights + losses


def by_graph(monkeypatch):
    monkeypatch.setattr(loop, "gradients", _ByGraph)


@pytest.mark.parametrize("maker", [MLPClassifier, MLPRegressor])
@pytest.mark.parametrize(
    ("lengths", "width"),
    [((200,), 5), ((97,), 1), ((160, 160, 160), 5), ((185, 187, 190, 186), 91), ((65, 70), 1)],
    ids=["alone", "a row over", "stack", "unequal folds", "narrow"],
)
def test_both_paths_give_the_same_bytes(monkeypatch, maker, lengths, width):
    """Also the losses of every epoch; some models stop early, so stacks become smaller."""
    datas = [rows(maker, n, width, seed) for seed, n in enumerate(lengths)]
    taken = []
    monkeypatch.setattr(loop, "gradients", lambda *a: taken.append(gradients(*a)) or taken[-1])
    here = learned(maker, datas)
    assert {type(t) for t in taken} == {_ByHand}
    assert (len(taken) > 1) == (len(datas) > 1), "some model of every stack stops early"
    by_graph(monkeypatch)
    there = learned(maker, datas)
    assert len(here) == len(there)
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


def test_printed_networks_learn_the_same_bytes(monkeypatch):
    data = [rows(MLPClassifier, 700, 23, 0)]
    here = learned(MLPClassifier, data, hidden=(256, 256), batch_size=128)
    by_graph(monkeypatch)
    there = learned(MLPClassifier, data, hidden=(256, 256), batch_size=128)
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


class _Other(MLPClassifier):
    def _loss(self, module, *batch):
        return 2 * super()._loss(module, *batch)


def _frozen(network):
    network.layers[0].weight.requires_grad_(False)
    return network


@pytest.mark.parametrize(
    ("module", "loss"),
    [
        (Network(3, (4,), 2, dropout=0.1), MLPClassifier()._loss),
        (type("Mine", (Network,), {})(3, (4,), 2), MLPClassifier()._loss),
        (_frozen(Network(3, (4,), 2)), MLPClassifier()._loss),
        (Network(3, (4,), 2), _Other()._loss),
        (torch.nn.Linear(3, 2), MLPClassifier()._loss),
    ],
    ids=["dropout", "another network", "frozen", "another loss", "one layer"],
)
def test_what_is_not_known_is_left_to_autograd(module, loss):
    assert isinstance(gradients(module, loss), _ByGraph)
    assert isinstance(gradients(Network(3, (4,), 2), MLPClassifier()._loss), _ByHand)


def test_adam_is_that_of_torch(monkeypatch):
    """Also with another step size, and where a parameter has no gradient for a while."""
    made = [torch.rand(3, 5, 4), torch.rand(3, 7), torch.rand(3, 2)]
    ours, theirs = ([p.clone().requires_grad_() for p in made] for _ in range(2))
    own = FusedAdam(ours, lr=0.01, weight_decay=0.1)
    torchs = torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.1, fused=True)
    careful, plain = [], torch.optim.AdamW.step
    monkeypatch.setattr(FusedAdam, "step", lambda self: (careful.append(step), plain(self)))
    for step in range(12):
        if step == 8:
            own.set_lr(0.003)
            torchs.param_groups[0]["lr"] = 0.003
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        if step < 3:
            ours[2].grad = theirs[2].grad = None
        own.move()
        torchs.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert careful == [0, 1, 2, 3], "all later steps call the kernel"
