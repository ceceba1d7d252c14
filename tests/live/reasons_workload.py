"""A scripted workload in which jobs of a real Slurm wait for every common reason, one scene for each.

Scenes overlap, as on a cluster, over a background of small jobs that comes in two waves. The events of a seed are the
same second for second; the hours are those of a clock that runs 60 times fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from tests.live.fidelity import SETTINGS
from tests.live.fidelity_workload import CPUS_PER_GPU
from tests.live.slurm import Cluster

CLUSTER = Cluster(
    nodes=8,
    node="CPUs=32 RealMemory=256000 Gres=gpu:a100:4",
    settings=SETTINGS
    | {
        "SchedulerParameters": SETTINGS["SchedulerParameters"].replace("bf_interval=180", "bf_interval=60"),
        "Licenses": "solver:2",
        "EnforcePartLimits": "NO",  # a limit above the partition's waits, and is not refused
    },
    partitions=(
        "PartitionName=gpu Nodes=n[1-6] Default=YES MaxTime=12:00:00 DefaultTime=01:00:00 State=UP DefMemPerCPU=7000",
        "PartitionName=debug Nodes=n[6-8] MaxTime=01:00:00 DefaultTime=00:30:00 State=UP DefMemPerCPU=7000",
    ),
)
QOS = {
    "normal": "Priority=100",
    "high": "Priority=1000",
    "two-jobs": "Priority=100 MaxJobsPU=2",
    "four-gpus": "Priority=100 MaxTRESPU=gres/gpu=4",
    "pool": "Priority=100 GrpTRES=gres/gpu=8",
}
ONE_JOB = "uucp"  # user whose association has MaxJobs=1


@dataclass(frozen=True)
class Job:
    """One sbatch at minute `at`. Minutes are simulated.

    label: names the job in later commands, which hold it as {label}. run: minutes that it (each task) runs.
    begin_after: minutes from its submission to its --begin, 0 for none. limit: minutes, 0 for twice `run`.
    """

    at: float
    run: float
    user: str = "daemon"
    gpus: int = 1
    nodes: int = 1
    partition: str = "gpu"
    qos: str = "normal"
    name: str = "train"
    limit: int = 0
    begin_after: float = 0
    options: tuple[str, ...] = ()
    label: str = ""

    def asked(self) -> list[str]:
        """The options of sbatch but for --begin, with {label} where an earlier job's id belongs."""
        return [
            f"--uid={self.user}", f"--partition={self.partition}", f"--qos={self.qos}", f"--nodes={self.nodes}",
            "--ntasks-per-node=1", f"--cpus-per-task={self.gpus * CPUS_PER_GPU}", f"--gres=gpu:{self.gpus}",
            f"--time={self.limit or round(self.run * 2)}", f"--job-name={self.name}", *self.options,
        ]  # fmt: skip


@dataclass(frozen=True)
class Command:
    """One command of an administrator at minute `at`, with {label} where a job's id belongs."""

    at: float
    words: tuple[str, ...]


Event = Job | Command


def full(seed: int = 1) -> list[Event]:
    """Over four hours: every scene, and a background in two waves."""
    scenes = [*own_limits(1), *dependencies(5), *holds(7), *serial(6), *outside(8), *node_out(45), *partition_down(85),
              *reservations(100), *scattered_in_debug(125), *wide(66), *scattered(180)]  # fmt: skip
    return _sorted([*scenes, *background(seed, 80, 44, 75), *background(seed + 1, 190, 24, 25)])


def short(seed: int = 1) -> list[Event]:
    """Within an hour: the scenes whose reason is plain, and a small background."""
    scenes = [*own_limits(1), *dependencies(2), *serial(3), *holds(4), *node_out(8), *scattered(26)]
    return _sorted([*scenes, *background(seed, 10, 10, 20)])


def _sorted(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.at)


def own_limits(at: float) -> Iterator[Event]:
    """Array limit, QOS limits on jobs a user, GPUs a user and GPUs of all, and an association's limit on jobs."""
    yield Job(at, 6, "daemon", name="sweep", options=("--array=1-12%3",))
    yield from (Job(at + 1, 8, "news", qos="two-jobs", name=f"fit{n}") for n in range(8))
    yield from (Job(at + 2, 9, "bin", gpus=2, qos="four-gpus", name="eval") for n in range(6))
    yield from (Job(at + 3, 7, ONE_JOB, name="fold") for n in range(5))
    pool = product(("games", "man"), range(3))
    yield from (Job(at + 25, 12, user, gpus=4, qos="pool", name="render") for user, n in pool)


def dependencies(at: float) -> Iterator[Event]:
    """A chain of afterany submitted at once, and jobs of one name that run singly."""
    yield Job(at, 12, "man", name="chain", label="link0")
    for n in range(1, 5):
        yield Job(at, 12, "man", name="chain", label=f"link{n}", options=(f"--dependency=afterany:{{link{n - 1}}}",))
    yield from (Job(at + 1, 7, "bin", name="nightly", options=("--dependency=singleton",)) for n in range(3))


def holds(at: float) -> Iterator[Event]:
    """Begin times, jobs held from the start, and one that an administrator holds while it waits for a node."""
    yield from (Job(at, 6, "daemon", name=f"later{n}", begin_after=15 + 5 * n) for n in range(3))
    for n in range(3):
        yield Job(at, 8, "games", name="held", label=f"held{n}", options=("--hold",))
        yield Command(at + 12 + 6 * n, ("scontrol", "release", f"{{held{n}}}"))
    yield Job(at, 4, "news", name="paused", label="paused", options=("--nodelist=n4",))
    yield Command(at + 1, ("scontrol", "hold", "{paused}"))
    yield Command(at + 20, ("scontrol", "release", "{paused}"))


