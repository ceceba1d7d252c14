"""Progress of a run for a person at a terminal: one line an asset step, with the seconds that it took.

Steps that know how far they are tell it themselves (`traces.progress`); of the others a line says that they go on.
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

from traces.progress import Progress
from traces.visible import visible

GOES_ON_S = 5.0  # a step that says nothing of itself for so long is said to go on


class _Lines(logging.Handler):
    """Writes a line to standard error when a step begins and ends; other records only where they are warnings.

    To standard error as it is when the run begins: while steps run, Dagster points it at a file and has that shown by a
    `tail`, which it ends without waiting for what was written last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(stderr=True, highlight=False)
        with contextlib.suppress(AttributeError, OSError):  # else it is no file that Dagster could point elsewhere
            self.console.file = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
            weakref.finalize(self, self.console.file.close)
        self.began: dict[str, float] = {}
        self.timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        meta = getattr(record, "dagster_meta", {})
        event = meta.get("dagster_event")
        step = str(meta.get("step_key") or "")
        kind = getattr(event, "event_type_value", "")
        if kind == dg.DagsterEventType.STEP_START.value:
            self.began[step] = time.perf_counter()
            self.console.print(f"  [dim]{_shown(step)} ...[/]")
            self._watch(step)
        elif kind == dg.DagsterEventType.STEP_SUCCESS.value:
            self._ended(step, f"[green]{self._seconds(step)}[/]")
        elif kind == dg.DagsterEventType.STEP_SKIPPED.value:
            self._ended(step, "[yellow]skipped[/]")
        elif kind == dg.DagsterEventType.STEP_FAILURE.value:
            self._ended(step, f"[red]failed[/] {self._seconds(step)}")
        elif record.levelno >= logging.WARNING and event is None:
            self.console.print(f"  [yellow]{_shown(record.getMessage())}[/]")

    def _watch(self, step: str) -> None:
        """Say in a while that the step goes on, and again, until it ends."""

        def tell() -> None:
            if step not in self.began:
                return
            if time.monotonic() - Progress.heard_at > 2 * GOES_ON_S:
                self.console.print(f"  [dim]{_shown(step)} goes on, {self._seconds(step)} so far[/]")
            self._watch(step)

        self.timer = threading.Timer(GOES_ON_S, tell)
        self.timer.daemon = True
        self.timer.start()

    def _ended(self, step: str, how: str) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.began.pop(step, None)
        self.console.print(f"  {_shown(step)} {how}")

    def _seconds(self, step: str) -> str:
        return f"{time.perf_counter() - self.began.get(step, time.perf_counter()):.1f} s"


def _shown(text: str) -> str:
    """Text of others for a terminal: neither control characters nor the console's own markup take effect."""
    return escape(visible(text))


def _logger(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("baton.progress", level=logging.DEBUG)
    logger.addHandler(_Lines())
    return logger


progress_logger = dg.LoggerDefinition(_logger, description="One line an asset on standard error.")
