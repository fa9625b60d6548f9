"""How long a run will take, from what earlier cells took."""

from __future__ import annotations

import json
from collections import defaultdict

from cel.benchmark.plan import Plan
from cel.benchmark.store import Store
from cel.paths import MAX_JSON, is_plain_file, read_bytes

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
    if store is None or not is_plain_file(store.root / "log.jsonl"):
        return times
    for line in read_bytes(store.root / "log.jsonl", MAX_JSON).splitlines():
        try:
            event = json.loads(line)
            label, seconds = str(event["label"]), float(event["wall_s"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # another event, or a line cut off by a crash: an estimate can do without
        times[label.rpartition("/")[2]].append(seconds)
    return times
