"""A line of simulated cost, for `benchmarks/scaling.py`: it sleeps instead of searching."""

from __future__ import annotations

import time
from typing import Any, Unpack

import torch
from torch import Tensor

from cel.cf_methods import BaseCounterfactualMethod, LocalMixin, Options, Query

LINES, SECONDS = 10, 1.0
DATASETS = ["moons", "wine", "digits", "blobs"]


class Asleep(LocalMixin, BaseCounterfactualMethod):
    """Sleeps, and answers no row."""

    def __init__(
        self, model: Any, *, seconds: float = SECONDS, **options: Unpack[Options]
    ) -> None:
        super().__init__(model, **options)
        self.seconds = seconds

    def _explain(self, query: Query) -> Tensor:
        time.sleep(self.seconds)
        return torch.full_like(query.x, torch.nan)


def suite(seconds: float = SECONDS) -> dict[str, Any]:
    """Sixteen blocks of equal cost; models are solved, not trained."""
    line = {"method": "asleep:Asleep"}
    return {
        "name": "asleep",
        "datasets": DATASETS,
        "folds": [0, 1, 2, 3],
        "classifiers": {"lr": {}},
        "density": {"model": "gmm"},
        "max_rows": 5,
        "methods": {
            f"asleep_{i}": {**line, "params": {"seconds": seconds, "random_state": i}}
            for i in range(LINES)
        },
    }
