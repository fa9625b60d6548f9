"""The everyday call: a model, a table of people, a wish."""

from __future__ import annotations

from typing import Any

from cel.cf_methods import METHODS
from cel.errors import MissingInputError
from cel.preprocessing import frozen
from cel.protocols import Need
from cel.result import ExplanationResult

__all__ = ["explain"]


def explain(
    model: Any,
    X: Any,
    *,
    train: Any,
    target: Any = None,
    method: str | None = None,
    immutable: tuple[str, ...] = (),
    **settings: Any,
) -> ExplanationResult:
    """Explain the rows of a DataFrame for any model, with a method chosen to fit the model.

    Gradient-free models get DiCE's random search, differentiable ones Wachter; name another with
    `method`. The choice is written to `result.method`.

    Args:
        model: a fitted CEL model, a scikit-learn estimator or pipeline, a boosted-tree model, a
            torch module, or a function DataFrame -> probabilities.
        X: rows to explain, in original units.
        train: training rows in original units; they tell types, ranges and what is usual.
        target: the wanted class; by default the opposite one.
        method: registry name of a method.
        immutable: columns that may not change.
        settings: further settings of the method.

    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> train = pd.DataFrame({"debt": [5.0, 4.0, 1.0, 0.0], "age": [40, 50, 40, 50]})
    >>> model = LogisticRegression().fit(train, ["no", "no", "yes", "yes"])
    >>> explain(model, train[:1], train=train, target="yes", immutable=("age",)).found
    array([ True])
    """
    from cel.models import PytorchBase, WrappedModel, wrap

    known = model if isinstance(model, PytorchBase | WrappedModel) else wrap(model, train)
    space = known.space_
    if space is None and immutable:
        raise MissingInputError("the model does not know its features; use cel.wrap(model, train)")
    if space is not None and immutable:
        space = frozen(space, immutable)
    name = method or ("wachter" if callable(getattr(known, "logits", None)) else "dice")
    cls = METHODS.get(name)
    if Need.DENSITY in cls.needs and "gen_model" not in settings:
        raise MissingInputError(f"{name} needs a density; pass gen_model=")
    chosen = cls(known, space=space, **settings).fit(train)
    return chosen.explain(X, target)
