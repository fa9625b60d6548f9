"""Methods that explain one row at a time."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

__all__ = ["CADEX", "CCHVAE", "CEARM", "CEGP", "CEM", "PPCEF", "SACE", "Artelt", "DiCE", "Wachter"]

for _name in __all__:
    _path = f"{__name__}.{_name.lower()}"
    if find_spec(_path) is not None:
        globals()[_name] = getattr(import_module(_path), _name)
