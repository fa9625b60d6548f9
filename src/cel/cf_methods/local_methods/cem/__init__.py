"""Contrastive explanations: pertinent negatives and positives."""

from __future__ import annotations

from cel.cf_methods.local_methods.cem.cem import CEM

__all__ = ["CEM"]
