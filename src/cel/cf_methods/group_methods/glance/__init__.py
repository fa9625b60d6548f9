"""GLANCE: a handful of actions that together help everybody."""

from __future__ import annotations

from cel.cf_methods.group_methods.glance.glance import GLANCE

__all__ = ["GLANCE"]
