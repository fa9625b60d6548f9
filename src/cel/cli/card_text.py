"""A dataset card for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from cel.cli.output import console

if TYPE_CHECKING:
    from cel.datasets.catalogue import Summary
    from cel.datasets.specs import DatasetCard, FeatureSpec

__all__ = ["print_card"]


def print_card(card: DatasetCard, summary: Summary) -> None:
    """Print what a card says, and how many rows there are."""
    out = console()
    out.print(f"{card.title} ({card.name})", style="bold", markup=False)
    lines = [card.description, f"task: {card.task}", f"licence: {card.licence}"]
    lines += [f"citation: {card.citation}"] if card.citation else []
    lines += [f"rows: {summary.rows}" if summary.found else summary.note]
    lines += [f"target: {', '.join(card.target.columns)}"]
    if card.target.classes:
        lines += [f"classes: {', '.join(map(str, card.target.labels))}"]
        lines += [f"desired: {card.target.desired}"]
    files = [f for source in card.sources for f in source.files]
    lines += [f"file: {f.path}  sha256 {f.sha256 or 'unknown'}" for f in files]
    lines += [f"address: {a}" for f in files for a in f.addresses]
    lines += [f"see: {a}" for a in card.references]
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print(_features(card))
    for relation in card.relations:
        terms = " + ".join(f"{c:g}*{n}" for n, c in relation.terms.items())
        out.print(f"rule: {terms} <= {relation.bound:g}", markup=False, highlight=False)
    for rule in card.implications:
        left, right = (
            f"{name} in {{{', '.join(map(str, values))}}}"
            for side in (rule.given, rule.then)
            for name, values in side.items()
        )
        out.print(f"rule: {left} -> {right}", markup=False, highlight=False)
    for note in card.notes:
        out.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)


def _features(card: DatasetCard) -> Table:
    table = Table(box=None, header_style="bold")
    for title in ("feature", "kind", "values", "may change", "note"):
        table.add_column(title, overflow="fold")
    for f in card.features:
        table.add_row(f.name, f.kind, _values(f), _change(f), f.note or "")
    return table


def _values(f: FeatureSpec) -> str:
    if f.is_label:
        shown = ", ".join(map(str, f.categories[:8]))
        return shown + (f", ... ({len(f.categories)})" if len(f.categories) > 8 else "")
    low, high = ("open" if v is None else f"{v:g}" for v in (f.lower, f.upper))
    codes = f" and {', '.join(f'{v:g}' for v in f.special)}" if f.special else ""
    return f"{low} .. {high}{codes}"


def _change(f: FeatureSpec) -> str:
    words = [] if f.mutable else ["no"]
    words += [f"{f.direction} only"] if f.direction != "any" else []
    if f.allowed is not None:
        never = [str(c) for c in f.categories if c not in f.allowed]
        words += [f"not to {', '.join(never)}"] if never else []
    words += ["protected"] if f.protected else []
    return ", ".join(words) or "yes"
