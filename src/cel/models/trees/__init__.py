"""Tree ensembles from outside, read into cells and leaves."""

from __future__ import annotations

from cel.models.trees.tree_view import TreeView, agrees, probe_rows, tree_view

__all__ = ["TreeView", "agrees", "probe_rows", "tree_view"]
