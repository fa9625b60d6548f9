"""How long training takes: ratios measured in one run, on one thread.

    CEL_DATA=... python benchmarks/training.py                    # all ratios, some minutes
    CEL_DATA=... python benchmarks/training.py --device cuda      # ten flows, 2,000 epochs

Sections: gradients by hand against autograd (alone with `--only by_hand`, some seconds); our loop
against a plain DataLoader loop; `fit_many` against separate fits and against
zuko; and what the 180 predictors and 180 flows of suite `paper` cost by that measure.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from math import ceil
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cel.datasets import load_dataset
from cel.errors import CelError
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.models.generative.defaults import default_density
from cel.models.inputs import FitRows, read_rows
from cel.models.regressors import MLPRegressor
from cel.models.training import loop
from cel.models.training.by_hand import _ByGraph
from cel.models.training.fused_adam import FusedAdam
from cel.models.training.many import fit_many
from cel.protocols import Task

PAPER = [
    "adult",
    "audit",
    "bank_marketing",
    "blobs",
    "credit_default",
    "digits",
    "german_credit",
    "give_me_some_credit",
    "heloc",
    "law",
    "lending_club",
    "moons",
    "wine",
    "concrete",
    "diabetes",
    "scm20d",
    "synthetic",
    "yacht",
]
FOLDS, MODELS_PER_FOLD = 5, 2


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def fold_rows(name: str, count: int) -> list[FitRows]:
    folds = list(load_dataset(name).folds())
    chosen = [folds[i % len(folds)] for i in range(count)]
    return [read_rows(f.train.X, f.train.y, f.space, (f.valid.X, f.valid.y)) for f in chosen]


def plain_loop(rows: FitRows, epochs: int, batch: int) -> nn.Module:
    """What one writes without a library: DataLoader, Adam, cross entropy, validation."""
    torch.manual_seed(0)
    width = rows.X.shape[1]
    net = nn.Sequential(
        nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    train = TensorDataset(rows.X, torch.as_tensor(rows.y))
    held = TensorDataset(rows.valid_x, torch.as_tensor(rows.valid_y))
    for _ in range(epochs):
        net.train()
        for x, y in DataLoader(train, batch_size=batch, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            sum(float(nn.functional.cross_entropy(net(x), y)) for x, y in DataLoader(held, batch))
    return net


def loop_section(epochs: int) -> dict[int, float]:
    """Return our CPU seconds per epoch by batch size."""
    print(f"\n## Our loop against a DataLoader loop ({epochs} epochs, HELOC)")
    rows = fold_rows("heloc", 1)[0]
    plain_loop(rows, 1, 256)
    MLPClassifier(epochs=1).fit(rows.X, rows.y)
    seconds = {}
    for batch in (128, 256, 1024):
        model = MLPClassifier(epochs=epochs, patience=epochs, batch_size=batch)
        ours = cpu_seconds(lambda m=model: m.adopt(j := m.prepare(rows), m._solve(j)))
        plain = cpu_seconds(lambda b=batch: plain_loop(rows, epochs, b))
        seconds[batch] = ours / epochs
        print(f"batch {batch:5d}: plain {plain:6.2f} s, ours {ours:6.2f} s, {plain / ours:.2f}x")
    return seconds


@contextmanager
def autograd() -> Iterator[None]:
    """Train with the graph of autograd and `optimizer.step()`, as for any other module."""
    with (
        patch.object(loop, "gradients", _ByGraph),
        patch.object(FusedAdam, "move", lambda self: self.step()),
    ):
        yield


def products(width: int, outputs: int, models: int) -> Callable[[], object]:
    """Return the products of one step of 256-256 networks, batch 128, and nothing else."""
    sizes = [width, 256, 256, outputs]
    inputs = [torch.rand(models, 128, k) for k in sizes]
    weights = [torch.rand(models, b, a) for a, b in pairwise(sizes)]
    if models == 1:
        inputs, weights = [x[0] for x in inputs], [w[0] for w in weights]

    def step() -> None:
        for x, w, g in zip(inputs[:-1], weights, inputs[1:], strict=True):
            torch.matmul(x, w.mT)
            torch.matmul(g.mT, x)
        for w, g in zip(weights[1:], inputs[2:], strict=True):
            torch.matmul(g, w)

    return step


def both_ways(
    rows: list[FitRows], epochs: int, rounds: int, maker: Callable = MLPClassifier
) -> tuple[float, float]:
    """Return the least CPU seconds by autograd and by hand, in turn; the weights are the same."""
    spent, weights = [], []

    def fit() -> None:
        settings = {"preset": "paper", "epochs": epochs}
        models = [maker(random_state=s, **settings) for s in range(len(rows))]
        fit_many(models, rows)
        weights.append([t for m in models for t in m.module_.state_dict().values()])

    for _ in range(rounds):
        with autograd():
            graph = cpu_seconds(fit)
        spent.append((graph, cpu_seconds(fit)))
    assert all(torch.equal(a, b) for w in weights for a, b in zip(weights[0], w, strict=True))
    return min(s[0] for s in spent), min(s[1] for s in spent)


def by_hand_section(rounds: int = 5) -> None:
    """One epoch is all steps and one validation; the last step is counted as a full one."""
    print("\n## Gradients by hand against autograd: CPU ms per model and epoch, preset `paper`")
    print("| dataset | columns | steps | stack | products | autograd | by hand | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name, epochs in (("moons", 20), ("heloc", 2), ("adult", 1)):
        for count in (1, 5):
            rows = fold_rows(name, count)
            steps, width = ceil(len(rows[0].X) / 128), rows[0].X.shape[1]
            graph, hand = (t / epochs for t in both_ways(rows, epochs, rounds))
            multiply = products(width, 2, count)
            least = min(cpu_seconds(multiply) for _ in range(100)) * steps
            told = [f"{1000 * t / count:.1f}" for t in (least, graph, hand)]
            print(f"| {name} | {width} | {steps} | {count}", *told, sep=" | ", end=" | ")
            print(f"{graph / hand:.2f} |", flush=True)


def densities_by_hand_section(rounds: int = 5) -> None:
    """Flows of numbers and mixed densities, one at a time, as a benchmark run trains them."""
    print("\n## Densities by hand against autograd: CPU ms per epoch, preset `paper`")
    print("| dataset | density | columns | steps | autograd | by hand | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name, epochs in (("concrete", 20), ("heloc", 4), ("scm20d", 3), ("adult", 1)):
        rows, space = fold_rows(name, 1), load_dataset(name).split().space
        maker = partial(default_density, space)
        graph, hand = (t / epochs for t in both_ways(rows, epochs, rounds, maker))
        steps, width = ceil(len(rows[0].X) / 1024), rows[0].X.shape[1]
        print(f"| {name} | {maker().name} | {width} | {steps}", end=" | ")
        print(f"{1000 * graph:.1f} | {1000 * hand:.1f} | {graph / hand:.2f} |", flush=True)


def zuko_fit(rows: FitRows, epochs: int, seed: int, noise: float) -> tuple[float, list[float]]:
    """Train zuko's MAF in the plain way; return CPU seconds and the held-out log-likelihoods."""
    import zuko

    torch.manual_seed(seed)
    hot = nn.functional.one_hot(torch.as_tensor(rows.y), 2).float()
    held = nn.functional.one_hot(torch.as_tensor(rows.valid_y), 2).float()
    loc, scale = rows.X.mean(0), (rows.X.var(0) + noise**2).sqrt()
    flow = zuko.flows.MAF(rows.X.shape[1], 2, transforms=8, hidden_features=[16] * 4)
    optimizer = torch.optim.Adam(flow.parameters(), lr=3e-3)
    data = TensorDataset(rows.X, hot)
    held_out = []
    start = time.process_time()
    for _ in range(epochs):
        for x, c in DataLoader(data, batch_size=1024, shuffle=True):
            z = (x + noise * torch.randn_like(x) - loc) / scale
            optimizer.zero_grad()
            (-flow(c).log_prob(z).mean()).backward()
            optimizer.step()
        with torch.no_grad():
            z = (rows.valid_x - loc) / scale
            held_out.append(float((flow(held).log_prob(z) - scale.log().sum()).mean()))
    return time.process_time() - start, held_out


