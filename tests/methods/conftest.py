"""The fixtures of the fidelity tests are those of `tests/oracles`."""

import importlib.util
from pathlib import Path

_PLACE = Path(__file__).parents[1] / "oracles" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("oracle_fixtures", _PLACE)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

deviation, _case, _check = _MODULE.deviation, _MODULE._case, _MODULE._check
