"""Rows per second of methods on one CPU core and on a CUDA device, on the same models.

    python benchmarks/gpu_explain.py [--datasets heloc-like,adult-like] [--rows 250]
        [--methods ppcef,cchvae,...] [--seconds 100] [--device cuda]

Every method explains the same rows twice: with its model, density and autoencoder on the CPU, in
a process of its own with one thread, and on the device, one method at a time. `ratio` is CPU time
over time on the device, and is what `cel.benchmark.placement` knows of a method; `start` is what a
fresh process pays before its first result on the device. `answered` and `L2` are of both sides:
they differ by rounding alone. `heloc-like` (23 whole numbers) and `adult-like` (six numbers and
eight categories in 104 columns) are drawn here and need no file; other names are datasets. After
`--seconds` no further method begins on the device; what the CPU has not finished then is left out.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import TimeoutError as OutOfTime
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from cel.cf_methods.variants import named
from cel.datasets import load_dataset
from cel.models import load_model
from cel.models.classifiers import MLPClassifier
from cel.models.generative import VAE, default_density
from cel.protocols import Need
from cel.space import Feature, FeatureSpace

METHODS = [
    "group_ppcef", "cearm", "ppcef", "ppcef_tangents", "revise", "clue", "rbr", "moc", "geco",
    "artelt_scp", "dice", "dice_closest", "dice_gradient", "dice_genetic", "cchvae",
    "cchvae_screened", "wachter", "wachter_exact", "cem", "elastic_net", "cegp", "cadex", "roar",
    "probe", "growing_spheres", "globe_ce", "glance",
]  # fmt: skip
LIMIT = 60.0  # seconds of one search


def drawn(name):
    """Return the space and rows (n, d) of a table that looks like a well-known one."""
    rng = np.random.default_rng(0)
    numbers, sizes = (23, ()) if name == "heloc-like" else (6, (7, 16, 7, 14, 6, 5, 2, 41))
    n = 8000 if name == "heloc-like" else 20000
    hidden = rng.normal(size=(n, 4))
    mixed = hidden @ rng.normal(size=(4, numbers)) + 0.5 * rng.normal(size=(n, numbers))
    ranks = mixed.argsort(0).argsort(0) / (n - 1)
    parts = [np.round(ranks * 50) / 50]
    features = [
        Feature(name=f"n{k}", kind="integer", columns=(k,), step=0.02) for k in range(numbers)
    ]
    at = numbers
    for k, size in enumerate(sizes):
        scores = hidden @ rng.normal(size=(4, size)) + rng.gumbel(size=(n, size))
        parts.append(np.eye(size)[scores.argmax(1)])
        names, columns = tuple(map(str, range(size))), tuple(range(at, at + size))
        features.append(
            Feature(name=f"c{k}", kind="categorical", columns=columns, categories=names)
        )
        at += size
    y = (hidden[:, 0] + 0.5 * hidden[:, 1] ** 2 + 0.3 * rng.normal(size=n) > 0.8).astype(np.int64)
    return FeatureSpace(tuple(features)), np.hstack(parts).astype(np.float32), y


def made(name, folder, device):
    """Train the models of a dataset into a folder; return space, training rows and all rows."""
    if name.endswith("-like"):
        space, x, y = drawn(name)
    else:
        split = load_dataset(name, binary=True).split()
        space, x, y = split.space, split.train.X, split.train.y
    options = {"device": device, "random_state": 0}
    model = MLPClassifier(epochs=20, **options).fit(x, y, space=space)
    seen = model.predict_proba(x).argmax(1)
    density = default_density(space, epochs=10, **options).fit(x, seen, space=space)
    vae = VAE(latent=8, hidden=(64, 32), epochs=10, **options).fit(x, space=space)
    for label, thing in (("model", model), ("density", density), ("vae", vae)):
        thing.save(folder / f"{name}.{label}.safetensors")
    np.savez(folder / f"{name}.npz", x=x, y=y, rows=np.flatnonzero(seen == 0))
    return space


def explained(folder, name, space, label, rows, device):
    """Return (seconds, share answered, mean L2) of a method that explains so many rows."""
    torch.set_num_threads(1)
    saved = np.load(folder / f"{name}.npz")
    cls, params = named(label)
    extra = {"space": space, "time_limit": LIMIT}
    if Need.DENSITY in cls.needs:
        extra["gen_model"] = load_model(folder / f"{name}.density.safetensors", device=device)
    if cls.autoencoder_settings:
        extra["autoencoder"] = load_model(folder / f"{name}.vae.safetensors", device=device)
    model = load_model(folder / f"{name}.model.safetensors", device=device)
    method = cls(model, **(extra | params)).fit(saved["x"], saved["y"])
    x = saved["x"][saved["rows"][:rows]]
    if device != "cpu" and label not in ("group_ppcef", "cearm", "artelt_scp"):
        method.explain(x[:8], 1)  # libraries of the device are loaded now
    found = method.explain(x, 1)
    ok = found.found
    away = np.linalg.norm((found.x_cfs - x)[ok], axis=1)
    seconds = found.seconds["explain_cpu" if device == "cpu" else "explain"]
    return seconds, float(ok.mean()), float(away.mean()) if len(away) else float("nan")


def started(device):
    """Return the seconds before the first result of a fresh process on the device."""
    began = time.perf_counter()
    x = torch.rand(64, 64, device=device, requires_grad=True)
    (x @ x).square().sum().backward()
    x.grad.cpu()
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", default="heloc-like,adult-like")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rows", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) - 2))
    options = parser.parse_args()
    began = time.perf_counter()
    print(f"start: {started(options.device):.2f} s on {options.device}", flush=True)
    names, labels = options.datasets.split(","), options.methods.split(",")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        spaces = {name: made(name, folder, options.device) for name in names}
        print(f"models: {time.perf_counter() - began:.0f} s", flush=True)
        pool = ProcessPoolExecutor(options.jobs, get_context("spawn"))
        todo = [(name, label) for label in labels for name in names]
        here = {
            job: pool.submit(
                explained, folder, job[0], spaces[job[0]], job[1], options.rows, "cpu"
            )
            for job in todo
        }
        print("| dataset | method | CPU rows/s | device rows/s | ratio | answered | L2 |")
        print("|---|---|---|---|---|---|---|")
        for name, label in todo:
            if time.perf_counter() - began > options.seconds:
                break
            report(folder, name, spaces[name], label, options, here[name, label], began)
        pool.shutdown(wait=False, cancel_futures=True)
        for process in pool._processes.copy().values() if pool._processes else ():
            process.terminate()
    print(f"all: {time.perf_counter() - began:.0f} s")


def report(folder, name, space, label, options, here, began):
    """Print one line: a method on the device, beside what it did on the CPU."""
    try:
        there = explained(folder, name, space, label, options.rows, options.device)
    except RuntimeError as error:  # a method that cannot: the point of the table
        print(f"| {name} | {label} | device: {str(error).splitlines()[0][:150]} |", flush=True)
        return
    try:
        cpu = here.result(timeout=max(0.1, options.seconds - (time.perf_counter() - began)))
    except OutOfTime:
        cpu = (float("nan"),) * 3
    rate = [options.rows / max(side[0], 1e-9) for side in (cpu, there)]
    print(
        f"| {name} | {label} | {rate[0]:.3g} | {rate[1]:.3g} | {cpu[0] / there[0]:.2f} "
        f"| {cpu[1]:.3f}, {there[1]:.3f} | {cpu[2]:.4g}, {there[2]:.4g} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
