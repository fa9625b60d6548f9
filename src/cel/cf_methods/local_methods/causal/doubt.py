"""Equations that are not certain: what an action promises for most of what they may be."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cel.cf_methods.view import ModelView
from cel.space.causal import StructuralModel

__all__ = ["Doubt", "as_score"]

END = 0.99


@dataclass(frozen=True, eq=False)
class Doubt:
    """Several structural models that the data allow, and how careful to be.

    Attributes:
        models: learnt from rows drawn again and again.
        caution: standard deviations below the mean that must still have the class.
    """

    models: tuple[StructuralModel, ...]
    caution: float

    def lead(
        self, model: ModelView, x: Tensor, action: Tensor, acted: Tensor, target: Tensor
    ) -> Tensor:
        """Return (a,) the lower confidence bound of the lead of the wanted class.

        The lead is its probability less that of the best other class; with two classes it is
        positive where the probability exceeds one half. The bound is the mean over the models less
        `caution` standard deviations.

        Args:
            model: the model that is explained.
            x: (a, d) rows.
            action: (a, d) what is added to the features that are acted on.
            acted: (a, p) bool, which these are.
            target: (a,) wanted class positions.
        """
        ends = torch.cat([m.follow(x, action, acted) for m in self.models])
        chance = model.logits(ends).softmax(-1)
        wanted = target.repeat(len(self.models))[:, None]
        own = chance.gather(1, wanted)[:, 0]
        other = chance.scatter(1, wanted, -1.0).amax(1)
        lead = (own - other).reshape(len(self.models), -1)
        spread: Tensor = lead.var(0, correction=0).clamp(min=1e-12).sqrt()
        return lead.mean(0) - self.caution * spread


def as_score(lead: Tensor) -> Tensor:
    """Stretch leads in probability (a,) to the scale of scores, signs kept.

    With two classes and no doubt it is the difference of their scores, which is as straight as
    the model, where probabilities bend; beyond 0.99 it goes on as a line.

    >>> [round(float(v), 3) for v in as_score(torch.tensor([-0.5, 0.0, 0.5, 2.0]))]
    [-1.099, 0.0, 1.099, 106.801]
    """
    inner = lead.clamp(-END, END)
    return 2 * torch.atanh(inner) + (lead - inner) * 2 / (1 - END**2)
