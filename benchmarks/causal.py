"""What advice costs when consequences follow: the tables of docs/causal.md from suite `causal`.

    cel run causal
    python benchmarks/causal.py [runs/causal] [--write]

Every answer is carried out in a world whose equations are known (`cel.datasets.CausalPeople`): the
features that it acts on are set, and all others follow from them. `causal` tells its actions; for
the other methods every feature that changes is acted on. Costs are sums of |action| over ranges of
features. A unit of the intervals and tests is a person, with the mean over the models. Intervals
are bootstraps over people; the test is the exact two-sided sign test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from cel.benchmark.runner import open_run
from cel.datasets.causal_people import CausalPeople
from cel.metrics.bootstrap import bootstrap_interval
from cel.models import load_model
from cel.result import ExplanationResult
from cel.space.causal import Mechanism, StructuralModel
from marked import put_between
from robust import markdown, sign_test

OURS = ("causal", "causal_cautious")
MOVED = 1e-6  # a smaller change of a feature is rounding
SHARES = np.linspace(0.01, 1.5, 150)  # of an action that are tried
PAGE = Path(__file__).parents[1] / "docs" / "causal.md"


def true_equations(result):
    """Return the equations of the generator, in the encoded units of a result."""
    width = result.space.width
    ends = [result.decode(np.full((1, width), v, np.float32)).iloc[0] for v in (0.0, 1.0)]
    size = ends[1] - ends[0]
    return StructuralModel(
        result.space,
        {
            name: Mechanism.linear({p: w * size[p] / size[name] for p, w in parents.items()})
            for name, parents in CausalPeople.weights.items()
        },
    )


def actions_of(result, told):
    """Return (n, d) what an answer adds to which feature; all that changes if nothing is told."""
    change = np.where(result.found[:, None], result.x_cfs - result.x_origs, 0.0)
    if not told:
        return np.where(np.abs(change) > MOVED, change, 0.0)
    names = list(result.space.column_names)
    out = np.zeros_like(change, dtype=float)
    for row, given in enumerate(result.logs["action"]):
        for name, amount in (given or {}).items():
            out[row, names.index(name)] = amount
    return out


def carried_out(result, action, truth, model):
    """Return one line per found row: what its advice costs and what really follows from it."""
    rows = np.flatnonzero(result.found)
    x, a = (torch.as_tensor(v[rows]).double() for v in (result.x_origs, action))
    goal, acted = result.y_cf_targets[rows].astype(int), a != 0  # one column per feature

    def reached(share):
        end = truth.follow(x, share * a, acted).numpy()
        return end, model.predict_proba(end.astype(np.float32)).argmax(1) == goal

    end, valid = reached(1.0)
    holds = np.stack([reached(s)[1] for s in SHARES], 1)
    enough = np.where(holds.any(1), SHARES[holds.argmax(1)], np.nan)
    missed = np.abs(end - result.x_cfs[rows]).max(1)
    return pd.DataFrame(
        {
            "row": result.source_ids[rows], "cost": a.abs().sum(1).numpy(),
            "acted on": acted.sum(1).numpy(), "valid": valid.astype(float),
            "enough": enough, "foreseen within": missed,
        }
    )  # fmt: skip


def rows_of(folder):
    """Return one line per answered row and method, and (asked, answered) of each method."""
    store, plan = open_run(folder)
    parts, asked = [], []
    for block in plan.blocks:
        kept = store.folder("predictor", block.predictor_key) / "model.safetensors"
        model = load_model(kept)
        for cell in block.cells:
            path = store.folder("explain", cell.explain_key) / "result.parquet"
            if not path.exists():
                continue
            result, label = ExplanationResult.from_parquet(path), cell.method.label
            told = cell.method.method == "causal"
            lines = carried_out(result, actions_of(result, told), true_equations(result), model)
            parts.append(lines.assign(method=label, model=block.model, fold=block.fold))
            asked.append((label, result.explained.sum(), result.found.sum()))
    counts = pd.DataFrame(asked, columns=["method", "asked", "found"]).groupby("method").sum()
    return pd.concat(parts, ignore_index=True), counts


def overview(rows, counts):
    """Return the first table: means over people, folds and models, cheapest first."""
    columns = ["cost", "acted on", "valid", "enough", "foreseen within"]
    table = rows.groupby("method")[columns].mean().sort_values("cost")
    table.insert(0, "answered", counts["found"] / counts["asked"])
    wide = rows.pivot_table(index="method", columns="model", values="cost")
    return table.join(wide.add_prefix("cost, ")).reset_index()


def duels(rows):
    """Return the second table: costs of lines that know the graph, against those of the others.

    A person counts once, with the mean over the models; only answers that both gave are compared.
    """
    lines, keys = [], ["fold", "model", "row"]
    by_method = dict(tuple(rows.groupby("method")))
    for mine in (m for m in OURS if m in by_method):
        for rival in (m for m in by_method if m not in OURS[: OURS.index(mine) + 1]):
            both = by_method[mine].merge(by_method[rival], on=keys, suffixes=("", "_rival"))
            gap = (both["cost"] - both["cost_rival"]).groupby([both["fold"], both["row"]])
            units = gap.mean()
            up, down = int((units > 1e-9).sum()), int((units < -1e-9).sum())
            low, high = bootstrap_interval(units.to_numpy(float))
            lines.append(
                {
                    "method": mine, "rival": rival, "people": len(units),
                    "difference of cost": units.mean(), "low": low, "high": high,
                    "cheaper, dearer": f"{down}, {up}", "p": sign_test(up, down),
                }
            )  # fmt: skip
    return pd.DataFrame(lines)


def by_fold(rows):
    """Return the third table: what becomes of promises that rest on learnt equations.

    All people of a fold share its equations, so that their validity is one observation, not many.
    """
    known = rows[rows["method"].isin(OURS)]
    means = known.groupby(["fold", "model", "method"])[["valid", "enough"]].mean()
    wide = means.unstack("method")
    wide.columns = [f"{value}, {method}" for value, method in wide.columns]
    return wide.reset_index()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", nargs="?", default="runs/causal")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows, counts = rows_of(given.run)
    text = "\n\n".join(
        [
            f"{len(rows)} answers of {rows['method'].nunique()} lines.",
            markdown(overview(rows, counts)),
            "Cost against other lines, person by person:",
            markdown(duels(rows)),
            "Promises by fold:",
            markdown(by_fold(rows)),
        ]
    )
    print(text)
    if given.write:
        put_between(PAGE, "tables", text)


if __name__ == "__main__":
    main()
