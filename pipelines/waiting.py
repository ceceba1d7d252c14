"""How far a long computation is and how much longer it takes, on standard error.

A bar that moves where a person watches a terminal; a line every few seconds where the output goes to a file.
"""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import Self

LINE_EVERY_S = 5.0


class Waiting:
    """`with Waiting("slurm", 20_000, "jobs") as waiting:`, then `reach(count)` now and then; the bar does not stay."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit, markup=False),
            TimeRemainingColumn(),
            TextColumn("left", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._what, self._total, self._unit = what, total, unit
        self._task = self._bar.add_task(what, total=total)
        self._first: tuple[float, int] | None = None  # when the first word came, and the count that it said
        self._said = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def reach(self, count: int) -> None:
        """`count` of the total are done."""
        self._bar.update(self._task, completed=count)
        now = monotonic()
        if self._first is None:
            self._first, self._said = (now, count), now
        if self._console.is_terminal or now - self._said < LINE_EVERY_S:
            return
        began, before = self._first
        done = count - before
        left = f", about {(now - began) / done * (self._total - count):,.0f} s left" if done else ""
        self._console.print(f"{self._what}: {count:,} of {self._total:,} {self._unit}{left}", markup=False)
        self._said = now
