"""Reports from stored scores: tables, statistics, figures and one offline page."""

from __future__ import annotations
