"""References of the metrics that depend on training rows alone: kept for the next block.

Blocks of one fold differ by the model that is explained, their training rows are the same. The
supervisor gives a worker the blocks of its last fold first (`cel.benchmark.supervisor`).
"""

from __future__ import annotations

from cel.metrics.references import References
from cel.result import EvaluationContext

__all__ = ["references_of"]

_last: list[tuple[References, EvaluationContext]] = []  # of this process


def references_of(context: EvaluationContext) -> References:
    """Return a store for a block; what the last block fitted on the same rows is in it."""
    made = References.trusting(context)
    for kept, before in _last:
        made.inherit(kept, before, context)
    _last[:] = [(made, context)]
    return made
