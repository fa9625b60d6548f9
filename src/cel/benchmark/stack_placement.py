"""Where stacks of models are trained, and in which order, so that no core waits for a GPU.

Every dataset passes two machines: the device that trains its models, then the cores that explain
its rows. Johnson's rule (1954) orders such jobs: those that leave the first machine sooner than
the second go first, the quickest of them at the head, so that the cores soon have work; the others
follow, the longest to explain first, so that no long rest is left at the end. A stack of small
models keeps a GPU waiting for the launch of its operations and takes about as long on one core:
it is trained there while larger ones fill the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cel.benchmark.estimate import BlockCost, BlockName, trains_as_measured
from cel.benchmark.gpu_places import STACKS
from cel.benchmark.spec import Suite
from cel.benchmark.tasks import WorkItem

__all__ = ["Passage", "flow_order", "longest_first", "stacks_in_turn"]

TOGETHER = 0.4  # core seconds of a stack over those of its models alone; 0.16 to 0.64 measured
ON_DEVICE = 0.013  # seconds of a whole H200 for one core second of training; 0.007 to 0.028
SMALL_S = 150.0  # of a core; the large datasets of `paper` fill an H200 for about two minutes


@dataclass(frozen=True)
class Passage:
    """A dataset on its way: seconds of training its stack, then of explaining on all cores."""

    stack: WorkItem
    training: float
    explaining: float


def flow_order(passages: Iterable[Passage]) -> list[WorkItem]:
    """Order stacks by Johnson's rule for two machines."""
    known = list(passages)
    quick = [p for p in known if p.training <= p.explaining]
    slow = [p for p in known if p.training > p.explaining]
    quick.sort(key=lambda p: p.training)
    slow.sort(key=lambda p: -p.explaining)
    return [p.stack for p in (*quick, *slow)]


def stacks_in_turn(
    stacks: Sequence[WorkItem], suite: Suite, costs: Mapping[BlockName, BlockCost], workers: int
) -> list[WorkItem]:
    """Order stacks, those that need the device first, and mark those that a core can train.

    Args:
        stacks: one per dataset; `small` of some is set.
        suite: what they are trained for.
        costs: of the blocks (`cel.benchmark.estimate.block_costs`).
        workers: processes at once. If they all can train on the device, none is idle meanwhile.
    """
    large, small = [], []
    for stack in stacks:
        mine = [cost for (dataset, _, _), cost in costs.items() if dataset == stack.dataset]
        training = sum(cost.training for cost in mine)
        explaining = sum(cost.explaining for cost in mine) / max(workers, 1)
        measured = trains_as_measured(suite, stack.dataset)
        stack.small = workers > STACKS and measured and TOGETHER * training <= SMALL_S
        if stack.small:
            small.append(Passage(stack, TOGETHER * training, explaining))
        else:
            large.append(Passage(stack, ON_DEVICE * training, explaining))
    return flow_order(large) + flow_order(small)


def longest_first(
    tasks: Iterable[WorkItem], costs: Mapping[BlockName, BlockCost]
) -> list[WorkItem]:
    """Order blocks by the seconds that their cells take: short ones fill what is left at the end.

    A block that nobody can estimate goes first.
    """

    def seconds(task: WorkItem) -> float:
        assert task.fold is not None
        assert task.model is not None
        cost = costs.get((task.dataset, task.fold, task.model))
        return float("inf") if cost is None else cost.explaining

    return sorted(tasks, key=lambda task: -seconds(task))
