"""FACE: paths through data to a row of the wanted class."""

from __future__ import annotations

from cel.cf_methods.local_methods.face.face import FACE

__all__ = ["FACE"]
