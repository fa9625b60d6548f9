"""One line per row: how it ended, how likely, what changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cel.display.comparison_facts import Facts
from cel.display.sentences import change_words

if TYPE_CHECKING:
    from cel.result import ExplanationResult

__all__ = ["overview"]


def overview(result: ExplanationResult) -> pd.DataFrame:
    """Return the table of `ExplanationResult.overview`."""
    facts = Facts.of(result)
    won = facts.has_answer
    nothing = np.full(len(facts), np.nan)
    before, after = facts.chances or (nothing, nothing)
    texts = [", ".join(change_words(facts, k)) if won[k] else "" for k in range(len(facts))]
    unknown = facts.status == "error"
    return pd.DataFrame(
        {
            "status": facts.status,
            "outcome": np.where(unknown, "", np.array(facts.now, dtype=object)),
            "wanted": np.array(facts.wanted, dtype=object),
            "reached": np.where(won, np.array(facts.then, dtype=object), ""),
            "probability": before,
            "probability_after": np.where(won, after, np.nan),
            "n_changes": np.where(won, facts.moved.sum(1), 0),
            "changes": np.array(texts, dtype=object),
        },
        index=result.originals().index,
    )
