"""How far long work has come, for a person, on standard error: a bar with the time left, lines where no terminal is.

Work that is done within seconds says nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_S = 2.0  # before that nothing is shown
LINE_EVERY_S = 15.0  # where no terminal shows a bar that moves
Advance = Callable[[int], None]


@contextmanager
def shown(what: str, total: int) -> Iterator[Advance]:
    """A function to be called with how much of `total` is done by now, as often as wanted."""
    watch = _Watch(what, total)
    try:
        yield watch.at
    finally:
        watch.close()


class _Watch:
    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, max(total, 1)
        self.began = self.told = time.monotonic()
        self.bar: Progress | None = None

    def at(self, done: int) -> None:
        """Show that so much is done."""
        now = time.monotonic()
        if now - self.began < QUIET_S:
            return
        if sys.stderr.isatty():
            self._draw(done)
        elif done and now - self.told >= LINE_EVERY_S:
            self.told = now
            left_s = (now - self.began) / done * (self.total - done)
            sys.stderr.write(f"    {self.what}: {done:,} of {self.total:,}, about {_time(left_s)} left\n")
            sys.stderr.flush()

    def _draw(self, done: int) -> None:
        if self.bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("    {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.bar.add_task(self.what, total=self.total)
            self.bar.start()
        self.bar.update(self.bar.task_ids[0], completed=done)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
