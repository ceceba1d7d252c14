"""A clock that runs faster than real time, for daemons started under libfaketime.

Jobs stay on the real clock (`sbatch` runs without the library, and they inherit its environment), so a job that shall
run T simulated seconds sleeps T / rate. Everything else, Slurm's timers and time-outs included, runs `rate` times as
fast: one real millisecond is `rate` simulated ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


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
