"""How long a run will take, from what earlier cells took."""

from __future__ import annotations

import json
from collections import defaultdict

from cel.benchmark.plan import Plan
from cel.benchmark.store import Store

__all__ = ["estimate_seconds"]

FALLBACK_S = 8.0  # per cell, when nothing is known


def estimate_seconds(plan: Plan, store: Store | None) -> float:
    """Return seconds of one core for the open cells: the mean wall time of the same method."""
    known = _wall_times(store)
    everything = [s for times in known.values() for s in times]
    usual = sum(everything) / len(everything) if everything else FALLBACK_S
    total = 0.0
    for cell in plan.cells:
        if store is not None and store.has("score", cell.score_key):
            continue
        times = known.get(cell.method.label)
        total += sum(times) / len(times) if times else usual
    return total


def _wall_times(store: Store | None) -> dict[str, list[float]]:
    times: dict[str, list[float]] = defaultdict(list)
    if store is None or not (store.root / "log.jsonl").exists():
        return times
    for line in (store.root / "log.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "done":
            times[event["label"].rsplit("/", 1)[1]].append(event["wall_s"])
    return times
