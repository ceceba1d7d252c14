"""Progress of a run on standard error, in the user's words: what it does, and the seconds that each step took.

Steps that know how far they are report it themselves (`traces.progress`); of the others a line says that they go on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
import weakref

import dagster as dg
from rich.console import Console
from rich.markup import escape

from pipelines.process.interrupts import is_ending
from pipelines.runs.words import words_of
from traces.counted import counted
from traces.progress import LINE_EVERY_S, Progress
from traces.visible import visible

GOES_ON_S = 5.0  # at a terminal, a step that says nothing of itself for so long is said to go on


class _Lines(logging.Handler):
    """Writes progress and failures to standard error; other records only where they are warnings.

    A person at a terminal gets a line when a step begins and ends, a file a line every LINE_EVERY_S. To standard error
    as it is when the run begins: while steps run, Dagster points it at a file and has that shown by a `tail`, which it
    ends without waiting for what was written last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        with contextlib.suppress(AttributeError, OSError):  # else it is no file that Dagster could point elsewhere
            self.console.file = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
            weakref.finalize(self, self.console.file.close)
        self.began: dict[str, float] = {}
        self.done = 0
        self.every_s = GOES_ON_S if self.console.is_terminal else LINE_EVERY_S
        self.timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if is_ending.is_set():
            return
        meta = getattr(record, "dagster_meta", {})
        event = meta.get("dagster_event")
        step = str(meta.get("step_key") or "")
        kind = getattr(event, "event_type_value", "")
        if kind == dg.DagsterEventType.STEP_START.value:
            self.began[step] = time.monotonic()
            if self.console.is_terminal:
                self.console.print(f"  [dim]{_shown(words_of(step))} ...[/]")
            self._watch()
        elif kind == dg.DagsterEventType.STEP_SUCCESS.value:
            self._ended(step, f"[green]{self._seconds(step)}[/]")
        elif kind == dg.DagsterEventType.STEP_SKIPPED.value:
            self._ended(step, "[yellow]skipped[/]")
        elif kind == dg.DagsterEventType.STEP_FAILURE.value:
            self._ended(step, f"[red]failed[/] {self._seconds(step)}", is_always_said=True)
        elif record.levelno >= logging.WARNING and event is None:
            self.console.print(f"  [yellow]{_shown(record.getMessage())}[/]")

    def _watch(self) -> None:
        """Say in a while what goes on, and again, as long as a step does; of a file, also across short steps."""
        if self.timer is None or not self.timer.is_alive():
            self.timer = threading.Timer(self.every_s, self._tell)
            self.timer.daemon = True
            self.timer.start()

    def _tell(self) -> None:
        self.timer = None
        if is_ending.is_set():
            return
        for step in list(self.began)[-1:]:
            if time.monotonic() - Progress.heard_at > 2 * GOES_ON_S:  # else the step says itself how far it is
                done = f", {counted(self.done, 'step')} done before" if self.done else ""
                self.console.print(f"  [dim]{_shown(words_of(step))}: {self._seconds(step)} so far{done}[/]")
            self._watch()

    def _ended(self, step: str, how: str, *, is_always_said: bool = False) -> None:
        if self.timer is not None and self.console.is_terminal:
            self.timer.cancel()
            self.timer = None
        if self.console.is_terminal or is_always_said:
            self.console.print(f"  {_shown(words_of(step))} {how}")
        self.began.pop(step, None)
        self.done += 1

    def _seconds(self, step: str) -> str:
        return f"{time.monotonic() - self.began.get(step, time.monotonic()):.1f} s"


def _shown(text: str) -> str:
    """Text of others for a terminal: neither control characters nor the console's own markup take effect."""
    return escape(visible(text))


def _logger(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("baton.progress", level=logging.DEBUG)
    logger.addHandler(_Lines())
    return logger


progress_logger = dg.LoggerDefinition(_logger, description="One line an asset on standard error.")
