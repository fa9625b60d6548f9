"""What commands print: tables for people, JSON for programs, notes that -q leaves out."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from cel.text import plain, visible

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["JSON", "console", "errors", "level", "notes", "print_json", "set_level"]

JSON = typer.Option(False, "--json", help="Print JSON instead of a table.")
PIPED_WIDTH = 200  # of tables that go into a file, unless COLUMNS says otherwise
_LEVEL = {"now": 0}  # -1 quiet, 0 usual, 1 verbose


def set_level(*, quiet: bool = False, verbose: bool = False, reset: bool = False) -> None:
    """Choose how much is said; neither quiet nor verbose leaves it as it was, or resets it."""
    if quiet or verbose or reset:
        _LEVEL["now"] = -1 if quiet else int(verbose)


def level() -> int:
    """Return -1 for quiet, 0 for the usual, 1 for verbose."""
    return _LEVEL["now"]


def console() -> Console:
    """Return the console for results; piped tables are as wide as COLUMNS, or as they need."""
    if sys.stdout.isatty():
        return _console()
    given = os.environ.get("COLUMNS", "")
    return _console(width=int(given) if given.isdigit() and int(given) > 0 else PIPED_WIDTH)


def _console(**options: Any) -> Console:
    """Return a console on which a label or a reason can send no escape codes."""
    from rich.console import Console

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(visible(text, keep="\n\t"), **options)

    return PlainConsole(emoji=False, **options)


def notes() -> Console:
    """Return the console for remarks and progress; with -q it says nothing."""
    made = console()
    made.quiet = level() < 0
    return made


def errors() -> Console:
    """Return the console for problems."""
    return _console(stderr=True)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    typer.echo(json.dumps(plain(value), indent=2, allow_nan=False))
