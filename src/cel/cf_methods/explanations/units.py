"""Explanations that speak about many rows: their units, in words, tables and JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from cel.cf_methods.explanations.wording import Term, plain
from cel.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from cel.result import ExplanationResult

__all__ = ["GlobalExplanation", "Unit"]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One rule, direction, action or box.

    Attributes:
        id: the number that `ExplanationResult.cf_group_ids` uses.
        kind: "rule", "direction", "action" or "box".
        conditions: for whom it is meant, in original units; empty for everybody.
        effects: what changes, or where to go, in original units.
        cost: mean cost in bins over the fitted rows that it helps, NaN if it helps none.
        coverage: share of the fitted rows that it is meant for.
        correctness: share of those that reach the target.
        details: what else is known (scalars, charts, members).
    """

    id: int
    kind: str
    conditions: tuple[Term, ...] = ()
    effects: tuple[Term, ...] = ()
    cost: float = float("nan")
    coverage: float = 0.0
    correctness: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def if_text(self) -> str:
        """The conditions in words."""
        shown = [str(t) for t in self.conditions if t.operator != "any"]
        return " and ".join(shown) or "everybody"

    @property
    def then_text(self) -> str:
        """The effects in words."""
        return ", ".join(str(t) for t in self.effects if t.operator != "any") or "nothing"

    def __str__(self) -> str:
        arrow = "go to" if self.kind == "box" else "then"
        return (
            f"[{self.id}] if {self.if_text} {arrow} {self.then_text}  "
            f"(coverage {self.coverage:.0%}, correct {self.correctness:.0%}, "
            f"cost {self.cost:.3g} bins)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the unit as JSON can hold it."""
        return {
            "id": self.id,
            "kind": self.kind,
            "conditions": [t.to_dict() for t in self.conditions],
            "effects": [t.to_dict() for t in self.effects],
            "cost": plain(self.cost),
            "coverage": plain(self.coverage),
            "correctness": plain(self.correctness),
            "details": _plain_tree(self.details),
        }


class Assigner(Protocol):
    """Gives rows the units of an explanation it made."""

    def assign(self, explanation: GlobalExplanation, X: Any, target: Any) -> ExplanationResult:
        """Return one outcome per row of `X`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GlobalExplanation:
    """What a global or group method has to say about one target.

    Attributes:
        method: registry name.
        target: the target in the user's words.
        units: rules, directions, actions or boxes, in order of use.
        rows: number of rows that it was fitted on.
        coverage: share of those rows that get a candidate.
        validity: share of those rows that reach the target.
        cost: mean cost in bins of those that do.
        conflict_rate: share of those rows that more than one unit is meant for.
        reason: why there are no units, or None.
        budget_hit: whether an enumeration was cut short; `logs` says which.
        logs: anything worth telling.
        key: what the method files it under.
        state: what the method needs to apply it.
        owner: the method that made it.
    """

    method: str
    target: Any
    units: tuple[Unit, ...] = ()
    rows: int = 0
    coverage: float = 0.0
    validity: float = 0.0
    cost: float = float("nan")
    conflict_rate: float = 0.0
    reason: str | None = None
    budget_hit: bool = False
    logs: Mapping[str, Any] = field(default_factory=dict)
    key: int = 0
    state: Any = None
    owner: Assigner | None = None

    def __len__(self) -> int:
        return len(self.units)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self.units)

    def __getitem__(self, id: int) -> Unit:
        """Return the unit with an id, as found in `ExplanationResult.cf_group_ids`."""
        for unit in self.units:
            if unit.id == id:
                return unit
        raise ConfigError(f"no unit {id}; the units are {[u.id for u in self.units]}")

    @property
    def rule_length(self) -> float:
        """Mean number of conditions and effects of a unit."""
        sizes = [sum(t.operator != "any" for t in (*u.conditions, *u.effects)) for u in self.units]
        return sum(sizes) / max(len(sizes), 1)

    def assign(self, X: Any, target: Any = None) -> ExplanationResult:
        """Give every row its unit (`cf_group_ids`), counterfactual (`x_cfs`) and `status`.

        Args:
            X: rows as for `explain`.
            target: only for regression: the wanted values; by default those that it is about.
        """
        if self.owner is None:
            raise ConfigError("this explanation has lost its method; keep the fitted method")
        return self.owner.assign(self, X, target)

    def to_frame(self) -> pd.DataFrame:
        """Return one line per unit, in original units."""
        import pandas as pd

        columns = ["unit", "kind", "if", "then", "coverage", "correctness", "cost"]
        lines = [
            (u.id, u.kind, u.if_text, u.then_text, u.coverage, u.correctness, u.cost)
            for u in self.units
        ]
        return pd.DataFrame(lines, columns=columns).set_index("unit")

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON can hold it."""
        return {
            "method": self.method,
            "target": plain(self.target),
            "rows": self.rows,
            "coverage": plain(self.coverage),
            "validity": plain(self.validity),
            "cost": plain(self.cost),
            "conflict_rate": plain(self.conflict_rate),
            "reason": self.reason,
            "budget_hit": self.budget_hit,
            "logs": _plain_tree(self.logs),
            "units": [u.to_dict() for u in self.units],
        }

    def to_json(self) -> str:
        """Return the explanation as JSON text."""
        return json.dumps(self.to_dict())

    def __str__(self) -> str:
        head = f"{self.method} for target {self.target!r}: {len(self.units)} units"
        if self.reason:
            return f"{head}; {self.reason}"
        note = " (an enumeration was cut short)" if self.budget_hit else ""
        tail = f", {self.validity:.1%} of {self.rows} rows reach it at {self.cost:.3g} bins{note}"
        return "\n".join([head + tail, *(str(u) for u in self.units)])

    def _repr_html_(self) -> str:
        head = str(self).split("\n", 1)[0]
        return f"<p>{html.escape(head)}</p>{self.to_frame().to_html()}"


def _plain_tree(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain_tree(v) for k, v in value.items()}
    if isinstance(value, Term):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain_tree(v) for v in value]
    return value if value is None else plain(value)
