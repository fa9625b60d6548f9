"""Live progress of a run."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["RunProgress"]


class RunProgress:
    """A bar over cells with what is running now; failures are printed as they happen."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeRemainingColumn(), TextColumn("{task.fields[now]}"), console=console,
        )  # fmt: skip
        self._cells: Any = None

    def __enter__(self) -> Self:
        self._bar.start()
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
        self._bar.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        """Show one event."""
        kind = event["event"]
        if kind == "plan":
            self._cells = self._bar.add_task("cells", total=event["open"], now="")
        elif kind == "start":
            self._bar.update(self._cells, now=f"{event['kind']} {event['label']}")
        elif kind in ("done", "skip", "fail"):
            self._bar.advance(self._cells)
        if kind == "fail":
            self.console.print(
                f"[red]failed[/] {event['label']}: {event['reason']}", highlight=False
            )
        elif kind == "worker_died":
            self.console.print(f"[yellow]a worker died[/] at {event['label']}; trying again")
