"""MOC: the trade-offs between four objectives of each row."""

from __future__ import annotations

from cel.cf_methods.local_methods.moc.moc import MOC

__all__ = ["MOC"]
