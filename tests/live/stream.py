"""A stream of 400 jobs of every kind on a real Slurm, and what its accounting must say of each.

Sizes are drawn by a seed, and no job runs for longer than a few seconds. Preempted jobs and failed nodes are in
`tests.live.workload`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.live.slurm import Slurm
from tests.live.workload import Expected, settle

SEED = 30
COMMON = ("--time=20", "--mem-per-cpu=100")
# Names and comments of jobs that may end a field or a record of sacct, or be taken for markup.
HOSTILE = (
    "a|b|c", "two\nlines", "1|2|COMPLETED\n3|4", "tab\there", "\x1b[31mred", "%x %j", "=cmd()", "ünï 工", "'\";--",
    "<b>x</b>", "\\n", "trailing ", "|", "99|99|x|root|science|gpu|COMPLETED", "None", "Unknown",
)  # fmt: skip
ONCE = '[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || '  # what follows is done in the first run only


@dataclass
class Stream:
    """Submits jobs, and records what accounting must say of each (`expected`, by JobIDRaw)."""

    slurm: Slurm
    draw: random.Random = field(default_factory=lambda: random.Random(SEED))
    expected: dict[str, Expected] = field(default_factory=dict)
    several: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def submit(self, state: str, gpus: int, *options: str, script: str = "sleep 1", **more: object) -> str:
        """Submit a job of which `Expected(state, gpus, **more)` must be true; return its id."""
        began = time.time()
        job = self.slurm.sbatch(*COMMON, *options, script=script)
        self.expected[job] = Expected(state, gpus, submitted_s=began, **more)  # type: ignore[arg-type]
        return job

    def submit_several(self, gpus: tuple[int, ...], *options: str) -> None:
        """Submit an array or a heterogeneous job whose parts hold these GPUs each."""
        self.several[self.slurm.sbatch(*COMMON, *options)] = gpus

    def all_expected(self) -> dict[str, Expected]:
        """`expected` and the parts of several, which accounting knows once they have started."""
        parts: dict[str, Expected] = {}
        for job, gpus in self.several.items():
            shown = self.slurm.run("sacct", "-n", "-X", "-P", "-j", job, "--format=JobIDRaw").split()
            parts |= {part: Expected("COMPLETED", n) for part, n in zip(sorted(shown, key=int), gpus, strict=True)}
        return self.expected | parts

    # -- kinds --------------------------------------------------------------------------------------------------------

    def one_node(self) -> None:
        """GPUs of one node, asked for in each way that Slurm has."""
        gpus = self.draw.randint(1, 4)
        ways = (
            "--gres=gpu:",
            "--gres=gpu:a100:",
            "--gpus=",
            "--gpus=a100:",
            "--gpus-per-node=",
            "--gpus-per-node=a100:",
        )
        self.submit("COMPLETED", gpus, "--nodes=1", f"{self.draw.choice(ways)}{gpus}", least_s=1)

    def two_nodes(self) -> None:
        """GPUs of two nodes."""
        gpus = self.draw.randint(1, 4)
        self.submit("COMPLETED", 2 * gpus, "--nodes=2", f"--gpus-per-node={gpus}", least_s=1)

    def by_task(self) -> None:
        """A GPU for each task."""
        tasks = self.draw.randint(1, 4)
        self.submit("COMPLETED", tasks, "--nodes=1", f"--ntasks={tasks}", "--gpus-per-task=1")

    def shards(self) -> None:
        """A share of a GPU, which is no GPU: a job gets no more shards than one GPU has."""
        self.submit("COMPLETED", 0, f"--gres=shard:{self.draw.randint(1, 2)}", least_s=1)

    def processors(self) -> None:
        """Processors without GPUs."""
        self.submit("COMPLETED", 0, f"--ntasks={self.draw.randint(1, 8)}", least_s=1)

    def failing(self) -> None:
        """An exit status or a signal; status 99 would requeue it."""
        how = self.draw.choice([f"exit {self.draw.choice((1, 2, 42, 127, 128, 130, 137, 143, 255))}", "kill -9 $$"])
        self.submit("FAILED", 1, "--gres=gpu:1", script=how)

    def requeued_by_status(self) -> None:
        """RequeueExit=99 in slurm.conf."""
        self.submit(
            "COMPLETED", 1, "--gres=gpu:1", "--requeue", script=f"{ONCE} exit 99; sleep 1",
            attempts=2, first_state="REQUEUED",
        )  # fmt: skip

    def whole_node(self) -> None:
        """--exclusive, which holds every GPU of the node."""
        self.submit("COMPLETED", 4, "--nodes=1", "--exclusive", "--gres=gpu:1")

    def shortened(self) -> None:
        """A limit that the backfill scheduler may shorten."""
        self.submit("COMPLETED", 1, "--time=30", "--time-min=10", "--gres=gpu:1", least_s=1)

    def with_steps(self) -> None:
        """Several steps, one of which fails."""
        self.submit(
            "COMPLETED", 1, "--ntasks=2", "--gres=gpu:1", script="srun -n1 true; srun -n2 true; srun -n1 false; true"
        )

    def released(self) -> None:
        """Held by its user, then released."""
        self.slurm.run("scontrol", "release", self.submit("COMPLETED", 1, "--hold", "--gres=gpu:1", least_s=1))

    def dependent(self) -> None:
        """After a job that succeeds, and after one that fails."""
        good = self.submit("COMPLETED", 0, least_s=1)
        self.submit("COMPLETED", 1, "--gres=gpu:1", f"--dependency={self.draw.choice(('afterok', 'afterany'))}:{good}")
        bad = self.submit("FAILED", 0, script="exit 1")
        self.submit("COMPLETED", 0, f"--dependency=afternotok:{bad}")

    def later(self) -> None:
        """May start in some seconds."""
        self.submit("COMPLETED", 0, f"--begin=now+{self.draw.randint(2, 6)}", least_s=1)

    def out_of_memory(self) -> None:
        """Use three times the requested memory. Without cgroups, Slurm reports FAILED with signal 9."""
        self.submit("FAILED", 1, "--gres=gpu:1", script="{ head -c 300m /dev/zero; sleep 60; } | tail -n 1")

    def hostile(self) -> None:
        """Names and comments that break tables."""
        text = self.draw.choice(HOSTILE)
        self.submit("COMPLETED", 0, f"--job-name={text}", f"--comment={self.draw.choice(HOSTILE)}", least_s=1)


COUNTS = {
    Stream.one_node: 78, Stream.two_nodes: 20, Stream.by_task: 20, Stream.shards: 10, Stream.processors: 20,
    Stream.failing: 40, Stream.requeued_by_status: 16, Stream.whole_node: 5, Stream.shortened: 16,
    Stream.with_steps: 12, Stream.released: 12, Stream.dependent: 8, Stream.later: 10, Stream.hostile: 24,
    Stream.out_of_memory: 8,
}  # fmt: skip


def submit_stream(slurm: Slurm) -> dict[str, Expected]:
    """Submit the stream and let it end (3 to 5 min). Returns JobIDRaw of each job to what must come of it."""
    stream = Stream(slurm)
    with_an_administrator(stream)
    kinds = [kind for kind, count in COUNTS.items() for _ in range(count)]
    stream.draw.shuffle(kinds)
    for kind in kinds:
        kind(stream)
    slurm.run("scontrol", "create", "reservation", "ReservationName=kept", "StartTime=now", "Duration=30",
              "Users=root", "Nodes=n2", "Flags=IGNORE_JOBS")  # fmt: skip
    for _ in range(6):
        stream.submit("COMPLETED", 1, "--reservation=kept", "--gres=gpu:1", least_s=1)
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=for a while")
    for tasks in (8, 8, 8, 8):
        stream.submit_several((1,) * tasks, f"--array=0-{tasks - 1}%{stream.draw.randint(2, 4)}", "--gres=gpu:1")
    slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")
    for _ in range(6):
        stream.submit_several((1, 2), "--gres=gpu:1", ":", *COMMON, "--gres=gpu:2")
    settle(slurm, 600)
    slurm.run("scontrol", "delete", "ReservationName=kept")
    on_a_powered_down_node(stream)
    return stream.all_expected()


def with_an_administrator(stream: Stream) -> None:
    """Jobs that an administrator suspends, resizes, requeues, cancels or ends, all at once on the empty cluster."""
    slurm = stream.slurm
    act: dict[str, Callable[[str], tuple[str, ...]]] = {}
    for _ in range(4):
        act[stream.submit("COMPLETED", 1, "--gres=gpu:1", script="sleep 15")] = lambda job: ("suspend", job)
        resized = stream.submit(
            "COMPLETED", 1, "--nodes=2", "--gres=gpu:1", script="sleep 15", attempts=2, first_state="RESIZING"
        )
        act[resized] = lambda job: ("update", f"JobId={job}", "NumNodes=1")
        requeued = stream.submit(
            "COMPLETED", 1, "--gres=gpu:1", "--requeue", script=f"{ONCE} sleep 600; sleep 1",
            attempts=2, first_state="REQUEUED",
        )  # fmt: skip
        act[requeued] = lambda job: ("requeue", job)
    for _ in range(6):
        act[stream.submit("TIMEOUT", 0, script="sleep 600")] = lambda job: ("update", f"JobId={job}", "EndTime=now+2")
    cancelled = [stream.submit("CANCELLED", 0, script="sleep 600") for _ in range(6)]
    slurm.wait(
        60, lambda: {*act, *cancelled} <= set(slurm.run("squeue", "-h", "-t", "R", "-o", "%i").split()), "to run"
    )
    for job, command in act.items():
        slurm.run("scontrol", *command(job))
    slurm.run("scancel", *cancelled)
    time.sleep(2)
    for job, command in act.items():
        if command(job)[0] == "suspend":
            slurm.run("scontrol", "resume", job)


def on_a_powered_down_node(stream: Stream) -> None:
    """Submit jobs for a powered-down node; they start once its slurmd has registered."""
    slurm = stream.slurm
    slurm.run("scontrol", "update", "NodeName=n3", "State=POWER_DOWN")
    os.kill(slurm.pid("slurmd-n3"), signal.SIGTERM)
    slurm.wait(60, lambda: _state(slurm, "n3").endswith("~"), "n3 to power down")
    for gpus in (1, 1, 2):
        stream.submit("COMPLETED", gpus, "--nodelist=n3", f"--gres=gpu:{gpus}", least_s=1)
    slurm.wait(60, lambda: _state(slurm, "n3").endswith("#"), "n3 to power up")
    slurm.daemon("slurmd", "-N", "n3", "-b")
    settle(slurm, 120)


def _state(slurm: Slurm, node: str) -> str:
    return slurm.run("sinfo", "-h", "-N", "-p", "gpu", "-n", node, "-o", "%t").strip()
