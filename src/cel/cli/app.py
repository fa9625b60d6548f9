"""The program `cel` and its one way of reporting errors."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import cel
from cel.cli import bench, data, listing
from cel.cli.compare import compare
from cel.cli.output import errors
from cel.cli.report import report
from cel.errors import CelError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Counterfactual explanations: datasets, methods and one controlled benchmark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(data.app, name="data")
app.add_typer(listing.list_app, name="list")
for _command in (
    bench.run,
    bench.status,
    bench.clean,
    bench.merge,
    bench.export,
    listing.check,
    compare,
    report,
):
    app.command()(_command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"cel {cel.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Keep commands in groups even while there is only one."""


def main() -> None:
    """Run the program; a CelError becomes one red line and exit code 2."""
    try:
        app()
    except CelError as error:
        text = " ".join(str(error).split())
        errors().print(
            f"error: {text}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(2)
