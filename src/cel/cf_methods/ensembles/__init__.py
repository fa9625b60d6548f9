"""What methods for tree ensembles share: cells with prices, demands, legal moves."""

from __future__ import annotations
