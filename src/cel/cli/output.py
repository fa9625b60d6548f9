"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["JSON", "console", "errors", "print_json"]

JSON = typer.Option(False, "--json", help="Print JSON instead of a table.")


def console() -> Console:
    """Return the console for results; piped tables are as wide as they need to be."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=200)


def errors() -> Console:
    """Return the console for problems and progress."""
    from rich.console import Console

    return Console(stderr=True)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
