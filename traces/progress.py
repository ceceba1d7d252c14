"""Progress of a long step and the time left, on standard error.

A terminal shows a moving bar; output to a file gets a line every 30 s.
"""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import Self

from traces.visible import visible

LINE_EVERY_S = 30.0


def say(line: str) -> None:
    """Print one line on standard error. Characters that would move a terminal's cursor are shown as escapes."""
    sys.stderr.write(f"{visible(line)}\n")
    sys.stderr.flush()


class Progress:
    """A progress display: `with Progress("training", 28) as progress:`.

    Call `advance` once for each of the 28 items, or `reach` from time to time. Without `stays` the bar disappears at
    the end, and output to a file shows nothing for a step shorter than LINE_EVERY_S. With `each` the lines give the
    time an item.
    """

    heard_at = float("-inf")  # monotonic time of the latest progress report of any step

    def __init__(self, what: str, total: int, unit: str = "", *, stays: bool = True, each: bool = False) -> None:
        from rich import progress as rich
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._bar = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn(unit, markup=False),
            rich.TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
            transient=not stays,
            disable=not (stays or self._console.is_terminal),
            speed_estimate_period=600.0,  # items differ in length: the rate is that of the last ten minutes
        )
        self._each = each
        self._what, self._total, self._unit = visible(what), total, f" {unit}" if unit else ""
        self._task = self._bar.add_task(self._what, total=total)
        self._count, self._before, self._first = 0, 0, True
        self._began = self._printed_at = monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def advance(self, what: str) -> None:
        """Count one more item as done; `what` names it."""
        self._what = visible(what)
        self._report(self._count + 1, monotonic())

    def reach(self, count: int) -> None:
        """Set the number of finished items. The estimate of the time left starts at the first call."""
        now = monotonic()
        if self._first:
            self._first, self._began, self._before, self._printed_at = False, now, count, now
        self._report(count, now)

    def _report(self, count: int, now: float) -> None:
        self._count = count
        Progress.heard_at = now
        self._bar.update(self._task, description=self._what, completed=count)
        if self._console.is_terminal or now - self._printed_at < LINE_EVERY_S:
            return
        done = count - self._before
        time_left = ""
        if done > 0:
            each = (now - self._began) / done
            time_left = f", {each:,.3f} s each" if self._each else ""
            time_left += f", about {each * (self._total - count):,.0f} s left"
        say(f"  {self._what}; {count:,} of {self._total:,}{self._unit}{time_left}")
        self._printed_at = now

    def done(self, what: str) -> None:
        """Set the bar's final text, which stays on the screen."""
        self._bar.update(self._task, description=visible(what))
