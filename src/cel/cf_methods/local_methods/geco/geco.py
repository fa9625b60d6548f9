"""GeCo: a genetic search that changes few features first, to values as frequent as in the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
import torch

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.geco.few_changes import VALID, ChangeSettings, fewest_changes
from cel.cf_methods.local_methods.geco.group_values import groups_of
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.parameters import at_least, check_positive
from cel.protocols import Need, Predictor
from cel.space import FeatureSpace

__all__ = ["GeCo"]


class GeCo(LocalMixin, BaseCounterfactualMethod):
    """Change one group of features, then more, and keep the cheapest people.

    A person scores its distance to the row, plus `2 - p` as long as the class, of probability p,
    is not reached: every valid person comes before every other one. The distance is a weighted sum
    of four norms of `|difference| / range`: the share of changed features, the mean, the root mean
    square and the largest. Values come from training rows, as frequent as there, and only those
    that the region of the row allows; the features of a group take theirs from one training row.

    The first people changed one group each. In a generation, the best person of each set of
    changed groups is joined with others, gets nearer values in a group that it changed, and
    people change one more group. A row ends when its best people stay the same.

    Args:
        model: any classifier.
        groups: names of features that only move together; all others move alone.
        size: people that survive; 100 in the publication.
        parents: people, best first, that change one more group; 100 in the publication.
        patterns: sets of changed groups whose best people are joined.
        first_samples: values tried for each group at first.
        samples: values tried for each group of a parent.
        norms: weights of the four norms.
        top: people that must stay the same for a row to end.
        least: least number of generations.
        give_up: generations without better people after which a row without an answer ends.
        generations: most generations.
        keep: answers kept in `x_sets`.
        max_rows: training rows that lend values, drawn once; None for all.
        **options: see `Options`.

    Reference: Schleich, Geng, Zhang and Suciu, GeCo: quality counterfactual explanations in real
    time, VLDB 2021.
    """

    name: ClassVar[str] = "geco"
    version: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS, Need.PROBABILITIES})
    reference: ClassVar[str] = "Schleich et al., VLDB 2021, arXiv:2101.01292"
    _test_params: ClassVar[Mapping[str, Any]] = {"size": 40, "max_rows": 200}

    def __init__(
        self,
        model: Predictor,
        *,
        groups: Sequence[Sequence[str]] | None = None,
        size: int = 30,
        parents: int = 10,
        patterns: int = 12,
        first_samples: int = 20,
        samples: int = 5,
        norms: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25),
        top: int = 5,
        least: int = 3,
        give_up: int = 5,
        generations: int = 100,
        keep: int = 5,
        max_rows: int | None = 1000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.groups, self.size, self.parents, self.patterns = groups, size, parents, patterns
        self.first_samples, self.samples, self.norms = first_samples, samples, norms
        self.top, self.least, self.give_up = top, least, give_up
        self.generations, self.keep, self.max_rows = generations, keep, max_rows

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "size", "parents", "patterns", "first_samples", "samples", "top")
        check_positive(self, "give_up", "generations", "keep")
        at_least(self, 1, "max_rows")
        if len(self.norms) != 4 or min(self.norms) < 0 or not 0 < sum(self.norms) <= 1:
            raise ConfigError(
                f"GeCo: norms must be four weights that sum to 1 at most, got {self.norms!r}; "
                "the published ones are (0.25, 0.25, 0.25, 0.25)"
            )
        groups_of(space, self.groups)

    def _fit(self, train: TrainRows) -> None:
        x = train.x.to(self._device())
        if self.max_rows is not None and len(x) > self.max_rows:
            rng = np.random.default_rng(self.random_state)
            some = np.sort(rng.choice(len(x), self.max_rows, replace=False))
            x = x[torch.as_tensor(some)]
        self.known_ = x

    def _explain(self, query: Query) -> Answer:
        groups = groups_of(query.region.space, self.groups).to(query.x.device)
        people, score = fewest_changes(query, self.known_.to(query.x), groups, self._settings())
        sets, score = people[:, : self.keep], score[:, : self.keep]
        valid = (score <= VALID)[..., None]
        sets = torch.where(valid, sets, torch.full_like(sets, torch.nan))
        return Answer(x=sets[:, 0], sets=sets, infeasible=query.region.fixed.all(1))

    def _copies_per_row(self) -> int:
        return 4 * (self.size + self.patterns**2)

    def _settings(self) -> ChangeSettings:
        return ChangeSettings(
            size=self.size,
            parents=min(self.parents, self.size),
            patterns=self.patterns,
            first_samples=self.first_samples,
            samples=self.samples,
            norms=tuple(self.norms),
            top=self.top,
            least=self.least,
            give_up=self.give_up,
            generations=self.generations,
        )
