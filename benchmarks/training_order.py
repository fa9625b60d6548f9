"""What the order of training is worth: a run that was made, replayed under other schedules.

    python benchmarks/training_order.py RUN [--workers 16]

RUN is a folder of `cel run SUITE --device cuda`. Its log says how long every stack and every block
took. Stacks share the device: `FILL` of them fill it, with more of them each gets its part, so the
work of a stack is the integral of its part. Blocks take the seconds that they took. Schedules
differ in how many stacks the device trains at once, in what goes first, and in whether small
stacks are trained on cores. The order of the engine is computed by the engine itself from its own
estimates, not from the log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cel.benchmark import make_plan, stack_placement
from cel.benchmark.estimate import block_costs, largest_first
from cel.benchmark.spec import Suite
from cel.benchmark.store import Store
from cel.benchmark.tasks import WorkItem

FILL = 4  # stacks that fill a device
CORE = 5.0  # core seconds of a small stack over its seconds of a whole device
ON_CORE = {"moons": 106, "yacht": 36, "german_credit": 53}  # measured
STEP = 0.1


@dataclass
class Replay:
    """What a run took.

    Attributes:
        begin: seconds until the first stack started.
        work: seconds of the whole device for the stack of each dataset.
        blocks: seconds of each block.
        cells: when the last cell was done.
    """

    begin: float
    work: dict[str, float]
    blocks: dict[tuple[str, int, str], float]
    cells: float


def read_log(path):
    """Read the first run of a log."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    zero, open_cells = events[0]["time"], events[0]["open"]
    started, ended, stacks, blocks, count = {}, {}, [], {}, 0
    for event in events:
        kind, label, now = event["event"], event.get("label", ""), event["time"] - zero
        if kind == "start":
            started.setdefault((event["kind"], label), now)
        if kind == "stacked":
            stacks.append((started["stack", label], now, label.split(":")[0]))
        if kind in ("done", "skip", "fail"):
            dataset, fold, model, _ = label.rsplit("/", 3)
            ended[dataset, int(fold), model] = now
            count += 1
            if count == open_cells:
                break
    for (dataset, fold, model), now in ended.items():
        blocks[dataset, fold, model] = now - started["train", f"{dataset}/{fold}/{model}"]
    begin = min(start for start, _, _ in stacks)
    return Replay(begin, _work(stacks), blocks, max(ended.values()))


def _work(stacks):
    """Seconds of the whole device by dataset."""
    times = sorted({t for start, end, _ in stacks for t in (start, end)})
    out = dict.fromkeys([dataset for _, _, dataset in stacks], 0.0)
    for a, b in itertools.pairwise(times):
        active = [d for start, end, d in stacks if start <= a and end >= b]
        for dataset in active:
            out[dataset] += (b - a) / max(len(active), FILL)
    return out


def simulate(run, stacks, blocks, workers, places):
    """Return when training ended, when all cells were done, and idle core seconds.

    Args:
        run: what was measured.
        stacks: in turn.
        blocks: in turn.
        workers: processes at once.
        places: stacks at once on the device.
    """
    line, waiting = [*stacks], {s.dataset for s in stacks}
    todo = list(blocks)
    busy, now, idle, trained = [], run.begin, 0.0, 0.0  # busy: [where, remaining, task]
    while line or todo or busy:
        for _ in range(workers - len(busy)):
            taken = _next(line, todo, waiting, busy, places, run)
            if taken is None:
                break
            busy.append(taken)
        idle += (workers - len(busy)) * STEP
        sharing = sum(where == "device" for where, _, _ in busy)
        speed = {"device": min(1.0, FILL / sharing) if sharing else 1.0, "core": 1.0}
        now += STEP
        for job in busy:
            job[1] -= STEP * speed[job[0]]
        for _, _, task in (job for job in busy if job[1] <= 0):
            if task.is_stack:
                waiting.discard(task.dataset)
                trained = now
        busy = [job for job in busy if job[1] > 0]
    return trained, now, idle


def _next(line, todo, waiting, busy, places, run):
    """What a free worker takes, as the supervisor does it."""
    free = sum(where == "device" for where, _, _ in busy) < places
    for stack in line:
        if free or stack.small:
            line.remove(stack)
            work = run.work[stack.dataset]
            if free:
                return ["device", FILL * work, stack]
            return ["core", ON_CORE.get(stack.dataset, CORE * work), stack]
    for block in todo:
        if block.dataset not in waiting:
            todo.remove(block)
            return ["core", run.blocks[block.dataset, block.fold, block.model], block]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args()
    run = read_log(options.run / "log.jsonl")
    suite = Suite.from_dict(json.loads((options.run / "suite.json").read_text()))
    plan = make_plan(suite)
    with tempfile.TemporaryDirectory() as empty:
        costs = block_costs(plan, Store(Path(empty) / "new"))
    print(
        f"{len(run.work)} stacks: {sum(run.work.values()):.0f} s of the device; {len(run.blocks)} "
        f"blocks: {sum(run.blocks.values()):.0f} core seconds; cells done at {run.cells:.0f} s"
    )
    print("| schedule | training done | cells done | idle core s |\n|---|---|---|---|")
    for name, stacks, blocks, places in _schedules(suite, run, costs, options.workers):
        trained, end, idle = simulate(run, stacks, blocks, options.workers, places)
        print(f"| {name} | {trained:.0f} | {end:.0f} | {idle:.0f} |")


def _schedules(suite, run, costs, workers):
    def stacks():
        return [WorkItem({}, d, None, None, []) for d in suite.datasets if d in run.work]

    blocks = [WorkItem({}, *name, ["cell"]) for name in run.blocks]
    yield "all at once, largest first", largest_first(stacks()), largest_first(blocks), workers
    long = stack_placement.longest_first(blocks, costs)
    for places in (2, 4, 8):
        turn = stack_placement.stacks_in_turn(stacks(), suite, costs, FILL)
        yield f"{places} at once, Johnson's rule", turn, long, places
    for small in (60.0, 90.0, 150.0, 300.0):
        stack_placement.SMALL_S = small
        turn = stack_placement.stacks_in_turn(stacks(), suite, costs, workers)
        on_core = sum(s.small for s in turn)
        yield f"the same, 4, {on_core} small ones below {small:.0f} s on cores", turn, long, 4


if __name__ == "__main__":
    main()
