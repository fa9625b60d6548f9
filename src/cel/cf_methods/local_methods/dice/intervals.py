"""DiCE towards intervals of a predicted number, as its library has it."""

from __future__ import annotations

from typing import ClassVar

from cel.cf_methods.local_methods.dice.dice import DiCE
from cel.cf_methods.view import ModelView
from cel.errors import UnsupportedError
from cel.protocols import Support, Task
from cel.space import FeatureSpace

__all__ = ["DiCEIntervals"]


class DiCEIntervals(DiCE):
    """The random search of DiCE for regression: any point inside the interval is an answer.

    It goes by the name of `dice` and is what `cel.explain` takes for predicted numbers.
    """

    tasks: ClassVar[frozenset[Task]] = frozenset({Task.REGRESSION})
    supports: ClassVar[frozenset[Support]] = frozenset(Support)
    takes_intervals: ClassVar[bool] = True

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        if self.method != "random":
            raise UnsupportedError(
                f"DiCE(method={self.method!r}) works for classes; use method='random' for "
                "predicted numbers"
            )
        super()._check(model, space)
