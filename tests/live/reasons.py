"""What `squeue` gives as the reason of each waiting job over time, recorded on a real Slurm whose clock runs fast.

python -m tests.live.reasons FOLDER (as root, after make system) writes a recording: sacct's dump as the README asks for
it, the reasons, the nodes and slurm.conf. reasons.psv.gz holds a row for each run of looks at which a job had the same
reason: job|reason|first look|last look|priority at the first, looks in seconds since 1970.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.live.clock import FastClock, ahead_of_others
from tests.live.fidelity import prepare, write
from tests.live.reasons_workload import CLUSTER, ONE_JOB, QOS, Event, Job, full
from tests.live.slurm import Slurm
from tests.live.workload import FIELDS

LOOK_S = 30  # simulated seconds between two looks at the queue
LONGEST_MIN = 300  # what still waits or runs at that minute is cancelled
DUMP = ("sacct", "-a", "-D", "-P", f"--format={FIELDS}", "-S", "2026-12-01", "-E", "now")


@dataclass
class Looks:
    """The reasons seen so far: the runs that are over, and the one of each job that waits."""

    rows: list[str] = field(default_factory=list)
    running: dict[str, tuple[str, int, int, str]] = field(default_factory=dict)

    def add(self, now: int, lines: list[str]) -> None:
        """The lines of squeue at `now`, seconds since 1970."""
        seen = {job: (reason, priority) for job, priority, reason in (line.split("|", 2) for line in lines)}
        for job in list(self.running):
            reason, first, last, priority = self.running[job]
            if seen.get(job, ("", ""))[0] != reason:
                self.rows.append(f"{job}|{reason}|{first}|{last}|{priority}")
                del self.running[job]
        for job, (reason, priority) in seen.items():
            _, first, _, at_first = self.running.get(job, (reason, now, now, priority))
            self.running[job] = (reason, first, now, at_first)


def record(folder: Path, events: Sequence[Event]) -> None:
    """Play the events on a cluster of its own; the recording is written into `folder` (made if absent)."""
    folder.mkdir(parents=True, exist_ok=True)
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with ahead_of_others(), tempfile.TemporaryDirectory(prefix="baton-slurm-", dir=memory) as place:
        Path(place).chmod(0o755)
        slurm = Slurm(Path(place), CLUSTER, FastClock())
        try:
            slurm.up()
            prepare(slurm, QOS)
            slurm.run("sacctmgr", "-i", "modify", "user", ONE_JOB, "set", "MaxJobs=1")
            nodes = slurm.run("scontrol", "-o", "show", "node")
            looks = drive(slurm, events)
            slurm.wait(60, lambda: not re.search(r"\|(RUNNING|PENDING)\|", slurm.run(*DUMP)), "the accounting")
            write(folder / "sacct.psv.gz", slurm.run(*DUMP))
            write(folder / "reasons.psv.gz", "\n".join(looks.rows) + "\n")
            write(folder / "nodes.txt", _anonymous(nodes, slurm))
            write(folder / "slurm.conf", _anonymous((slurm.folder / "etc/slurm.conf").read_text(), slurm))
        finally:
            slurm.down()


def drive(slurm: Slurm, events: Sequence[Event]) -> Looks:
    """Play the events at their minutes, look at the queue between them, and go on until it is empty."""
    clock = slurm.clock
    assert clock is not None
    ids: dict[str, str] = {}
    looks = Looks()
    start = clock.now() + 60
    todo = list(events)
    next_look = start
    while clock.now() < start + LONGEST_MIN * 60:
        if todo and start + todo[0].at * 60 <= next_look:
            event = todo.pop(0)
            clock.sleep_until(start + event.at * 60)
            _play(slurm, event, ids, clock)
            continue
        clock.sleep_until(next_look)
        now = int(clock.now())
        lines = slurm.run("squeue", "-h", "-r", "-t", "PD", "-o", "%i|%Q|%r").splitlines()
        looks.add(now, lines)
        next_look = max(next_look + LOOK_S, clock.now())
        if not todo and not lines and not slurm.run("squeue", "-h").strip():
            break
    looks.add(int(clock.now()), [])
    subprocess.run(["scancel", "--state=PENDING,RUNNING"], env=slurm.real_env, capture_output=True, check=False)
    slurm.wait(60, lambda: not slurm.run("squeue", "-h").strip(), "an empty queue")
    return looks


def _play(slurm: Slurm, event: Event, ids: dict[str, str], clock: FastClock) -> None:
    """Submit a job or run a command; a refused command fails the recording."""
    if not isinstance(event, Job):
        slurm.run(*(word.format_map(ids) for word in event.words))
        return
    options = [option.format_map(ids) for option in event.asked()]
    if event.begin_after:
        begin = datetime.fromtimestamp(clock.now() + event.begin_after * 60, UTC)  # sbatch itself has the real clock
        options.append(f"--begin={begin:%Y-%m-%dT%H:%M:%S}")
    job = slurm.sbatch(*options, script=f"sleep {event.run * 60 / clock.rate:.3f}")
    if event.label:
        ids[event.label] = job


def _anonymous(text: str, slurm: Slurm) -> str:
    """The text without the folder, the host and the system of the run."""
    text = text.replace(str(slurm.folder), "/slurm")
    text = re.sub(r"OS=.*?(?= RealMemory=)", "OS=Linux", text)
    return re.sub(r"(?m)^(SlurmctldHost=)[^(]*|(NodeHost[nN]ame=)\S*", r"\1\2localhost", text)


if __name__ == "__main__":
    record(Path(sys.argv[1]), full())
