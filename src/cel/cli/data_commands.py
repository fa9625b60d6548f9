"""`cel data`: which datasets there are, where they are, and cards for new ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cel.cli.output import JSON, console, errors, print_json
from cel.errors import CelError, ConfigError, DataError
from cel.text import visible

if TYPE_CHECKING:
    from cel.datasets.catalogue import Summary
    from cel.datasets.file_dataset import FileDataset

__all__ = ["app"]

app = typer.Typer(help="List, describe, fetch and check datasets.", no_args_is_help=True)


def _datasets(name: str = "all") -> list[FileDataset]:
    from cel.datasets.cards import card_names
    from cel.datasets.catalogue import card_dataset

    return [card_dataset(n) for n in (card_names() if name == "all" else [name])]


@app.command("list")
def list_(as_json: bool = JSON) -> None:
    """Show every dataset: rows, features, classes, label shares, and whether it is at hand."""
    from rich.table import Table

    from cel.datasets.catalogue import DATASETS, describe_any

    found = [describe_any(name) for name in DATASETS.names()]
    if as_json:
        print_json([asdict(s) for s in found])
        return
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for title in ("name", "task", "rows", "cat.", "num.", "classes", "label shares", "found"):
        table.add_column(title, justify="right" if title in ("rows", "cat.", "num.") else "left")
    for s in found:
        table.add_row(*_cells(s), style=None if s.found else "dim")
    console().print(table)
    for s in found:
        if s.found and s.note:
            console().print(f"{s.name}: {s.note}", style="yellow", markup=False)
    if not all(s.found for s in found):
        console().print(
            "Datasets that are not found: `cel data fetch NAME`, or put the files into a folder "
            "and name it in CEL_DATA.",
            markup=False,
        )


def _cells(s: Summary) -> list[str]:
    shares = ", ".join(f"{k}: {100 * v:.1f}%" for k, v in list(s.label_shares.items())[:3])
    more = ", ..." if len(s.label_shares) > 3 else ""
    classes = str(s.classes) if s.classes else "cont." + (f" ({s.outputs})" * (s.outputs > 1))
    rows = "-" if s.rows is None else f"{s.rows:,}"
    mark = ("yes *" if s.note else "yes") if s.found else "no"
    numbers = [rows, str(s.categorical), str(s.numerical)]
    return [s.name, s.task, *numbers, classes, shares + more, mark]


NAME = typer.Argument(help="A dataset by name, or the path of a card (.yaml).")


@app.command()
def describe(name: str = NAME, as_json: bool = JSON) -> None:
    """Show the card of a dataset: source, licence, features, constraints, traps."""
    from cel.cli.card_text import print_card
    from cel.datasets.catalogue import describe_any, summarise

    dataset = _any_dataset(name)
    if dataset is None:
        print_json(asdict(describe_any(name)))
        return
    summary = summarise(dataset)
    if as_json:
        print_json({**asdict(summary), "card": dataset.card.model_dump(mode="json")})
    else:
        print_card(dataset.card, summary)
    if not summary.found and (dataset.card.generator or dataset.find()):
        raise DataError(f"{name}: the card does not fit its file: {summary.note}")


def _any_dataset(name: str) -> FileDataset | None:
    """Return a dataset that has a card; None for those of other packages without one."""
    from cel.datasets import load_dataset
    from cel.datasets.file_dataset import FileDataset

    found = load_dataset(name)
    return found if isinstance(found, FileDataset) else None


@app.command()
def fetch(name: str = typer.Argument("all", help="A dataset, a card, or all.")) -> None:
    """Download raw files into the cache and check them; those at hand are only checked."""
    failed = []
    for dataset in _datasets(name):
        if dataset.card.generator is not None:
            typer.echo(visible(f"{dataset.name}: needs no file"))
            continue
        try:
            source, paths = dataset.files()
        except DataError as error:
            failed.append(dataset.name)
            errors().print(f"{dataset.name}: {error}", style="red", markup=False, soft_wrap=True)
            continue
        for path in paths:
            typer.echo(visible(f"{dataset.name}: {path}"))
        if source.warning:
            typer.echo(visible(f"{dataset.name}: {source.warning}"), err=True)
    if failed:
        raise DataError(f"could not fetch {', '.join(failed)}; the reasons are above")


@app.command()
def verify(
    names: list[str] = typer.Argument(
        None, help="Datasets by name or cards (.yaml); all that are at hand by default."
    ),
    as_json: bool = JSON,
) -> None:
    """Check files against their cards: hashes, contents, and the counts of the paper's table.

    Ends with code 2 when a file is wrong, and when one that was asked for is missing.
    """
    rows = [_verify(d) for n in names or ["all"] for d in _datasets(n)]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            style = {"ok": "green", "wrong": "red"}.get(row["status"])
            line = f"{row['name']}: {row['status']} {row['detail']}".rstrip()
            console().print(line, style=style, markup=False, soft_wrap=True)
    bad = ("wrong", "missing") if names else ("wrong",)
    wrong = [row["name"] for row in rows if row["status"] in bad]
    if wrong:
        raise DataError(f"wrong: {', '.join(wrong)}; see the details above")


def _verify(dataset: FileDataset) -> dict[str, Any]:
    from cel.datasets.catalogue import mismatches, summarise

    at_hand = dataset.find()
    if at_hand is None and dataset.card.generator is None:
        return {"name": dataset.name, "status": "missing", "detail": "no file at hand"}
    found = summarise(dataset)
    if not found.found:
        return {"name": dataset.name, "status": "wrong", "detail": found.note}
    if at_hand is not None and at_hand[0].warning:
        return {"name": dataset.name, "status": "subset", "detail": found.note}
    detail = "; ".join(mismatches(found, dataset.card))
    return {"name": dataset.name, "status": "wrong" if detail else "ok", "detail": detail}


@app.command()
def init(
    path: Path = typer.Argument(help="A CSV file with a header."),
    target: str = typer.Option(..., "--target", "-t", help="The column to predict."),
    output: Path | None = typer.Option(None, "--output", "-o", help="The card to write."),
) -> None:
    """Write a card for a CSV file, with inferred types to edit, and say what was guessed."""
    from cel.datasets.cards import load_card
    from cel.datasets.guess import guess_card, write_card

    card = output or path.with_name(path.name.split(".")[0] + ".yaml")
    if card.exists():
        raise ConfigError(f"{card}: exists already; delete it or choose another name with -o")
    guess = guess_card(path, target)
    write_card(guess, card)
    try:
        load_card(card)
    except CelError:
        card.unlink()  # what cannot be read again is not left behind
        raise
    for remark in guess.remarks:
        typer.echo(visible(remark))
    typer.echo(f"wrote {card}; edit it, then: cel.load_dataset({str(card)!r})")
