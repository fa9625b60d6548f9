"""The search behind the door: the portfolio, few changes at a time, and several answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import Options
from cel.cf_methods.local_methods.auto import Auto
from cel.cf_methods.local_methods.auto.auto import PER_CHANGE
from cel.cf_methods.local_methods.auto.plans import Kind, Stage, Wish, kind_of
from cel.cf_methods.local_methods.dice import DiCE, DiCEIntervals
from cel.cf_methods.query import MARGIN, Answer, Query, TrainRows
from cel.door.further_answers import fill_sets
from cel.door.single_changes import single_moves
from cel.door.stage_methods import OWN
from cel.errors import BudgetExceeded
from cel.preprocessing import GivenRows
from cel.protocols import Proof, Task
from cel.search import Budget
from cel.search.beam import BeamFound, few_changes
from cel.search.boundary import narrow_to_boundary
from cel.space import FeatureSpace
from cel.space.layout import by_feature

__all__ = ["Efforts", "Portfolio"]

EXACT = ("actionable", "cells", "exact_tree", "exact_relu")  # whose answers need no second look
FEW = "few changes at a time"
DRAWN = ("growing_spheres", "dice")
DEEP = 6, 8  # changes combined and states kept, for rows that nothing else has answered
DEAR = 2.0  # times the least weight: columns that are left alone if that is possible


@dataclass(frozen=True, eq=False)
class Efforts:
    """The nearest that some rows come to what is wanted.

    Attributes:
        rows: (m,) their positions.
        points: (m, d) allowed points.
        given: the owner's rows.
    """

    rows: np.ndarray
    points: np.ndarray
    given: GivenRows


class Portfolio(Auto):
    """`auto`, then few changes at a time, by a cost that knows the weights of features.

    The first answer of a row is the cheapest of what the stages of `auto` and a beam search over
    single changes found; it does not depend on `n`. Further answers change other columns where
    that is possible, and cost more.

    Args:
        model: any model.
        n: answers per row.
        dummies: groups of 0/1 columns of which exactly one is 1; they move together.
        want: see `Auto`.
        gen_model: see `Auto`.
        **options: see `Options`.
    """

    takes_intervals: ClassVar[bool] = True

    def __init__(
        self,
        model: Any,
        *,
        n: int = 1,
        dummies: tuple[tuple[str, ...], ...] = (),
        want: Wish = "near",
        gen_model: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, want=want, gen_model=gen_model, **options)
        self.n, self.dummies = n, dummies

    def plan(self) -> tuple[Stage, ...]:
        """Return all stages; see `early` and `late`."""
        return (*self.early(), *self.late())

    def early(self) -> tuple[Stage, ...]:
        """Return the stages of `auto` that come before few changes.

        `cells` proves what it cannot answer, and tangents are not followed by a descent: these
        are cheap. Of a black box few changes are tried first, so that every stage sees only what
        is left.
        """
        if self._kind == "black_box":
            return ()
        stages = super().plan()
        if self._kind == "differentiable":
            stages = tuple(s for s in stages if s.method not in (*DRAWN, "nice"))
        exact = {"beta": PER_CHANGE}  # for the cost of `auto`, not distance alone
        return tuple(replace(s, params=exact) if s.method == "actionable" else s for s in stages)

    def late(self) -> tuple[Stage, ...]:
        """Return the stages for rows that few changes leave open."""
        if self._kind == "black_box":
            return tuple(s for s in super().plan() if not s.every)
        if self._kind == "differentiable":
            return (Stage(method="dice"), *(s for s in super().plan() if s.method == "nice"))
        return ()

    def _class_of(self, name: str) -> Any:
        return OWN.get(name) or super()._class_of(name)

    def _fit(self, train: TrainRows) -> None:
        super()._fit(train)
        self.kind_: Kind | None = None
        self.moves_ = single_moves(self.space or self.space_, train.x, self.dummies)

    @property
    def _kind(self) -> Kind:
        """What can be seen of the model; looked up once."""
        if self.kind_ is None:
            self.kind_ = kind_of(self._view(Budget()))
        return self.kind_

    def _explain(self, query: Query) -> Answer:
        answer, source = self._first(query)
        stuck = query.region.fixed.all(1) & answer.x.isnan().any(1)  # nothing may change
        none = stuck if answer.infeasible is None else answer.infeasible | stuck
        answer = replace(answer, infeasible=none)
        if self.n == 1:
            return replace(answer, row_logs={"source": source})
        sets = torch.full((len(query), self.n, query.x.shape[1]), torch.nan).to(query.x)
        sets[:, 0] = answer.x
        self._fill(query, sets)
        return replace(answer, sets=sets, row_logs={"source": source})

    def effort(self, query: Query, depth: int = 3) -> BeamFound:
        """Return how near rows come to what is wanted, whether they reach it or not."""
        return self._beam(query, query.rows(), depth=depth, width=4, keep=1)

    def best_efforts(self, rows: Any, target: Any) -> Efforts | None:
        """Return the nearest that rows of a table come to a target; None for encoded rows."""
        view = self._view(Budget(self.time_limit, strict=self.strict_time))
        prepared = self._prepare(rows, target, view)
        if prepared.given is None:
            return None
        at, points = [np.zeros(0, dtype=np.int64)], [prepared.x[:0]]
        for part, bound in prepared.groups(view):
            todo = np.flatnonzero(part.todo)
            if not len(todo) or view.budget.expired:
                continue
            try:
                found = self.effort(self._query(part, todo, bound))
            except BudgetExceeded:
                break
            at.append(todo)
            points.append(found.best.cpu().numpy())
        return Efforts(np.concatenate(at), np.concatenate(points), prepared.given)

    def reasoning(self) -> str:
        """Return which searches answer, and why, in a sentence."""
        if self._view(Budget()).task is Task.REGRESSION:
            return "Predicted numbers: drawn changes, then few changes at a time."
        kind = self._kind
        why = {
            "linear": "The model is linear, so an exact search comes first",
            "trees": "The model is made of trees, so their cells are searched",
            "differentiable": "The model has gradients, which lead the way",
            "black_box": "Nothing but predictions can be seen of the model",
        }[kind]
        names = [
            ", ".join(dict.fromkeys(s.method for s in p)) for p in (self.early(), self.late())
        ]
        return f"{why}: " + ", then ".join(n for n in (names[0], FEW, names[1]) if n) + "."

    # -- one answer --------------------------------------------------------------------------

    def _first(self, query: Query) -> tuple[Answer, list[str | None]]:
        """Return the cheapest answers, and where they are from: stages, few changes, stages."""
        plain = query.model.task is Task.CLASSIFICATION and not self._weighted(query.region.space)
        early = self.early() if plain else self.plan()
        answer = self._stages(query, early)
        source = _sources(answer, len(query))
        rows = self._second_look(query, answer, source)
        if not len(rows):
            return answer, source
        new, at = self._few(query, rows, self._effort(query))
        answer, source = self._taken(query, answer, source, new, at)
        lost = self._lost(answer)
        if plain and len(lost) and not query.budget.expired:
            new, at = self._few(query, lost, self._effort(query, deep=True))
            answer, source = self._taken(query, answer, source, new, at)
            lost = self._lost(answer)
        if not (plain and len(lost) and self.late()) or query.budget.expired:
            return answer, source
        return self._joined(answer, source, lost, self._by(query.select(lost), self.late()))

    @staticmethod
    def _lost(answer: Answer) -> Tensor:
        """Return the rows (m,) without an answer and without a proof that there is none."""
        open_ = answer.x.isnan().any(1)
        if answer.infeasible is not None:
            open_ &= ~answer.infeasible.to(open_.device)
        return open_.nonzero()[:, 0]

    @staticmethod
    def _joined(
        answer: Answer, source: list[str | None], rows: Tensor, rest: Answer
    ) -> tuple[Answer, list[str | None]]:
        """Return an answer with what later stages say about some rows (m,)."""
        x = answer.x.clone()
        x[rows] = rest.x
        none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        if answer.infeasible is not None:
            none |= answer.infeasible.to(none.device)
        if rest.infeasible is not None:
            none[rows] = rest.infeasible.to(none.device)
        told = np.array(source, dtype=object)
        told[rows.cpu().numpy()] = _sources(rest, len(rows))
        return replace(answer, x=x, infeasible=none, logs=rest.logs), told.tolist()

    def _few(self, query: Query, rows: Tensor, effort: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Return accepted points (a, d) of few changes and their rows (a,)."""
        on = self._weighted(query.region.space)  # what was accepted first may be dear
        try:
            found = self._beam(query, rows, depth=effort[0], width=effort[1], onwards=on)
            return self._finished(query, found)
        except BudgetExceeded:
            return query.x[:0], rows[:0]

    def _taken(
        self, query: Query, answer: Answer, source: list[str | None], new: Tensor, at: Tensor
    ) -> tuple[Answer, list[str | None]]:
        """Put new points (a, d) of rows (a,) where they are cheaper than what there is."""
        x, cost = answer.x.clone(), self._cost(query)
        held = ~x.isnan().any(1)
        old = torch.full_like(x[:, 0], torch.inf)
        old[held] = cost(x[held], query.rows()[held])
        price = cost(new, at)
        order = torch.argsort(price, stable=True)
        _, where = np.unique(at[order].cpu().numpy(), return_index=True)
        best = order[torch.as_tensor(where)]  # the cheapest new point of each row
        best = best[price[best] < old[at[best]] - 1e-6]
        won = torch.zeros(len(query), dtype=torch.bool)
        won[at[best].cpu()] = True
        x[at[best]] = new[best]
        proof, bound, none = answer.proof, answer.bound, answer.infeasible
        mine = won.numpy()
        source = np.where(mine, "few changes", np.array(source, dtype=object)).tolist()
        if proof is not None:
            proof = np.where(mine, Proof.NONE.value, proof)
        if bound is not None:
            bound = torch.where(won.to(bound.device), torch.nan, bound)
        if none is not None:
            none = none & ~won.to(none.device)
        return replace(answer, x=x, proof=proof, bound=bound, infeasible=none), source

    def _stages(self, query: Query, stages: tuple[Stage, ...]) -> Answer:
        """Return what some stages answer; for numbers, DiCE towards intervals."""
        nothing = Answer(x=torch.full_like(query.x, torch.nan))
        if query.model.task is Task.CLASSIFICATION:
            return self._cheap_columns_first(query, stages) if stages else nothing
        try:
            found = self._helper(DiCEIntervals).answer(query)
        except BudgetExceeded:
            return nothing
        told = ["dice" if h else None for h in (~found.x.isnan().any(1)).tolist()]
        return replace(nothing, x=found.x, row_logs={"source": told})

    def _cheap_columns_first(self, query: Query, stages: tuple[Stage, ...]) -> Answer:
        """Ask the portfolio without the dear columns first, and with them where that fails."""
        weight = torch.tensor([f.weight for f in query.region.space])
        dear = weight > DEAR * weight.min()
        if not bool(dear.any()):
            return self._by(query, stages)
        held = self._by(replace(query, region=query.region.freeze(dear)), stages)
        rows = held.x.isnan().any(1).nonzero()[:, 0]
        x, n = held.x.clone(), len(query)
        told = np.array((held.row_logs or {}).get("source", [None] * n), dtype=object)
        infeasible = torch.zeros(n, dtype=torch.bool, device=x.device)
        if len(rows):
            free = self._by(query.select(rows), stages)
            x[rows] = free.x
            told[rows.cpu().numpy()] = (free.row_logs or {}).get("source", [None] * len(rows))
            if free.infeasible is not None:
                infeasible[rows] = free.infeasible
        logs = {"source": told.tolist()}
        return Answer(x=x, infeasible=infeasible, logs=held.logs, row_logs=logs)

    def _helper(self, cls: type[DiCE], **params: Any) -> DiCE:
        key = f"{cls.__name__} {params}"
        if key not in self.ready_:
            made = cls(
                self.model,
                space=self.space,
                random_state=self.random_state,
                tolerance=self.tolerance,
                **params,
            )
            self.ready_[key] = made.adopt_rows(self)
        found = self.ready_[key]
        assert isinstance(found, DiCE)
        return found

    def _second_look(self, query: Query, answer: Answer, source: list[str | None]) -> Tensor:
        """Return the rows that a search over few changes may serve better."""
        sure = torch.zeros(len(query), dtype=torch.bool)
        if answer.proof is not None:
            sure = torch.as_tensor(np.asarray(answer.proof) == Proof.OPTIMAL.value)
        if not self._weighted(query.region.space):
            sure |= torch.tensor([s in EXACT for s in source], dtype=torch.bool)
        if answer.infeasible is not None:
            sure |= answer.infeasible.cpu()
        return (~sure).nonzero()[:, 0].to(query.x.device)

    def _effort(self, query: Query, *, deep: bool = False) -> tuple[int, int]:
        """Return how many changes are combined, and how many states of a row are kept."""
        limit = query.region.space.limit
        if deep:
            return min(DEEP[0], DEEP[0] if limit is None else limit.most), DEEP[1]
        if self._weighted(query.region.space) or limit is not None:
            return min(4, 4 if limit is None else limit.most), 6
        return (3, 4) if self._kind == "black_box" else (2, 4)

    @staticmethod
    def _weighted(space: FeatureSpace) -> bool:
        return len({f.weight for f in space}) > 1

    def _beam(
        self, query: Query, rows: Tensor, *, depth: int, width: int, keep: int = 4, **more: Any
    ) -> BeamFound:
        part, cost = query.select(rows), self._cost(query.select(rows))

        def judge(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
            seen = part.region.select(at).snap(x)
            return seen, query.model.margin(seen, part.target[at])

        found = few_changes(
            part.x, self.moves_, judge, cost,
            depth=depth, width=width, keep=keep, edge=MARGIN, budget=query.budget, **more,
        )  # fmt: skip
        return replace(found, row=rows[found.row])

    def _finished(self, query: Query, found: BeamFound) -> tuple[Tensor, Tensor]:
        """Move numbers of accepted points as near to their rows as they stay accepted."""
        if not len(found.row):
            return found.x, found.row
        part = query.select(found.row)
        numeric = query.region.layout.numeric
        return narrow_to_boundary(part.x, found.x, part.accept, slide=numeric), found.row

    # -- several -----------------------------------------------------------------------------

    def _fill(self, query: Query, sets: Tensor) -> None:
        """Put further answers behind the first ones, in place; other columns come first."""
        rows = (~sets[:, 0].isnan().any(1)).nonzero()[:, 0]
        if not len(rows):
            return
        limit = query.region.space.limit
        depth = min(3, 3 if limit is None else limit.most)
        try:
            found = self._beam(query, rows, depth=depth, width=6, keep=2 * self.n, onwards=True)
            pool = [self._finished(query, found)]
            if self.n > 4:
                cls = DiCE if query.model.task is Task.CLASSIFICATION else DiCEIntervals
                drawn = self._helper(cls, total_CFs=self.n).answer(query.select(rows)).sets
                if drawn is not None:
                    row, which = (~drawn.isnan().any(-1)).nonzero(as_tuple=True)
                    pool.append((drawn[row, which], rows[row]))
        except BudgetExceeded:
            return
        points = torch.cat([p for p, _ in pool])
        at = torch.cat([r for _, r in pool])
        fill_sets(query, sets, points, at, self._cost(query))

    def _cost(self, query: Query) -> Any:
        """Return the cost of points: of `auto`, times the weights of features."""
        space, lay = query.region.space, query.region.layout
        scale = self.scale_.to(query.x)
        price = torch.as_tensor(space.vector("weight")).to(query.x)
        weight = price * torch.where(lay.numeric, 1 / scale, torch.full_like(scale, 0.5))
        each = torch.tensor([f.weight for f in space]).to(query.x)

        def cost(x: Tensor, rows: Tensor) -> Tensor:
            moved = (x - query.x[rows]).abs()
            touched = by_feature(moved, lay.owner, len(space))
            return (moved * weight).sum(-1) + PER_CHANGE * ((touched > 0) * each).sum(-1)

        return cost


def _sources(answer: Answer, n: int) -> list[str | None]:
    told = (answer.row_logs or {}).get("source", [None] * n)
    return [s if s is None else str(s) for s in told]
