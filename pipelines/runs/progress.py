"""Progress of a run on standard error, in the user's words: each step and the seconds that it took.

Steps that know their progress report it themselves (`traces.progress`). For the others a line says that they are still
running.
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
from pipelines.runs.words import words_of_step
from traces.counted import counted
from traces.progress import LINE_EVERY_S, Progress
from traces.visible import visible

QUIET_S = 5.0  # at a terminal, print a line for a step that has printed nothing for so long


class _Lines(logging.Handler):
    """Write progress and failures to standard error; of other records only warnings.

    At a terminal we print a line when a step begins and ends; to a file, a line every LINE_EVERY_S. We write to
    standard error as it is when the run begins: while steps run, Dagster redirects it to a file and shows that with a
    `tail`, which it ends without waiting for the last lines.
    """

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        with contextlib.suppress(AttributeError, OSError):  # no file descriptor: Dagster cannot redirect it
            self.console.file = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
            weakref.finalize(self, self.console.file.close)
        self.began: dict[str, float] = {}
        self.done = 0
        self.every_s = QUIET_S if self.console.is_terminal else LINE_EVERY_S
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
                self.console.print(f"  [dim]{_shown(words_of_step(step))} ...[/]")
            self._watch()
        elif kind == dg.DagsterEventType.STEP_SUCCESS.value:
            self._ended(step, f"[green]{self._seconds(step)}[/]")
        elif kind == dg.DagsterEventType.STEP_SKIPPED.value:
            self._ended(step, "[yellow]skipped[/]")
        elif kind == dg.DagsterEventType.STEP_FAILURE.value:
            self._ended(step, f"[red]failed[/] {self._seconds(step)}", is_always_shown=True)
        elif record.levelno >= logging.WARNING and event is None:
            self.console.print(f"  [yellow]{_shown(record.getMessage())}[/]")

    def _watch(self) -> None:
        """Start the timer that repeatedly reports the running step. For a file it also spans short steps."""
        if self.timer is None or not self.timer.is_alive():
            self.timer = threading.Timer(self.every_s, self._report_running)
            self.timer.daemon = True
            self.timer.start()

    def _report_running(self) -> None:
        self.timer = None
        if is_ending.is_set():
            return
        for step in list(self.began)[-1:]:
            if time.monotonic() - Progress.heard_at > 2 * QUIET_S:  # else the step reports its own progress
                done = f", {counted(self.done, 'step')} done before" if self.done else ""
                self.console.print(f"  [dim]{_shown(words_of_step(step))}: {self._seconds(step)} so far{done}[/]")
            self._watch()

    def _ended(self, step: str, how: str, *, is_always_shown: bool = False) -> None:
        if self.timer is not None and self.console.is_terminal:
            self.timer.cancel()
            self.timer = None
        if self.console.is_terminal or is_always_shown:
            self.console.print(f"  {_shown(words_of_step(step))} {how}")
        self.began.pop(step, None)
        self.done += 1

    def _seconds(self, step: str) -> str:
        return f"{time.monotonic() - self.began.get(step, time.monotonic()):.1f} s"


def _shown(text: str) -> str:
    """Escape untrusted text for a terminal, so that control characters and console markup have no effect."""
    return escape(visible(text))


def _logger(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("baton.progress", level=logging.DEBUG)
    logger.addHandler(_Lines())
    return logger


progress_logger = dg.LoggerDefinition(_logger, description="One line per asset on standard error.")
