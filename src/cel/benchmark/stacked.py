"""The models of all folds of a dataset, trained as stacks before their blocks begin.

One large batched product keeps a GPU busy where ten small ones do not. Stacked products may round
differently, so a stacked run equals a plain one within the noise of training, not to the byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cel.benchmark.plan import Plan, make_plan
from cel.benchmark.spec import Suite
from cel.benchmark.stages import MODEL_STAGES, Workbench
from cel.benchmark.store import Store

__all__ = ["stackable", "train_together"]


def stackable(plan: Plan, store: Store) -> list[str]:
    """Return the datasets for which two or more predictors or densities are missing."""
    missing: dict[tuple[str, str], set[str]] = {}
    for block in plan.blocks:
        keys = (block.predictor_key, block.density_key)
        for stage, key in zip(MODEL_STAGES, keys, strict=True):
            if not store.has(stage, key):
                missing.setdefault((block.dataset, stage), set()).add(key)
    wanted = {dataset for (dataset, _), keys in missing.items() if len(keys) > 1}
    return [d for d in plan.suite.datasets if d in wanted]


def train_together(
    suite: Suite, dataset: str, store: Store, device: str, emit: Callable[[dict[str, Any]], None]
) -> None:
    """Train what is missing for one dataset: all predictors at once, then all densities."""
    from cel.models import fit_many

    blocks = make_plan(suite.narrowed(datasets=[dataset])).blocks
    benches = [Workbench(suite, block, store, device) for block in blocks]
    for stage in MODEL_STAGES:
        waiting = [b for b in benches if b.missing(stage)]
        label, limits = f"{dataset}: {len(waiting)} of {stage}", suite.limits
        seconds = limits.train_s * len(waiting) + limits.grace_s
        emit({"event": "start", "kind": "stack", "label": label, "seconds": seconds})
        started = time.perf_counter()
        recipes = [b.recipe(stage) for b in waiting]
        fit_many([m for m, _ in recipes], [r for _, r in recipes])
        share = (time.perf_counter() - started) / max(len(waiting), 1)
        for bench, (model, _) in zip(waiting, recipes, strict=True):
            bench.keep(stage, model, share)
        emit({"event": "stacked", "label": label})
