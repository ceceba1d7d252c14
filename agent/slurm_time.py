"""The time at Slurm's controller, independent of a wrong or jumping clock on this machine.

An answer of sdiag that is far from the expected time counts only if the next one confirms it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from agent.slurm.commands import Commands, SlurmError
from traces.units import DAY_S

APART_S = float(DAY_S)  # largest difference to this machine's clock at which the first answer counts at once
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
        self._doubted: tuple[float, float] | None = None  # an unconfirmed answer, and the monotonic time then
        self._problem = self._read()

    def now_s(self) -> int:
        """Return Slurm's time, epoch s."""
        since_s = self._wall_s if self._slurm_s is None else self._slurm_s
        return int(since_s + self._monotonic() - self._at_s)

    def check(self) -> str | None:
        """Read the time again if due; return a message if this machine's clock jumped or sdiag is off, or None."""
        problem, self._problem = self._problem, None
        elapsed_s = self._monotonic() - self._at_s
        jump_s = self._clock() - self._wall_s - elapsed_s
        if abs(jump_s) > JUMP_S:
            problem = self._read() or problem
            text = f"this machine's clock jumped by {jump_s:+.0f} s; decisions continue to use Slurm's time"
            return f"{text}; {problem}" if problem else text
        if self._is_due or elapsed_s >= READ_EVERY_S:
            problem = self._read() or problem
        return problem

    def _read(self) -> str | None:
        """Ask sdiag; return a message if its answer is not used, or None."""
        self._is_due = False
        try:
            match = _SDIAG.search(self._commands.run("sdiag"))
        except SlurmError as error:
            match, self._is_due = None, error.kind == "away"
        at_s, wall_s = self._monotonic(), self._clock()
        problem = None
        if self._slurm_s is not None:
            self._slurm_s += at_s - self._at_s
        if match:
            answer_s = float(match[1])
            off_s = min((answer_s - one for one in self._expected(at_s, wall_s)), key=abs)
            if abs(off_s) <= (APART_S if self._slurm_s is None else JUMP_S) or self._confirms(answer_s, at_s):
                self._slurm_s, self._doubted = answer_s, None
            else:
                if self._doubted is None:
                    problem = f"sdiag gives a time that is {off_s:+.0f} s off; it is not used unless sdiag confirms it"
                self._doubted, self._is_due = (answer_s, at_s), True
        self._wall_s, self._at_s = wall_s, at_s
        return problem

    def _expected(self, at_s: float, wall_s: float) -> list[float]:
        """Return the times that sdiag may give now: by the monotonic clock, and by this machine's clock."""
        if self._slurm_s is None:
            return [wall_s]
        return [self._slurm_s, self._slurm_s + (wall_s - self._wall_s) - (at_s - self._at_s)]

    def _confirms(self, answer_s: float, at_s: float) -> bool:
        """Whether an answer continues the last doubted one; a clock that stands still does not."""
        if self._doubted is None:
            return False
        elapsed_s = at_s - self._doubted[1]
        return elapsed_s > 0 and abs(answer_s - self._doubted[0] - elapsed_s) <= min(JUMP_S, elapsed_s / 2)