def serial(at: float) -> Iterator[Event]:
    """Whole-node jobs of one user and one name, all on one node by its name: each starts when another ends."""
    yield from (Job(at, 6, "games", gpus=4, name="step", options=("--nodelist=n4",)) for n in range(8))


def outside(at: float) -> Iterator[Event]:
    """What no cause of ours names: licences, and a time limit above the partition's until it is lowered."""
    yield from (Job(at, 10, "man", name="solve", options=("--licenses=solver:1",)) for n in range(6))
    yield Job(at, 10, "daemon", partition="debug", limit=120, name="too long", label="long")
    yield Command(at + 20, ("scontrol", "update", "JobId={long}", "TimeLimit=30"))


def node_out(at: float) -> Iterator[Event]:
    """Two of the three nodes of a partition are drained for half an hour; jobs ask for them by name or by number."""
    yield Command(at, ("scontrol", "update", "NodeName=n[7-8]", "State=DRAIN", "Reason=disk"))
    yield from (Job(at + 2, 5, "bin", partition="debug", name="drained", options=("--nodelist=n8",)) for n in range(3))
    yield from (Job(at + 3, 6, "daemon", partition="debug", nodes=2, gpus=4, name="pair") for n in range(2))
    yield from (Job(at + 4, 8, "man", partition="debug", gpus=2, name="try") for n in range(4))
    yield Command(at + 30, ("scontrol", "update", "NodeName=n[7-8]", "State=RESUME"))


def partition_down(at: float) -> Iterator[Event]:
    """A partition that starts nothing for a quarter of an hour."""
    yield Command(at, ("scontrol", "update", "PartitionName=debug", "State=DOWN"))
    yield from (Job(at + 1, 5, "man", partition="debug", name="probe") for n in range(2))
    yield from (Job(at + 2, 5, "bin", partition="debug", name="probe") for n in range(2))
    yield Command(at + 15, ("scontrol", "update", "PartitionName=debug", "State=UP"))


def reservations(at: float) -> Iterator[Event]:
    """A maintenance of three nodes, announced 45 minutes before, and a reservation of one node for one user."""
    create = ("scontrol", "create", "reservation")
    yield Command(at, (*create, "ReservationName=service", "StartTime=now+45minutes", "Duration=20", "Users=root",
                       "Nodes=n[1-3]", "Flags=MAINT,IGNORE_JOBS"))  # fmt: skip
    yield Command(at + 1, (*create, "ReservationName=course", "StartTime=now+25minutes", "Duration=30", "Users=man",
                           "Nodes=n5", "Flags=IGNORE_JOBS"))  # fmt: skip
    yield from (Job(at + 2, 6, "man", gpus=2, name="lesson", options=("--reservation=course",)) for n in range(3))
    for minute in (15, 20, 48):
        yield Job(at + minute, 8, "news", limit=60, name="serviced", options=("--nodelist=n2",))
    yield Job(at + 30, 8, "bin", gpus=4, nodes=4, limit=60, name="four")


def scattered_in_debug(at: float) -> Iterator[Event]:
    """One GPU in use on each node of a partition, and jobs that ask for whole nodes."""
    yield from (
        Job(at, 25, "bin", partition="debug", name="pin", options=(f"--nodelist=n{node}",)) for node in (6, 7, 8)
    )
    yield from (Job(at + 3, 5, "daemon", partition="debug", gpus=4, name="whole") for n in range(4))


def wide(at: float) -> Iterator[Event]:
    """Half of the nodes in use, a wide job that needs more than the rest, and small ones that would delay it."""
    yield from (Job(at, 14, "games", gpus=4, name="ahead") for n in range(3))
    yield Job(at + 2, 12, "news", nodes=5, gpus=4, qos="high", name="wide")
    yield from (Job(at + 3, 10, "bin", limit=300, name="patient") for n in range(6))
    yield Job(at + 44, 10, "daemon", nodes=5, gpus=4, limit=15, qos="high", name="wide")


def scattered(at: float) -> Iterator[Event]:
    """Three GPUs in use on each node, and jobs of two."""
    yield from (Job(at, 22, "daemon", gpus=3, qos="high", name="three") for n in range(8))
    yield from (Job(at + 4, 6, "news", gpus=2, name="two") for n in range(8))


def background(seed: int, at: float, jobs: int, minutes: float) -> Iterator[Event]:
    """Jobs of 1 to 8 GPUs by four users, submitted at random over so many minutes."""
    rng = np.random.default_rng(seed)
    sizes = ((1, 1), (1, 2), (1, 4), (2, 4))
    for minute in np.sort(rng.uniform(0, minutes, jobs)).tolist():
        nodes, gpus = sizes[rng.choice(4, p=(0.4, 0.3, 0.2, 0.1))]
        user = str(rng.choice(("daemon", "bin", "man", "news"), p=(0.4, 0.3, 0.2, 0.1)))
        run = float(np.clip(rng.lognormal(np.log(9), 0.7), 2, 35))
        factor = float(rng.choice((1.2, 2.0, 6.0)))
        job = Job(at + minute, run, user, gpus, nodes, limit=int(run * factor) + 2)
        yield job if rng.random() > 0.15 or nodes > 1 else replace(job, partition="debug", limit=min(job.limit, 60))
