"""Live progress of a run."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["RunProgress"]


STAGES = ("predictor", "density", "explain", "score")


class RunProgress:
    """A bar per stage with what is running now; failures are printed as they happen."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars = Progress(
            TextColumn("[bold]{task.description:<9}"), BarColumn(), MofNCompleteColumn(),
            TimeRemainingColumn(), TextColumn("{task.fields[now]}"), console=console,
        )  # fmt: skip
        self._ids: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the live display."""
        self._bars.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        """Show one event."""
        kind = event["event"]
        if kind == "plan":
            for stage in STAGES if event["open"] else ():
                total = event["blocks" if stage in STAGES[:2] else "open"]
                self._ids[stage] = self._bars.add_task(stage, total=total, now="")
        elif kind == "start":
            bar = {"cell": "score", "train": "density", "stack": "predictor"}[event["kind"]]
            self._bars.update(self._ids[bar], now=event["label"])
        elif kind == "stage":
            self._bars.advance(self._ids[event["stage"]])
        elif kind in ("done", "skip", "fail"):
            self._bars.advance(self._ids["score"])
        self._say(event)

    def _say(self, event: dict[str, Any]) -> None:
        """Print what should not scroll away."""
        words = {
            "fail": "[red]failed[/] {label}: {reason}",
            "stack_failed": "[yellow]not trained together[/] {label}: {reason}; trying one by one",
            "worker_died": "[yellow]a worker died[/] at {label}; trying again",
        }
        if event["event"] in words:
            safe = {k: escape(str(v)) for k, v in event.items()}
            self.console.print(words[event["event"]].format(**safe), highlight=False)
