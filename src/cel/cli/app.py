"""The program `cel` and its one way of reporting errors."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from cel.cli import data_commands as data
from cel.cli import listing, stores
from cel.cli.compare import compare
from cel.cli.explaining import explain
from cel.cli.output import errors, level, set_level
from cel.cli.report import report
from cel.cli.running import run
from cel.errors import CelError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Counterfactual explanations: datasets, methods and one controlled benchmark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.add_typer(listing.list_app, name="list")
for _command in (
    explain,
    run,
    stores.status,
    stores.clean,
    stores.merge,
    stores.export,
    listing.check,
    compare,
    report,
):
    app.command()(_command)


def _version(asked: bool) -> None:
    if asked:
        import cel

        typer.echo(f"cel {cel.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and stop.", callback=_version, is_eager=True
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Results and errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Every step, and tracebacks of errors.")
    ] = False,
) -> None:
    """Counterfactual explanations: datasets, methods and one controlled benchmark."""
    set_level(quiet=quiet, verbose=verbose, reset=True)


def main() -> None:
    """Run the program; a mistake that can be named becomes one red line and exit code 2."""
    try:
        app()
    except BrokenPipeError:  # `cel list methods | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (CelError, OSError) as error:
        if level() > 0:
            errors().print_exception()
        errors().print(
            f"error: {_told(error)}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(2)


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, CelError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
