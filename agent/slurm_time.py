"""The time at Slurm's controller, which a wrong or jumping clock of this machine does not change."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from agent.slurm.commands import Commands, SlurmError

JUMP_S = 30.0  # of the wall clock against the monotonic one, from which it is said
READ_EVERY_S = 3600.0
_SDIAG = re.compile(r"^sdiag output at [^\n(]*\((\d{1,12})\)", re.MULTILINE)


class SlurmTime:
    """Slurm's time, read from `sdiag` at the start, every hour and after a jump, and carried on by a monotonic clock.

    clock, monotonic: seconds. Where sdiag has never told, the clock of this machine stands in; where it once has, what
    it told is carried on. Of a Slurm that is away it is asked again at every check.
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
        self._is_due = False  # sdiag is to be asked again at the next check
        self._read()

    def now_s(self) -> int:
        """Epoch seconds."""
        since_s = self._wall_s if self._slurm_s is None else self._slurm_s
        return int(since_s + self._monotonic() - self._at_s)

    def check(self) -> str | None:
        """Read the time again where that is due; what is to be said of a jump of this machine's clock, or None."""
        elapsed_s = self._monotonic() - self._at_s
        jump_s = self._clock() - self._wall_s - elapsed_s
        if abs(jump_s) > JUMP_S:
            self._read()
            return f"the clock of this machine jumped by {jump_s:+.0f} s; decisions go on by Slurm's time"
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
