"""CPU seconds of single cells of suite `standard`, and the quality of their answers.

    CEL_DATA=... python benchmarks/cell_costs.py [--datasets adult,credit_default]
        [--lines moc,geco,...] [--rows 100] [--models FOLDER] [--out FILE.csv] [--against FILE.csv]
        [--profile] [--write]

First fold, network, one thread. The flow is trained for 20 epochs only: it costs the same to ask
as a finished one. `--models` keeps network and flow for the next call. `--out` appends the lines
to a file; `--against` prints them beside those of another file, for instance one that was made by
another checkout with the same models. `digest` is equal where all answers are equal to the byte.
`--write` puts the comparison into docs/versions.md; `--datasets "" --out NOW.csv --against
BEFORE.csv --write` does so from two files alone.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import io
import pstats
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from cel.cf_methods.variants import named
from cel.metrics import MetricsOrchestrator
from cel.models import load_model
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.models.generative import default_density
from cel.models.generative.levels import DensityLevels
from cel.protocols import Need
from cel.result import EvaluationContext
from marked import put_between
from methods import cpu, load_dataset, markdown

LINES = [
    "group_ppcef", "group_ppcef_global", "group_ppcef_local", "group_ppcef_near", "moc",
    "moc_donors", "face", "geco", "geco_quick", "exact_relu", "robust_nearest", "rbr",
    "growing_spheres", "artelt_scp", "ppcef_tangents",
]  # fmt: skip
SHOWN = ["coverage", "validity", "l1", "l2", "sparsity", "density_percentile"]
EPOCHS = 20
PAGE = Path(__file__).parents[1] / "docs" / "versions.md"


class Fold:
    """The first fold of a dataset, its network, its flow, and the rows that are explained."""

    def __init__(self, name, folder, rows, linear=False):
        self.split = split = load_dataset(name, binary=True).split()
        kind = LogisticRegression if linear else MLPClassifier
        tag = f"{name}_lr" if linear else name
        self.model = _kept(folder, f"{tag}_model", lambda: kind().fit(split.loader("train")))
        self.labels = {p: self._told(getattr(split, p).X) for p in ("train", "valid", "test")}
        self.density = _kept(folder, f"{tag}_flow", self._trained)
        both = np.concatenate([split.train.X, split.valid.X])
        told = np.concatenate([self.labels["train"], self.labels["valid"]])
        self.levels = DensityLevels.of(self.density, both, told)
        self.context = EvaluationContext(
            model=self.model, density=self.density, x_train=split.train.X,
            y_train=self.labels["train"], x_test=split.test.X, y_test=self.labels["test"],
        )  # fmt: skip
        goal = split.target.desired_position or 0
        self.goal = split.target.classes[goal]
        self.rows = split.test.X[self.labels["test"] != goal][:rows]

    def _told(self, x):
        return self.model.predict_proba(x).argmax(1)

    def _trained(self):
        split = self.split
        return default_density(split.space, epochs=EPOCHS).fit(
            split.train.X, self.labels["train"], space=split.space,
            valid=(split.valid.X, self.labels["valid"]),
        )  # fmt: skip


def _kept(folder, name, make):
    """Return the model that a folder holds; made and kept if it holds none."""
    if folder is None:
        return make()
    path = folder / f"{name}.safetensors"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make().save(path)
    return load_model(path)


def cell(fold, name, profile=False):
    """Return cost and quality of one line."""
    cls, params = named(name)
    if Need.DENSITY in cls.needs:
        params["gen_model"] = fold.density
        if "levels" in cls.param_names():
            params["levels"] = fold.levels
    watch = cProfile.Profile()
    if profile:
        watch.enable()
    method, fit_s = cpu(lambda: cls(fold.model, **params).fit(fold.split))
    result, explain_s = cpu(lambda: method.explain(fold.rows, fold.goal))
    if profile:
        watch.disable()
        for order, count in (("tottime", 25), ("cumtime", 45)):
            out = io.StringIO()
            pstats.Stats(watch, stream=out).sort_stats(order).print_stats(count)
            print("\n".join(out.getvalue().splitlines()[6:]))
    scores = MetricsOrchestrator(metrics=SHOWN).compute(result.with_context(fold.context))
    answers = np.ascontiguousarray(result.x_cfs)
    return {
        "line": name, "fit_s": fit_s, "explain_s": explain_s,
        **{n: scores[n] for n in SHOWN},
        "digest": hashlib.blake2b(answers.tobytes(), digest_size=6).hexdigest(),
    }  # fmt: skip


def side_by_side(before, now):
    """Return both costs of every cell, their ratio, and what became of the answers."""
    both = before.drop_duplicates(["dataset", "line"], keep="last").merge(
        now.drop_duplicates(["dataset", "line"], keep="last"), on=["dataset", "line"],
        suffixes=(" before", ""),
    )  # fmt: skip
    old, new = (both[f"fit_s{s}"] + both[f"explain_s{s}"] for s in (" before", ""))
    out = pd.DataFrame({"dataset": both["dataset"], "line": both["line"]})
    out["before s"], out["now s"], out["ratio"] = old, new, old / new
    out["bytes"] = np.where(both["digest before"] == both["digest"], "equal", "differ")
    for n in ("coverage", "l1", "sparsity", "density_percentile"):
        out[n] = [f"{a:.4g}, {b:.4g}" for a, b in zip(both[f"{n} before"], both[n], strict=True)]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", default="adult,credit_default")
    parser.add_argument("--lines", default=",".join(LINES))
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--linear", action="store_true", help="a logistic regression instead")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    made = []
    for dataset in filter(None, options.datasets.split(",")):
        fold = Fold(dataset, options.models, options.rows, options.linear)
        for name in filter(None, options.lines.split(",")):
            made.append({"dataset": dataset, **cell(fold, name, options.profile)})
            print({k: round(v, 4) if isinstance(v, float) else v for k, v in made[-1].items()},
                  flush=True)  # fmt: skip
            if options.out is not None:
                new = not options.out.exists()
                pd.DataFrame(made[-1:]).to_csv(options.out, mode="a", header=new, index=False)
    now = pd.DataFrame(made) if made else pd.read_csv(options.out)
    if options.against is not None:
        table = side_by_side(pd.read_csv(options.against), now)
        print(markdown(table))
        if options.write:
            put_between(PAGE, "cell costs", markdown(table))


if __name__ == "__main__":
    main()
