"""The models of all folds of a dataset, trained as stacks before their blocks begin.

One large batched product keeps a GPU busy where ten small ones do not. Stacked products may round
differently, so a stacked run equals a plain one within the noise of training, not to the byte.
Densities that are solved instead of trained (kernels, mixtures) gain nothing in a stack: every
block solves its own, on its core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from cel.benchmark.plan import Plan, make_plan
from cel.benchmark.recipes import is_solved
from cel.benchmark.shelf import AUTOENCODER, JUDGE, Shelf
from cel.benchmark.spec import Suite
from cel.benchmark.stages import Workbench, model_folder, model_key, model_stages
from cel.benchmark.store import Store
from cel.benchmark.tasks import WorkItem

__all__ = ["stacks", "train_together"]


def stacks(plan: Plan, store: Store) -> list[WorkItem]:
    """Return one task per dataset of which two or more blocks of the plan lack a model."""
    waiting: dict[str, list[str]] = {}
    for block in plan.blocks:
        stages = [*_trained(plan.suite), *(AUTOENCODER + key for key in block.autoencoders)]
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
    """Train what some blocks of a dataset lack: predictors, densities, judges, autoencoders."""
    from cel.models import fit_many

    blocks = make_plan(suite.narrowed(datasets=[dataset])).blocks
    wanted = [b for b in blocks if b.density_key in densities]
    benches = [Workbench(suite, b, store, device, shelf=shelf) for b in wanted]
    kinds = {stage: [(b, stage) for b in benches] for stage in _trained(suite)}
    if autoencoders := _autoencoders(benches):
        kinds[model_folder(AUTOENCODER)] = autoencoders
    for kind, members in kinds.items():
        waiting = [(b, s) for b, s in members if b.missing(s) and not b.borrow(s)]
        label, limits = f"{dataset}: {len(waiting)} of {kind}", suite.limits
        seconds = limits.train_s * len(waiting) + limits.grace_s
        about = {"kind": "stack", "label": label, "device": device}
        emit({"event": "start", "seconds": seconds, **about})
        started, busy = time.perf_counter(), time.process_time()
        recipes = [b.recipe(stage) for b, stage in waiting]
        fit_many([m for m, _ in recipes], [r for _, r in recipes])
        count = max(len(waiting), 1)
        share = (time.perf_counter() - started) / count, (time.process_time() - busy) / count
        for (bench, stage), (model, _) in zip(waiting, recipes, strict=True):
            bench.keep(stage, model, *share)
            bench.lend(stage)
        emit({"event": "stacked", "label": label})


def _trained(suite: Suite) -> list[str]:
    """Return the stages of a suite whose models are trained in epochs."""
    given = {"density": suite.density, **{JUDGE + n: s for n, s in suite.judges.items()}}
    return [s for s in model_stages(suite) if not is_solved(given.get(s, {}).get("model"))]


def _autoencoders(benches: list[Workbench]) -> list[tuple[Workbench, str]]:
    """Return every autoencoder of some blocks once, with a block that wants it."""
    wanted = ((b, b.autoencoder_stage(cell)) for b in benches for cell in b.block.cells)
    by_stage = {stage: (bench, stage) for bench, stage in wanted if stage is not None}
    return list(by_stage.values())
