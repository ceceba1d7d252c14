"""What goes wrong at sites while agents keep chains: Slurm away, a lower limit, a drained partition, jumping clocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.live.clock import FastClock
from tests.live.keeping import tell_jump
from tests.live.slurm import Slurm, end_daemons

LASTS_S = 600  # of the fast clock
HIGH, LOW = "MaxTime=2-00:00:00 ", "MaxTime=00:30:00 "  # of the chains' partition; LOW is below their jobs' limit
HIDDEN = "jobs,nodes,partitions,reservations,usage,users"


@dataclass(frozen=True)
class Mishap:
    """One thing that goes wrong: `begin` makes it, `mend` ends it LASTS_S later."""

    name: str
    begin: Callable[[], object]
    mend: Callable[[], object]


def mishaps(slurm: Slurm, folder: Path) -> list[Mishap]:
    """One of each kind; two that follow each other can be brought about at once. folder: where the agents work."""
    away = f"away for {LASTS_S // 60} min"
    return [
        Mishap(f"slurmctld {away}", lambda: stop(slurm, "slurmctld"), lambda: slurm.daemon("slurmctld")),
        Mishap("the agents' clock 1 h ahead", lambda: tell_jump(folder, 3600.0), lambda: tell_jump(folder, 0.0)),
        Mishap(f"slurmdbd {away}", lambda: stop(slurm, "slurmdbd"), lambda: slurm.daemon("slurmdbd")),
        Mishap("the partition drained", lambda: set_state(slurm, "DRAIN"), lambda: set_state(slurm, "UP")),
        Mishap("a lower limit", lambda: limit(slurm, HIGH, LOW), lambda: limit(slurm, LOW, HIGH)),
        Mishap("PrivateData", lambda: slurm.hide(HIDDEN), lambda: slurm.hide("none")),
        Mishap("Slurm's clock 10 min ahead", lambda: stop(slurm, "slurmctld"), lambda: start_ahead(slurm)),
    ]


def stop(slurm: Slurm, daemon: str) -> None:
    """End a daemon as systemd would: SIGTERM, and SIGKILL for a slurmctld that hangs in its shutdown, as 22.05 did."""
    end_daemons([slurm.pid(daemon)], patience_s=30)


def set_state(slurm: Slurm, state: str) -> None:
    """Set the state of the chains' partition."""
    slurm.run("scontrol", "update", "PartitionName=gpu", f"State={state}")


def limit(slurm: Slurm, old: str, new: str) -> None:
    """Change the longest limit of the chains' partition."""
    slurm.reconfigure(old, new, lambda: new in slurm.run("scontrol", "show", "partition", "gpu"))


def start_ahead(slurm: Slurm) -> None:
    """Start the controller on a clock that is ten minutes ahead of all others."""
    clock = slurm.clock
    assert clock is not None
    slurm.clock = replace(clock, epoch=clock.epoch + 600)
    try:
        slurm.daemon("slurmctld")
    finally:
        slurm.clock = clock


class Course:
    """Brings mishaps about, `at_once` of them every `every_h` of the clock, and mends them LASTS_S later."""

    def __init__(self, clock: FastClock, some: Sequence[Mishap], at_once: int, every_h: float) -> None:
        self.names = [one.name for one in some]
        self._clock, self._due = clock, list[tuple[float, Callable[[], object]]]()
        for number, first in enumerate(range(0, len(some), at_once)):
            at_s = clock.now() + every_h * 3600 * number
            self._due += [(at_s, one.begin) for one in some[first : first + at_once]]
            self._due += [(at_s + LASTS_S, one.mend) for one in some[first : first + at_once]]

    @property
    def is_over(self) -> bool:
        """Whether all are mended."""
        return not self._due

    def look(self) -> None:
        """Bring about and mend what is due."""
        while self._due and self._clock.now() >= self._due[0][0]:
            self._due.pop(0)[1]()
