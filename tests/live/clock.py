"""A clock that runs faster than real time, for daemons started under libfaketime.

Jobs stay on the real clock (`sbatch` runs without the library, and they inherit its environment), so a job that shall
run T simulated seconds sleeps T / rate. Everything else, Slurm's timers and time-outs included, runs `rate` times as
fast: one real millisecond is `rate` simulated ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
FAST_PYTHON = Path(__file__).resolve().parents[1] / "fast_python"


@dataclass(frozen=True)
class FastClock:
    """Simulated time: `epoch` when the clock was made, `rate` simulated seconds a real second since."""

    rate: float = 60.0
    epoch: float = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    _started: float = field(default_factory=time.time)

    def now(self) -> float:
        """Simulated seconds since 1970 at this moment."""
        return self.epoch + (time.time() - self._started) * self.rate

    def sleep_until(self, simulated: float) -> None:
        """Return once the simulated clock shows at least `simulated` seconds since 1970."""
        time.sleep(max(0.0, (simulated - self.now()) / self.rate))

    def env(self) -> dict[str, str]:
        """Environment of a process that starts now: libfaketime counts its rate from the start of each process."""
        start = datetime.fromtimestamp(self.now(), UTC)
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME": f"@{start:%Y-%m-%d %H:%M:%S.%f} x{self.rate:g}",
            "FAKETIME_DONT_RESET": "1",
        }

    def python_env(self) -> dict[str, str]:
        """Environment of a Python on this clock, also where jobs of several users run."""
        return {"PYTHONPATH": str(FAST_PYTHON), "FAST_PYTHON": f"{self.rate} {self.epoch} {self._started}"}


@contextmanager
def ahead_of_others() -> Iterator[None]:
    """Programs started inside run before all other work of the machine (SCHED_RR), where the system allows it.

    0.1 s that a pass waits for a processor are 6 s on a clock 60 times fast, and Slurm's own pauses grow by them.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)
