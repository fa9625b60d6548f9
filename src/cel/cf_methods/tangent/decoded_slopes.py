"""Descent over codes with gradients by hand: what was decoded is decoded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cel.cf_methods.query import MARGIN, Query
from cel.cf_methods.row_codes import RowCodes
from cel.cf_methods.tangent.score_slopes import ScoreLayers
from cel.cf_methods.view import CHUNK_ROWS
from cel.protocols import Task
from cel.search import LastOf

if TYPE_CHECKING:
    from cel.models.generative.vae.decoder_slopes import Decoded, DecoderSlopes

__all__ = ["DecodedSlopes"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """What is known of codes (n, q): the rows they stand for, and how the model scores these."""

    z: Tensor
    decoded: Decoded
    soft: Tensor  # (n, d), fixed columns put back
    hard: Tensor
    scores: Tensor
    hidden: list[Tensor]
    margin: Tensor


class DecodedSlopes:
    """`weight * max(0, aim - margin) + |x - row|_1 + |x - box|^2` of decoded rows x, by codes.

    Values, gradients and verdicts are those of autograd and of `Query.accept`, to the byte.

    Args:
        query: the rows.
        decoder: of the codes.
        layers: the scores of the model.
        aim: margin from which on the first term is zero.
    """

    def __init__(
        self, query: Query, decoder: DecoderSlopes, layers: ScoreLayers, aim: float
    ) -> None:
        self.query, self.decoder, self.layers, self.aim = query, decoder, layers, aim
        self._rows = LastOf(
            lambda rows: (query.x[rows], query.region.fixed[rows], query.target[rows])
        )
        self._last: _Seen | None = None

    @classmethod
    def of(cls, query: Query, codes: RowCodes, aim: float) -> DecodedSlopes | None:
        """Return the slopes where decoder and classifier are known layers, else None.

        Layers of foreign models that add up their scores in another order are not taken.
        """
        if query.model.task is not Task.CLASSIFICATION:
            return None
        decoder, layers = codes.slopes(query.x.dtype), ScoreLayers.of(query.model, query.x)
        if decoder is None or layers is None:
            return None
        with torch.no_grad():
            same = torch.equal(layers.forward(query.x)[0], query.model.model.logits(query.x))
        return cls(query, decoder, layers, aim) if same else None

    def descent(self, weights: Tensor) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return losses (a,) and gradients (a, q) at codes (a, q), for weights (n,)."""

        @torch.no_grad()
        def slope(z: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            query, seen = self.query, self._seen(z, rows)
            home, fixed, target = self._rows(rows)
            query.model.budget.spend(len(z))
            weight, x = weights[rows], seen.soft
            gap, outside = x - home, x - query.project(x, rows)
            short = self.aim - seen.margin
            pull = -torch.where(short >= 0, weight, 0.0)
            push = self.layers.pull(_margin_slope(seen.scores, target, pull), seen.hidden)
            grad = gap.sign().add_(push).add_(outside, alpha=2)
            grad = self.decoder.back(torch.where(fixed, 0.0, grad), seen.decoded)
            value = weight * short.clamp(min=0) + gap.abs().sum(-1) + outside.square().sum(-1)
            return value, torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0)

        return slope

    @torch.no_grad()
    def decode(self, z: Tensor, rows: Tensor) -> Tensor:
        """Return the rows (a, d) that codes (a, q) stand for, categories decided."""
        return self._seen(z, rows).hard

    @torch.no_grad()
    def accept(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Snap rows (a, d) and judge them; what was scored on the way is not scored again."""
        query, last = self.query, self._last
        snapped = query.snap(x, rows)
        known = last is not None and x is last.hard and len(x) <= CHUNK_ROWS
        if last is not None and known and torch.equal(snapped, last.soft):
            query.model.budget.spend(len(x))
            return snapped, last.margin >= MARGIN
        return snapped, query.model.margin(snapped, query.target[rows]) >= MARGIN

    def _seen(self, z: Tensor, rows: Tensor) -> _Seen:
        if self._last is not None and self._last.z is z:
            return self._last
        home, fixed, target = self._rows(rows)
        decoded = self.decoder.decode(z, home)
        soft = torch.where(fixed, home, decoded.soft)
        hard = soft
        if decoded.hard is not decoded.soft:
            hard = torch.where(fixed, home, decoded.hard)
        scores, hidden = self.layers.forward(soft)
        margin = self.query.model.margin_of(scores, target)
        self._last = _Seen(
            z=z, decoded=decoded, soft=soft, hard=hard, scores=scores, hidden=hidden,
            margin=margin,
        )  # fmt: skip
        return self._last


def _margin_slope(scores: Tensor, target: Tensor, pull: Tensor) -> Tensor:
    """Return slopes (n, K) by the scores of a loss with slopes (n,) by the margin.

    The best other scores share the slope if there are several.
    """
    at = target[:, None]
    others = scores.scatter(1, at, -torch.inf)
    best = others == others.amax(-1, keepdim=True)
    slope = (-pull[:, None] * best) / best.sum(-1, keepdim=True)
    return slope.scatter_(1, at, pull[:, None])
