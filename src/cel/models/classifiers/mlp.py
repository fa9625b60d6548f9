"""A multilayer perceptron that tells classes apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from cel.models.base import ClassifierPytorchMixin, PytorchBase
from cel.models.known_layers import Perceptron

__all__ = ["MLPClassifier"]


class MLPClassifier(Perceptron, ClassifierPytorchMixin, PytorchBase):
    """ReLU network with softmax outputs, fitted by cross entropy.

    Args:
        hidden: widths of the hidden layers.
        dropout: share of hidden units left out while training.
        options: see `PytorchBase`.

    >>> import numpy as np
    >>> X = np.array([[0.0], [0.2], [0.8], [1.0]])
    >>> model = MLPClassifier(hidden=(8,), epochs=50, lr=0.1).fit(X, ["no", "no", "yes", "yes"])
    >>> model.predict([[0.1], [0.9]]).tolist()
    ['no', 'yes']
    """

    name = "mlp"
    _test_params: ClassVar[Mapping[str, Any]] = {"hidden": (16, 16), "dropout": 0.1}
