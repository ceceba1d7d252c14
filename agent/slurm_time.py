"""The time at Slurm's controller, independent of a wrong or jumping clock on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from agent.slurm.commands import Commands, SlurmError

JUMP_S = 30.0  # report larger jumps of the wall clock relative to the monotonic clock
READ_EVERY_S = 3600.0
_SDIAG = re.compile(r"^sdiag output at [^\n(]*\((\d{1,12})\)", re.MULTILINE)


class SlurmTime:
    """Slurm's time, read from `sdiag` at the start, every hour and after a jump; a monotonic clock extends it.

    clock, monotonic: return seconds. If sdiag has never answered, we use this machine's clock. If it answered before,
    we extend its last answer. While Slurm is away, every check asks again.
    """

    def __init__(
        self,
        commands: Commands,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands, self._clock, self._monotonic = commands, clock, monotonic
        self._slurm_s: float | None = None
        self._at_s = self._wall_s = 0.0
        self._is_due = False  # ask sdiag again at the next check
        self._read()

    def now_s(self) -> int:
        """Return Slurm's time, epoch s."""
        since_s = self._wall_s if self._slurm_s is None else self._slurm_s
        return int(since_s + self._monotonic() - self._at_s)

    def check(self) -> str | None:
        """Read the time again if due; return a message if this machine's clock jumped, or None."""
        elapsed_s = self._monotonic() - self._at_s
        jump_s = self._clock() - self._wall_s - elapsed_s
        if abs(jump_s) > JUMP_S:
            self._read()
            return f"this machine's clock jumped by {jump_s:+.0f} s; decisions continue to use Slurm's time"
        if self._is_due or elapsed_s >= READ_EVERY_S:
            self._read()
        return None

    def _read(self) -> None:
        self._is_due = False
        try:
            match = _SDIAG.search(self._commands.run("sdiag"))
        except SlurmError as error:
            match, self._is_due = None, error.kind == "away"
        at_s = self._monotonic()
        if match:
            self._slurm_s = float(match[1])
        elif self._slurm_s is not None:
            self._slurm_s += at_s - self._at_s
        self._wall_s, self._at_s = self._clock(), at_s
