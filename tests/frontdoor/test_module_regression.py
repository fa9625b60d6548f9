"""A torch module that predicts numbers in its owner's units."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import cel


@pytest.fixture(scope="module")
def homes():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"area": rng.uniform(20, 200, 300).round(1), "rooms": rng.integers(1, 7, 300)}
    )
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():  # 3,000 per square metre, 10,000 per room, 50,000 for nothing
        net[0].weight[:] = torch.tensor([[1.0, 0], [0, 1], [0, 0], [0, 0]])
        net[0].bias.zero_()
        net[2].weight[:] = torch.tensor([[3000.0, 10_000, 0, 0]])
        net[2].bias[:] = 50_000.0
    return frame, net


def price(frame):
    return (3000 * frame.area + 10_000 * frame.rooms + 50_000).to_numpy()


@pytest.mark.parametrize(
    ("target", "ends"),
    [
        (500_000.0, (470_000, 530_000)),
        ((450_000, 550_000), (450_000, 550_000)),
        (">= 400_000".replace("_", ""), (400_000, np.inf)),
        ("<= 150000", (-np.inf, 150_000)),
    ],
)
def test_targets_are_in_the_units_of_the_module(homes, target, ends):
    frame, net = homes
    low, high = ends
    rows = frame[~((price(frame) >= low) & (price(frame) <= high))].head(12)
    result = cel.explain(net, rows, background=frame, target=target, task="regression")
    assert result.found.sum() >= 10
    answers = price(result.to_frame())
    assert (answers >= low - 1).all()
    assert (answers <= high + 1).all()
    told = float(result.overview().outcome.iloc[0].replace(",", ""))
    assert told == pytest.approx(price(rows)[0], rel=1e-3)


def test_shares_of_the_prediction(homes):
    frame, net = homes
    rows = frame[price(frame) < 300_000].head(8)
    result = cel.explain(net, rows, background=frame, target="+20%", task="regression")
    assert result.found.all()
    assert (price(result.to_frame()) >= 1.2 * price(rows) - 1).all()


def test_its_layers_and_its_rules_speak_the_same_units(homes):
    frame, net = homes
    explainer = cel.Explainer(net, frame, target=">= 400000", task="regression")
    x = torch.as_tensor(explainer.model.pipeline_.transform(frame))
    layers = explainer.model.relu_().scores(x)
    torch.testing.assert_close(layers.float(), explainer.model.logits(x), atol=1e-4, rtol=1e-4)
    spread = (price(frame) - price(frame).min()) / np.ptp(price(frame))
    np.testing.assert_allclose(layers[:, 0].numpy(), spread, atol=1e-4)
    rows = frame[price(frame) < 300_000]
    rules = cel.explain_group(net, rows, background=frame, target=">= 400000", task="regression")
    assert rules.method == "tcrex"
    done = rules.result.to_frame()
    assert len(done) > len(rows) / 2
    assert (price(done) >= 400_000 - 1).all()
