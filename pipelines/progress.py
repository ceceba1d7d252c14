"""Progress of a run for a person at a terminal: one line an asset step, with the seconds that it took."""

from __future__ import annotations

import logging
import time

import dagster as dg
from rich.console import Console
from rich.markup import escape


class _Lines(logging.Handler):
    """Writes a line to standard error when a step ends; other records only where they are warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(stderr=True, highlight=False)
        self.began: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        meta = getattr(record, "dagster_meta", {})
        event = meta.get("dagster_event")
        step = str(meta.get("step_key") or "")
        kind = getattr(event, "event_type_value", "")
        if kind == dg.DagsterEventType.STEP_START.value:
            self.began[step] = time.perf_counter()
            self.console.print(f"  [dim]{escape(step)} ...[/]")
        elif kind == dg.DagsterEventType.STEP_SUCCESS.value:
            self.console.print(f"  {escape(step)} [green]{self._seconds(step)}[/]")
        elif kind == dg.DagsterEventType.STEP_FAILURE.value:
            self.console.print(f"  {escape(step)} [red]failed[/] {self._seconds(step)}")
        elif record.levelno >= logging.WARNING and event is None:
            self.console.print(f"  [yellow]{escape(record.getMessage())}[/]")

    def _seconds(self, step: str) -> str:
        return f"{time.perf_counter() - self.began.get(step, time.perf_counter()):.1f} s"


def _logger(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("baton.progress", level=logging.DEBUG)
    logger.addHandler(_Lines())
    return logger


progress_logger = dg.LoggerDefinition(_logger, description="One line an asset on standard error.")
