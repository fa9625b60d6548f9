"""Random tables, constraints and models: no crash, no altered cell, no broken promise."""

import os

from hypothesis import HealthCheck, given, settings
from random_tables import cases, check, explain

EXAMPLES = int(os.environ.get("CEL_FRONTDOOR_EXAMPLES", "20"))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="CEL_FRONTDOOR_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(cases())
def test_answers_keep_every_promise(case):
    check(case, explain(case))
