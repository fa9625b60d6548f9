"""Plain tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from cel.cli.output import console

__all__ = ["show_table"]


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; numbers are right-aligned."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for i, column in enumerate(columns):
        numbers = all(_numeric(r[i]) for r in rows) if rows else False
        table.add_column(str(column), justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _numeric(text: str) -> bool:
    return text.replace(".", "").replace("-", "").replace("e", "").replace("+", "").isdigit()
