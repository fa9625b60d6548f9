"""How a run is going: bars on a terminal, plain lines in a log."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cel.text import visible

__all__ = ["PlainProgress", "RunProgress", "make_progress"]


STAGES = ("predictor", "density", "explain", "score")
HEARTBEAT_S = 60.0
WORDS = {
    "fail": "[red]failed[/] {label}: {reason}",
    "stack_failed": "[yellow]not trained together[/] {label}: {reason}; trying one by one",
    "altered": "[yellow]{label} changed what is not its own[/] ({what}); others do not see it",
    "worker_died": "[yellow]a worker died[/] at {label}; trying again",
}


def make_progress(console: Console, *, verbose: bool = False) -> RunProgress | PlainProgress:
    """Return bars for a terminal, and lines for a file or a pipe."""
    kind = RunProgress if console.is_terminal else PlainProgress
    return kind(console, verbose=verbose)


class _Progress:
    """What both kinds share: failures are printed as they happen, with `verbose` every cell."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self.console, self.verbose = console, verbose

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the display."""

    def _say(self, event: dict[str, Any]) -> None:
        """Print what should not scroll away."""
        kind = event["event"]
        safe = {k: escape(str(v)) for k, v in event.items()}
        if kind in WORDS:
            self.console.print(WORDS[kind].format(**safe), highlight=False, soft_wrap=True)
        elif self.verbose and kind in ("done", "skip"):
            told = f"{event['wall_s']:.1f} s" if kind == "done" else str(event.get("reason", ""))
            self.console.print(
                f"{kind} {safe['label']}: {escape(told)}", highlight=False, soft_wrap=True
            )


class RunProgress(_Progress):
    """A bar per stage with what is running now."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        super().__init__(console, verbose=verbose)
        self._bars = Progress(
            TextColumn("[bold]{task.description:<9}"), BarColumn(), MofNCompleteColumn(),
            TimeRemainingColumn(), TextColumn("{task.fields[now]}", markup=False),
            console=console,
        )  # fmt: skip
        self._ids: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

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
            self._bars.update(self._ids[bar], now=visible(event["label"]))
        elif kind == "stage" and event["stage"] in self._ids:
            self._bars.advance(self._ids[event["stage"]])
        elif kind in ("done", "skip", "fail"):
            self._bars.advance(self._ids["score"])
        self._say(event)


class PlainProgress(_Progress):
    """A line when a block is finished, and at least one a minute, each sent at once.

    Args:
        console: where lines go.
        verbose: name every cell.
        every: seconds between lines when nothing else is said.
    """

    def __init__(
        self, console: Console, *, verbose: bool = False, every: float = HEARTBEAT_S
    ) -> None:
        super().__init__(console, verbose=verbose)
        self.every = every
        self.open = self.ended = self.failed = 0
        self._now = ""
        self._started = self._told = time.monotonic()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the heartbeat."""
        self._over.set()

    def __call__(self, event: dict[str, Any]) -> None:
        """Note one event; print a line where a block begins or ends."""
        kind = event["event"]
        self._say(event)
        if kind == "plan":
            self.open = event["open"]
            self._line(
                f"{event['open']} of {event['total']} cells to do in {event['blocks']} blocks"
            )
        elif kind == "start":
            self._now = event["label"]
            if event["kind"] != "cell":
                self._line(f"training models of {event['label']}")
        elif kind in ("done", "skip", "fail"):
            self.ended += 1
            self.failed += kind == "fail"

    def _beat(self) -> None:
        while not self._over.wait(min(1.0, self.every / 4)):
            if time.monotonic() - self._told >= self.every:
                self._line(f"at {self._now}" if self._now else "starting workers")

    def _line(self, text: str) -> None:
        with self._lock:
            self._told = time.monotonic()
            clock = time.strftime("%H:%M:%S")
            failed = f", {self.failed} failed" if self.failed else ""
            done = f"{self.ended}/{self.open} cells{failed}{self._left()}"
            self.console.print(f"{clock} {done}; {text}", markup=False, highlight=False,
                               soft_wrap=True)  # fmt: skip
            if not self.console.quiet:
                self.console.file.flush()

    def _left(self) -> str:
        """How long the rest takes at the pace so far, once there is a pace."""
        spent = time.monotonic() - self._started
        if self.ended < 5 or spent < 10 or not self.open:
            return ""
        left = spent / self.ended * (self.open - self.ended)
        return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"
