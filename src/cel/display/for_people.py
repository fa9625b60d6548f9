"""What a result can do for people; the work is done elsewhere in this package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ForPeople"]


class ForPeople:
    """Views of an `ExplanationResult`."""

    def sentences(self) -> pd.Series:
        """Return one sentence per row in plain language, indexed like the rows."""
        from cel.display.sentences import sentences

        return sentences(_own(self))

    def show(self, rows: int = 10) -> None:
        """Show the first rows before and after: as a table in a notebook, as text elsewhere.

        For rows without an answer it is told what keeps them from one, see `diagnosis`.

        Args:
            rows: how many rows are shown.
        """
        from cel.display.terminal import show

        show(_own(self), rows)

    def save_html(self, path: str | Path, *, title: str | None = None, most: int = 200) -> Path:
        """Write one offline page about the rows: what changes, how likely, how usual.

        The page loads nothing and runs nothing; it is light or dark as the reader's system is.
        For rows without an answer it says what keeps them from one, see `diagnosis`.

        Args:
            path: the file, written completely or not at all.
            title: its heading.
            most: rows with a part of their own; the others are only counted.
        """
        from cel.display.person_page import save_html

        return save_html(_own(self), path, title=title, most=most)

    def changes(self) -> pd.DataFrame:
        """Return one line per changed column: row, feature, from, to, in original units.

        A gap that was filled is a change like any other.
        """
        from cel.display.changes_table import changes_table

        return changes_table(_own(self))

    def plan(self) -> pd.DataFrame:
        """Return the changes of each found row in an order in which every step is allowed.

        One line per change: row, step, feature, from, to, and the probability of the wanted class
        (regression: the prediction) once the step is done. Up to seven changes the order with the
        best steps on average is taken, beyond that the best next step. Changes with the same step
        belong together: no order of single ones is allowed.
        """
        from cel.display.steps_plan import step_plan

        return step_plan(_own(self))

    def _repr_html_(self) -> str:
        from cel.display.notebook import notebook_html

        return notebook_html(_own(self))

    def overview(self) -> pd.DataFrame:
        """Return one line per row: status, outcome now, wanted and reached, what changes.

        Columns: `status`, `outcome`, `wanted`, `reached`, `probability` (of the wanted class,
        now), `probability_after`, `n_changes`, `changes` (in words).
        """
        from cel.display.overview import overview

        return overview(_own(self))

    def plot(
        self,
        kind: Literal["changes", "position", "tradeoff"] = "changes",
        row: Any = None,
        *,
        most: int = 12,
    ) -> Any:
        """Draw a result with matplotlib and return the figure.

        Args:
            kind: "changes": what changes, for one row on the scale of the background rows, for
                several how often each column changes; "position": old and new values of one row
                over the distribution of the background rows; "tradeoff": how many columns
                change against the probability that is reached, for the answers of one row or of
                all.
            row: label of a row; the first answered one for "position", all rows otherwise.
            most: columns that are drawn.
        """
        from cel.display.charts_for_people import draw

        return draw(_own(self), kind, row, most)


def _own(view: ForPeople) -> Any:
    """Return the result that the views are of."""
    return view
