"""Beyond single rows: rules for groups and everybody, audits, and models from files."""

from __future__ import annotations

from cel.people.cohort_rules import CohortRules, explain_global, explain_group
from cel.people.recourse_audit import RecourseAudit, audit

__all__ = ["CohortRules", "RecourseAudit", "audit", "explain_global", "explain_group"]
