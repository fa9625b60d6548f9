"""What has to be added to a proof so that nobody reads more into it than it says."""

from __future__ import annotations

import numpy as np

from cel.display.comparison_facts import Facts
from cel.display.words import cell, joined
from cel.protocols import Proof
from cel.space.hard_ranges import moved_inside, outside_hard

__all__ = ["proof_notes"]


def proof_notes(facts: Facts, row: int) -> list[str]:
    """Return sentences about the proof of a shown row: from where its cost is counted."""
    result, at = facts.result, int(facts.rows[row])
    if result.proof is None or result.proof[at] == Proof.NONE.value:
        return []
    if not result.starts_outside[at]:
        return []
    x = result.x_origs[[at]]
    outside = outside_hard(x, result.space)
    start = result.decode(moved_inside(x, result.space, outside))
    names = [result.space.names[j] for j in np.flatnonzero(outside[0])]
    values = [f"{cell(n)} at {cell(start[n].iloc[0])}" for n in names if n in start.columns]
    least = "least" if result.proof[at] == Proof.OPTIMAL.value else "nearly least"
    return [
        f"Its cost is proved to be the {least} one from where the search began: "
        f"{joined(values) or 'the nearest row inside its ranges'}."
    ]
