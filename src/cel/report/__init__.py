"""Reports from stored scores: tables, statistics, figures and one offline page."""

from __future__ import annotations

from cel.report.html import Report, write_report, write_shipped_report

__all__ = ["Report", "write_report", "write_shipped_report"]
