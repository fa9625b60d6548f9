"""GLOBE-CE: one direction for everybody, one scalar for each."""

from __future__ import annotations

from cel.cf_methods.global_methods.globe_ce.globe_ce import GLOBECE

__all__ = ["GLOBECE"]
