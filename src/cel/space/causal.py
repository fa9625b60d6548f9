"""What follows from an action: structural equations between features, for many rows at once.

A feature with parents is `x_j = g_j(parents) + u_j`. The noise u_j of a row is what its parents do
not explain (abduction); an action sets some features and cuts them off from their parents;
all others follow from what changed above them (prediction), with the noise of the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from cel.errors import ConfigError
from cel.space._arrays import to_tensor
from cel.space.feature_space import FeatureSpace
from cel.space.mechanisms import Mechanism, kernel, least_squares, network, nothing

__all__ = ["Learnt", "Mechanism", "StructuralModel"]

Learnt = Literal["linear", "kernel", "mlp"]
"""How the equations of a graph are learnt."""


class StructuralModel:
    """Structural equations of a feature space, in the coordinates of its matrix.

    Args:
        space: the features.
        mechanisms: feature -> how it follows from its parents; features without one are roots.

    >>> chain = StructuralModel(
    ...     FeatureSpace.continuous(2), {"x1": Mechanism.linear({"x0": 0.5})}
    ... )
    >>> x, act = torch.tensor([[0.2, 0.4]]), torch.tensor([[True, False]])
    >>> chain.follow(x, torch.tensor([[0.4, 0.0]]), act)
    tensor([[0.6000, 0.6000]])
    """

    def __init__(self, space: FeatureSpace, mechanisms: Mapping[str, Mechanism]) -> None:
        self.space, self.mechanisms = space, dict(mechanisms)
        for name, mechanism in self.mechanisms.items():
            if space[name].is_categorical:
                raise ConfigError(
                    f"feature {name!r} is categorical and cannot follow from {mechanism.parents}; "
                    "categories may be causes, not effects"
                )
            for parent in mechanism.parents:
                _ = space[parent]
            width = len(self._columns(mechanism.parents))
            if mechanism.weights is not None and len(mechanism.weights) != width:
                raise ConfigError(
                    f"feature {name!r}: {len(mechanism.weights)} weights for {width} columns of "
                    f"its parents {mechanism.parents}"
                )
        self.order = _order({n: m.parents for n, m in self.mechanisms.items()})

    @classmethod
    def fitted(
        cls,
        space: FeatureSpace,
        x: Any,
        graph: Mapping[str, Sequence[str]],
        kind: Learnt = "linear",
    ) -> StructuralModel:
        """Learn the equations of a graph (feature -> parents) from rows `x` (m, d).

        "linear" is least squares, "kernel" ridge regression with a Gaussian kernel, "mlp" a small
        network; all with additive noise.
        """
        rows = to_tensor(x).double()
        model = cls(
            space, {n: Mechanism(tuple(p), function=nothing) for n, p in graph.items() if p}
        )
        found = {}
        for name, mechanism in model.mechanisms.items():
            inputs = rows[:, model._columns(mechanism.parents)]
            outcome = rows[:, space[name].columns[0]]
            learn = {"linear": least_squares, "kernel": kernel, "mlp": network}[kind]
            found[name] = learn(mechanism.parents, inputs, outcome)
        return cls(space, found)

    @classmethod
    def resampled(
        cls,
        space: FeatureSpace,
        x: Any,
        graph: Mapping[str, Sequence[str]],
        kind: Learnt = "linear",
        *,
        draws: int = 20,
        seed: int = 0,
    ) -> tuple[StructuralModel, ...]:
        """Learn the equations `draws` times, from rows drawn with replacement.

        How much they differ is what the rows leave open about the equations.

        >>> x = torch.rand(50, 2, generator=torch.manual_seed(0))
        >>> graph = {"x1": ["x0"]}
        >>> len(StructuralModel.resampled(FeatureSpace.continuous(2), x, graph, draws=3))
        3
        """
        rows, rng = to_tensor(x), torch.Generator().manual_seed(seed)
        drawn = torch.randint(len(rows), (draws, len(rows)), generator=rng)
        return tuple(cls.fitted(space, rows[i], graph, kind) for i in drawn)

    @property
    def is_linear(self) -> bool:
        """Whether all mechanisms are linear."""
        return all(m.weights is not None for m in self.mechanisms.values())

    @property
    def graph(self) -> dict[str, tuple[str, ...]]:
        """Feature -> parents, for all features that have some."""
        return {n: m.parents for n, m in self.mechanisms.items()}

    def noise(self, x: Tensor) -> Tensor:
        """Return what parents do not explain (a, d); roots are all noise."""
        out = x.clone()
        for name, mechanism in self.mechanisms.items():
            column = self.space[name].columns[0]
            out[:, column] = x[:, column] - mechanism(x[:, self._columns(mechanism.parents)])
        return out

    def follow(self, x: Tensor, action: Tensor, acted: Tensor) -> Tensor:
        """Return the rows (a, d) that result from actions.

        Where nothing changes above a feature it keeps its value bit for bit.

        Args:
            x: (a, d) rows.
            action: (a, d) what is added to the features that are acted on.
            acted: (a, p) bool, which these are; they no longer follow from their parents.
        """
        owner = torch.as_tensor(self.space.owner, device=x.device)
        columns = list((x + torch.where(acted[:, owner], action, torch.zeros_like(x))).unbind(1))
        for name in self.order:
            mechanism = self.mechanisms[name]
            column, feature = self.space[name].columns[0], self.space.names.index(name)
            above = self._columns(mechanism.parents)
            now = torch.stack([columns[c] for c in above], 1)
            change = mechanism(now) - mechanism(x[:, above])
            change = torch.where(acted[:, feature], torch.zeros_like(change), change)
            moved = (now != x[:, above]).any(1)
            still = columns[column] + (change - change.detach())  # its slope, not its rounding
            columns[column] = torch.where(moved, columns[column] + change, still)
        return torch.stack(columns, 1)

    def effects(self, acted: Tensor) -> Tensor:
        """Return (s, d, d): how linear equations turn actions on sets (s, p) into changes.

        `x' = x + effects @ action`; columns that are not acted on are zero.
        """
        if not self.is_linear:
            raise ConfigError("effects are constant for linear mechanisms only; use follow")
        owner = torch.as_tensor(self.space.owner, device=acted.device)
        touched = acted[:, owner].double()
        eye = torch.eye(self.space.width, dtype=torch.float64, device=acted.device)
        open_ = eye - (1 - touched)[:, :, None] * self._coefficients.to(acted.device)
        closed: Tensor = torch.linalg.solve(open_, eye.expand_as(open_))
        return closed * touched[:, None, :]

    @cached_property
    def _coefficients(self) -> Tensor:
        """(d, d) weight of each column in the equation of each other one."""
        out = torch.zeros(self.space.width, self.space.width, dtype=torch.float64)
        for name, mechanism in self.mechanisms.items():
            assert mechanism.weights is not None
            above = self._columns(mechanism.parents)
            out[self.space[name].columns[0], above] = mechanism.weights.double().cpu()
        return out

    def _columns(self, parents: Sequence[str]) -> list[int]:
        return [c for name in parents for c in self.space[name].columns]


def _order(graph: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the features that have parents, causes first."""
    left, out = dict(graph), []
    while left:
        free = [n for n, parents in left.items() if not any(p in left for p in parents)]
        if not free:
            raise ConfigError(
                f"the causes of {', '.join(sorted(left))} go round in a circle; a structural "
                "model needs a graph without cycles"
            )
        out += free
        for name in free:
            del left[name]
    return tuple(out)
