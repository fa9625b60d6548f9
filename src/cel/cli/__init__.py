"""The command line: `cel`."""

from __future__ import annotations

from cel.cli.app import app, main

__all__ = ["app", "main"]
