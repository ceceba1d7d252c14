"""How far a long step is and how much longer it takes, on standard error.

A bar that moves where a person watches a terminal; a line every few seconds where the output goes to a file.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

LINE_EVERY_S = 5.0


class Waiting:
    """`with Waiting("training", 28) as waiting:`, then `advance` once for each of the 28."""

    def __init__(self, what: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
            speed_estimate_period=600.0,  # single steps differ in length: the rate is that of the last ten minutes
        )
        self._task = self._bar.add_task(what, total=total)
        self._total, self._count = total, 0
        self._began = self._said = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def advance(self, what: str) -> None:
        """One more is done; `what` says which."""
        self._count += 1
        self._bar.update(self._task, description=what, advance=1)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._said >= LINE_EVERY_S:
            left_s = (now - self._began) / self._count * (self._total - self._count)
            line = f"  {what}; {self._count} of {self._total}, about {left_s:.0f} s left"
            self._console.print(line, markup=False)
            self._said = now

    def done(self, what: str) -> None:
        """The last word, which stays."""
        self._bar.update(self._task, description=what)