def flow_section(epochs: int, count: int = 10) -> float:
    """Return our CPU seconds per flow and epoch."""
    try:
        from cel.models.generative import MaskedAutoregressiveFlow
    except ImportError:
        print("\n## Flows: cel.models.generative has no MaskedAutoregressiveFlow")
        return float("nan")
    print(f"\n## {count} HELOC flows, {epochs} epochs each, batch 1024")
    rows = fold_rows("heloc", count)
    settings = {"preset": "paper", "epochs": epochs, "patience": epochs}
    stack = [MaskedAutoregressiveFlow(random_state=s, **settings) for s in range(count)]
    ours = cpu_seconds(lambda: fit_many(stack, rows))
    one = MaskedAutoregressiveFlow(**settings)
    alone = cpu_seconds(lambda: one.adopt(j := one.prepare(rows[0]), one._solve(j))) * count
    noise = stack[0].noise
    pairs = [zuko_fit(r, epochs, s, noise) for s, r in enumerate(rows)]
    zuko = sum(p[0] for p in pairs)
    theirs = best_so_far([p[1] for p in pairs])
    mine = best_so_far([-m.history_.valid_loss.to_numpy() for m in stack])
    print(f"zuko      {zuko:7.2f} s  held-out {theirs[-1]:7.3f} nat")
    print(f"separate  {alone:7.2f} s  (one fit times {count})  {zuko / alone:.2f}x of zuko")
    print(f"fit_many  {ours:7.2f} s  held-out {mine[-1]:7.3f} nat  {zuko / ours:.2f}x of zuko")
    level = min(theirs[-1], mine[-1])
    first, second = (int(np.argmax(t >= level)) + 1 for t in (theirs, mine))
    ratio = zuko * first / (ours * second)
    print(
        f"to {level:.3f} nat: zuko {first} epochs, {zuko * first / epochs:.2f} s; "
        f"fit_many {second} epochs, {ours * second / epochs:.2f} s; "
        f"{ratio:.2f}x at equal held-out likelihood"
    )
    return ours / count / epochs


