"""Plain tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from cel.cli.output import console

__all__ = ["show_table"]


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; numbers are right-aligned, and the first column is never cut."""
    table = Table(
        title=escape(title), title_justify="left", header_style="bold", box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0), show_edge=False,
    )  # fmt: skip
    for i, column in enumerate(columns):
        numbers = all(_numeric(r[i]) for r in rows) if rows else False
        table.add_column(
            escape(str(column)), justify="right" if numbers else "left", overflow="fold",
            no_wrap=i == 0 or numbers,
        )  # fmt: skip
    for row in rows:
        table.add_row(*map(escape, row))
    console().print(table)


def _numeric(text: str) -> bool:
    plain = text.replace(".", "").replace("-", "").replace("e", "").replace("+", "")
    return plain.isdigit() or text == "-"
