"""Results for people: sentences, tables, pages, plots and plans of one result."""

from __future__ import annotations

from cel.display.comparison_facts import Facts
from cel.display.sentences import sentences

__all__ = ["Facts", "sentences"]
