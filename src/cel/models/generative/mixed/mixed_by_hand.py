"""Steps of a mixed density without a graph: what autograd computes, in memory that is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cel.models.generative.flows.flow import Flow
from cel.models.generative.flows.flow_by_hand import FlowByHand
from cel.models.generative.flows.masked_by_hand import MaskedByHand, Trace, Workspace, learns_alone
from cel.models.generative.mixed.categorical import CategoricalNet, hide_blocks
from cel.models.generative.mixed.category_terms import Terms

if TYPE_CHECKING:
    from cel.models.generative.mixed.mixed_net import MixedNet

__all__ = ["MixedByHand"]


class MixedByHand:
    """The losses of a mixed density and their gradients; see `of`.

    Args:
        net: what learns.
        law: its law of choices.
        flow: its flow of numbers.
    """

    def __init__(self, net: MixedNet, law: CategoricalNet, flow: Flow) -> None:
        self.net, self.law, self.flow = net, LawByHand(law), FlowByHand(flow)

    @classmethod
    def of(cls, net: MixedNet) -> MixedByHand | None:
        """Return the steps of a known net with both parts, a single one that learns on a CPU."""
        law, flow = net.law, net.flow
        if type(law) is not CategoricalNet or type(flow) is not Flow:
            return None
        # The flow has its context in the units of the net.
        plain = not flow.context_loc.any() and bool((flow.context_scale == 1).all())
        known = learns_alone(law.net) and law.terms.serves(flow.loc) and FlowByHand.serves(flow)
        return cls(net, law, flow) if plain and known else None

    @torch.no_grad()
    def __call__(self, weight: Tensor | None, *batch: Tensor) -> Tensor:
        """Set the gradients of the mean loss and return it; all rows weigh the same."""
        assert weight is None, "one model has no repeated rows"
        x, losses = batch[0], self._losses(*batch, learns=True)
        self.law.learn(len(x))
        self.flow.learn(len(x))
        return losses.mean(-1)

    @torch.no_grad()
    def rows(self, *batch: Tensor) -> Tensor:
        """Return the losses of rows (n, d), given their context if they have one."""
        return self._losses(*batch, learns=False)

    def _losses(self, x: Tensor, context: Tensor | None = None, *, learns: bool) -> Tensor:
        net, law = self.net, self.law.law
        blocks, numbers = net.choices(x)
        given = net.standard_context(context)
        total = self.law.density(blocks, given, learns=learns).add_(-net.choices.log_cell)
        room = self.flow.kept(len(x), learns).context
        if given is not None:
            room[:, : given.shape[1]] = given
        hide_blocks(
            blocks, law.blocks, net.dropout if net.training else 0.0, room[:, -blocks.shape[1] :]
        )
        return total.add_(self.flow.density(numbers, learns=learns)).neg_()


class LawByHand:
    """The log-probabilities of choices and the gradients of their mean.

    Args:
        law: what learns.
    """

    def __init__(self, law: CategoricalNet) -> None:
        self.law, self.net = law, MaskedByHand(law.net, spaced=True)
        self.memory: dict[tuple[int, bool], tuple[Trace, Workspace, Tensor]] = {}
        self.terms: Terms

    def density(self, onehot: Tensor, context: Tensor | None, *, learns: bool) -> Tensor:
        """Return log P (n,) of rows (n, D)."""
        law, net, (n, width) = self.law, self.net, onehot.shape
        trace, space, table = self._kept(n, learns)
        hide_blocks(
            onehot, law.blocks, law.dropout if law.training else 0.0, trace.inputs[:, :width]
        )
        if context is not None:
            trace.inputs[:, width:] = context
        net.mask_weights(space.layer)
        net.forward(0, trace, space)
        self.terms = Terms(law.terms, space.out, onehot, table)
        return self.terms.rows

    def learn(self, n: int) -> None:
        """Write the gradients of all weights, of minus the mean of the last densities."""
        trace, space, _ = self._kept(n, True)
        by = -torch.ones(n) / n
        space.by_out.copy_(self.terms.backward(by))
        self.net.backward(0, trace, space)
        self.net.mask_gradients(space.layer)

    def _kept(self, n: int, learns: bool) -> tuple[Trace, Workspace, Tensor]:
        key = n, learns
        if key not in self.memory:
            table = torch.zeros(self.law.terms.table_shape(n))
            self.memory[key] = Trace(self.net, n), Workspace(self.net, n), table
        return self.memory[key]