def best_so_far(traces: Sequence) -> np.ndarray:
    """Return the mean over models of the best value until each epoch."""
    return np.mean([np.maximum.accumulate(t) for t in traces], axis=0)


def predictor_section() -> None:
    print("\n## fit_many against separate fits, default preset")
    for name, maker in (("heloc", MLPClassifier), ("concrete", MLPRegressor)):
        rows = fold_rows(name, FOLDS)
        many = [maker(random_state=s) for s in range(FOLDS)]
        together = cpu_seconds(lambda m=many, r=rows: fit_many(m, r))
        alone = [maker(random_state=s) for s in range(FOLDS)]

        def one_by_one(models: Sequence = alone, data: Sequence = rows) -> None:
            for m, r in zip(models, data, strict=True):
                j = m.prepare(r)
                m.adopt(j, m._solve(j))

        apart = cpu_seconds(one_by_one)
        losses = [np.mean([m.history_.valid_loss.min() for m in g]) for g in (many, alone)]
        print(
            f"{name:9s} apart {apart:6.2f} s (loss {losses[1]:.4f}), together {together:6.2f} s "
            f"(loss {losses[0]:.4f}), {apart / together:.2f}x"
        )
    rows = fold_rows("adult", 1)[0]
    model = LogisticRegression()
    spent = cpu_seconds(lambda: model.adopt(j := model.prepare(rows), model._solve(j)))
    print(f"logistic regression on Adult, to the optimum: {spent:.2f} s")


def suite_section(mlp_epoch: dict[int, float], flow_epoch: float) -> None:
    """Extrapolate from HELOC: cost grows with the steps per epoch, for flows also with columns.

    Epochs until patience ends a training, as seen on HELOC, Adult, German Credit, Digits (classes)
    and on Concrete, Yacht, Diabetes, SCM20D (numbers).
    """
    print("\n## Suite `paper`: 18 datasets x 5 folds x 2 models, from HELOC's cost per epoch")
    splits = {name: load_dataset(name).split() for name in PAPER}
    heloc = splits["heloc"]
    seen = {"paper": (128, 330, 800, 600), "default": (128, 40, 180, 200)}
    for preset, (batch, soft, hard, flow_epochs) in seen.items():
        mlps = flows = 0.0
        for split in splits.values():
            n, m = len(split.train), len(heloc.train)
            epochs = soft if split.target.task is Task.CLASSIFICATION else hard
            mlps += FOLDS * epochs * mlp_epoch[batch] * ceil(n / batch) / ceil(m / batch)
            # Half of a flow's step is spent on layers of fixed width.
            wide = 0.5 + 0.5 * split.space.width / heloc.space.width
            steps = ceil(n / 1024) / ceil(m / 1024)
            flows += FOLDS * MODELS_PER_FOLD * flow_epochs * flow_epoch * steps * wide
        print(
            f"{preset:8s} 90 MLPs ({soft}/{hard} epochs): {mlps / 60:5.1f} min; 90 linear models: "
            f"< 1 min; 180 flows ({flow_epochs} epochs): {flows / 3600:5.2f} h; CPU, one thread"
        )


def cuda_section(epochs: int) -> None:
    from cel.models.generative import MaskedAutoregressiveFlow

    print(f"\n## {torch.cuda.get_device_name()}: ten flows, {epochs} epochs, batch 1024")
    for name in ("heloc", "adult"):
        rows = fold_rows(name, 10)
        flows = [
            MaskedAutoregressiveFlow(
                preset="paper", epochs=epochs, patience=epochs, random_state=s, device="cuda"
            )
            for s in range(10)
        ]
        torch.cuda.synchronize()
        start = time.perf_counter()
        fit_many(flows, rows)
        torch.cuda.synchronize()
        spent = time.perf_counter() - start
        steps = epochs * ceil(len(rows[0].X) / 1024)
        held = np.mean([-m.history_.valid_loss.min() for m in flows])
        print(
            f"{name}: {spent:.1f} s, {1e6 * spent / steps / 10:.0f} us per flow and step, "
            f"held-out {held:.3f} nat",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--only", choices=["by_hand"])
    options = parser.parse_args()
    if options.device == "cuda":
        cuda_section(options.epochs or 2000)
        return
    torch.set_num_threads(1)
    try:
        load_dataset("heloc").split()
    except CelError as error:
        raise SystemExit(f"this benchmark needs the real data: {error}") from error
    by_hand_section()
    densities_by_hand_section()
    if options.only:
        return
    mlp_epoch = loop_section(options.epochs or 5)
    flow_epoch = flow_section(options.epochs or 40)
    predictor_section()
    suite_section(mlp_epoch, flow_epoch)


if __name__ == "__main__":
    main()
