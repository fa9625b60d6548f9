"""The models of all folds of a dataset, trained as stacks before their blocks begin.

One large batched product keeps a GPU busy where ten small ones do not. Stacked products may round
differently, so a stacked run equals a plain one within the noise of training, not to the byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from cel.benchmark.plan import Plan, make_plan
from cel.benchmark.shelf import Shelf
from cel.benchmark.spec import Suite
from cel.benchmark.stages import Workbench, model_folder, model_key, model_stages
from cel.benchmark.store import Store
from cel.benchmark.tasks import WorkItem

__all__ = ["stacks", "train_together"]


def stacks(plan: Plan, store: Store) -> list[WorkItem]:
    """Return one task per dataset of which two or more blocks of the plan lack a model."""
    waiting: dict[str, list[str]] = {}
    for block in plan.blocks:
        stages = model_stages(plan.suite)
        if not all(store.has(model_folder(s), model_key(block, s)) for s in stages):
            waiting.setdefault(block.dataset, []).append(block.density_key)
    plain = plan.suite.to_dict()
    return [
        WorkItem(plain, d, None, None, [], keys) for d, keys in waiting.items() if len(keys) > 1
    ]


def train_together(
    suite: Suite,
    dataset: str,
    densities: Collection[str],
    store: Store,
    device: str,
    emit: Callable[[dict[str, Any]], None],
    shelf: Shelf | None = None,
) -> None:
    """Train what some blocks of a dataset lack: all predictors, all densities, all judges."""
    from cel.models import fit_many

    blocks = make_plan(suite.narrowed(datasets=[dataset])).blocks
    wanted = [b for b in blocks if b.density_key in densities]
    benches = [Workbench(suite, b, store, device, shelf=shelf) for b in wanted]
    for stage in model_stages(suite):
        waiting = [b for b in benches if b.missing(stage) and not b.borrow(stage)]
        label, limits = f"{dataset}: {len(waiting)} of {stage}", suite.limits
        seconds = limits.train_s * len(waiting) + limits.grace_s
        emit({"event": "start", "kind": "stack", "label": label, "seconds": seconds})
        started = time.perf_counter()
        recipes = [b.recipe(stage) for b in waiting]
        fit_many([m for m, _ in recipes], [r for _, r in recipes])
        share = (time.perf_counter() - started) / max(len(waiting), 1)
        for bench, (model, _) in zip(waiting, recipes, strict=True):
            bench.keep(stage, model, share)
            bench.lend(stage)
        emit({"event": "stacked", "label": label})
