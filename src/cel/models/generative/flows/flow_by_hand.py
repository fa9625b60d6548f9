"""Steps of a flow without a graph: what autograd computes, in memory that is kept.

The loss of a row is -log p(x | c). The gradients that travel here are those of log p: the sign is
exact, and with it there is less to negate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cel.models.generative.flows.bijections import Affine, Spline
from cel.models.generative.flows.latent_by_hand import LatentByHand
from cel.models.generative.flows.maps_by_hand import AffineByHand, SplineByHand
from cel.models.generative.flows.masked_by_hand import (
    ROUND,
    MaskedByHand,
    Trace,
    Workspace,
    learns_alone,
    same_narrow,
)

if TYPE_CHECKING:
    from cel.models.generative.flows.flow import Flow

__all__ = ["FlowByHand"]

MAPS = {Affine: AffineByHand, Spline: SplineByHand}


class FlowByHand:
    """The losses of a flow and their gradients; see `serves`.

    Args:
        flow: what learns.
    """

    def __init__(self, flow: Flow) -> None:
        spaced = type(flow.bijection) is not Affine  # `affine_chain` has them side by side
        self.flow, self.net = flow, MaskedByHand(flow.net, spaced=spaced)
        self.memory: dict[tuple[int, bool], FlowMemory] = {}  # by the rows, and whether they teach

    @staticmethod
    def serves(flow: Flow) -> bool:
        """Tell whether this is one autoregressive flow of a known map that learns on a CPU."""
        known = type(flow.bijection) in MAPS and flow.bijection.fuses
        return known and flow.moving is None and flow.log_scale is None and learns_alone(flow.net)

    @torch.no_grad()
    def __call__(self, weight: Tensor | None, *batch: Tensor) -> Tensor:
        """Set the gradients of the mean loss and return it; all rows weigh the same."""
        assert weight is None, "one model has no repeated rows"
        x, losses = batch[0], self._losses(*batch, learns=True)
        self.learn(len(x))
        return losses.mean(-1)

    @torch.no_grad()
    def rows(self, *batch: Tensor) -> Tensor:
        """Return the losses of rows (n, d), given their context if they have one."""
        return self._losses(*batch, learns=False)

    def _losses(self, x: Tensor, context: Tensor | None = None, *, learns: bool) -> Tensor:
        given = self.flow.standard_context(context)
        if given is not None:
            self.kept(len(x), learns).context.copy_(given)
        return self.density(x, learns=learns).neg_()

    def kept(self, n: int, learns: bool) -> FlowMemory:
        """Return the memory for `n` rows; its `context` is for the caller to fill."""
        key = n, learns
        return self.memory.get(key) or self.memory.setdefault(key, FlowMemory(self, n, learns))

    def density(self, x: Tensor, *, learns: bool) -> Tensor:
        """Return log p of rows (n, d) given the context in their memory."""
        flow, net, kept = self.flow, self.net, self.kept(len(x), learns)
        net.mask_weights(kept.space.layer)
        if flow.training and flow.noise:
            x = torch.add(x, kept.noise.normal_().mul_(flow.noise), out=kept.noise)
        for part in kept.contexts[1:]:
            part.copy_(kept.context)
        torch.sub(x, flow.loc, out=kept.z[0]).div_(flow.scale)
        slopes = -flow.scale.log()
        for t, trace in enumerate(kept.traces):
            kept.enter(t)
            net.forward(t, trace, kept.space)
            slopes = kept.map.forward(t, kept.z[t], slopes, kept.z[t + 1])
        return kept.latent.rows(kept.z[-1]).add_(slopes.sum(-1))

    def learn(self, n: int) -> None:
        """Write the gradients of all weights, of minus the mean of the last densities."""
        net, kept = self.net, self.kept(n, True)
        by = kept.latent.slope(kept.z[-1])
        for t in range(len(kept.traces) - 1, -1, -1):
            direct = kept.map.backward(t, by, kept.z[t + 1])
            if t + 1 < len(kept.traces):
                kept.enter(t)
            net.backward(t, kept.traces[t], kept.space)
            if t:
                torch.mm(kept.space.by_whole, kept.back[t], out=kept.by_inputs)
                torch.sub(direct, kept.by_z, out=by)
        net.mask_gradients(kept.space.layer)


class FlowMemory:
    """Where a step writes for batches of `n` rows; one that does not learn keeps one transform.

    Where the context is wider than the rows, all transforms read one table of inputs, which has
    the numbers of one transform at a time.
    """

    def __init__(self, own: FlowByHand, n: int, learns: bool) -> None:
        flow, net = own.flow, own.net
        d, count, room = flow.n_features, len(net.first), flow.loc.new_empty
        self.space = Workspace(net, n)
        self.shared = learns and net.n_inputs > 2 * d
        inputs = room(n, net.n_inputs) if self.shared else None
        traces = [Trace(net, n, inputs) for _ in range(count if learns else 1)]
        seen = [trace.inputs for trace in (traces[:1] if self.shared else traces)]
        self.contexts, self.entry = [t[:, d:] for t in seen], seen[0][:, :d]
        self.context = self.contexts[0]
        self.traces = traces if learns else traces * count
        here = [t.inputs[:, :d] for t in self.traces]
        self.z = [*([room(n, d) for _ in here] if self.shared else here), room(n, d)]
        self.noise = room(n, d)
        self._make_way_back(own, n)
        self.latent = LatentByHand(flow.tail, n, d)
        self.map = MAPS[type(flow.bijection)](flow.bijection, self.space, (n, d), len(traces))

    def _make_way_back(self, own: FlowByHand, n: int) -> None:
        """Prepare the gradient of the numbers: that of the context is wanted by nobody."""
        net, d = own.net, own.flow.n_features
        wanted = min(-(-d // ROUND) * ROUND, net.n_inputs)
        width, whole = net.hidden + net.n_outputs, self.space.layer.width
        if not same_narrow(n, width, whole, net.n_inputs, wanted):
            wanted = net.n_inputs
        self.back, self.by_inputs = net.first_back(wanted), own.flow.loc.new_empty(n, wanted)
        self.by_z = self.by_inputs[:, :d]

    def enter(self, t: int) -> None:
        """Put the numbers that transform `t` reads where it reads them."""
        if self.shared:
            self.entry.copy_(self.z[t])
