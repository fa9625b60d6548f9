"""The front door: anyone's model, anyone's table; what `cel.explain` is made of."""

from __future__ import annotations

from cel.door.explainer import Explainer
from cel.door.restrictions import Restrictions
from cel.door.wanted import WantedOutcome

__all__ = ["Explainer", "Restrictions", "WantedOutcome"]
