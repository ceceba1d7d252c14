"""Short workloads on a real Slurm, each about one rule: python -m tests.live.scenes SCENE FOLDER (as root).

`qos` and `tier` preempt by QOS (preempt/qos) and by partition (preempt/partition_prio), with REQUEUE and CANCEL;
`nodes` has two types of GPU, drained nodes and two reservations. The clock runs 60 times fast.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.live.fidelity import SETTINGS, Stage, record
from tests.live.fidelity_workload import CPUS_PER_GPU, LIMITS_MIN, USERS, Submission
from tests.live.slurm import Cluster, Slurm

NODES = 8
GPUS = 4
NODE = f"CPUs={GPUS * CPUS_PER_GPU} RealMemory=256000 Gres=gpu:a100:{GPUS}"
PARTITION = "MaxTime=12:00:00 DefaultTime=01:00:00 State=UP DefMemPerCPU=7000 TRESBillingWeights=CPU=0,GRES/gpu=1.0"


@dataclass(frozen=True)
class Group:
    """A group of jobs: its share of them, where they go, and the median of their run times, minutes."""

    share: float
    qos: str
    median_min: float
    partition: str = "gpu"
    gpu_type: str = ""


class TypedSlurm(Slurm):
    """A Slurm whose last three nodes have V100s."""

    def _configure(self) -> None:
        super()._configure()
        last = "|".join(self.cluster.names()[-3:])
        for name in ("slurm.conf", "gres.conf"):
            path = self.folder / "etc" / name
            lines = path.read_text().splitlines()
            of_type = [
                re.sub(r"(gpu:|Type=)a100", r"\1v100", x) if re.match(rf"NodeName=({last}) ", x) else x for x in lines
            ]
            path.write_text("\n".join(of_type) + "\n")


def submissions(groups: tuple[Group, ...], seed: int, jobs: int = 130, hours: float = 1.5) -> list[Submission]:
    """Jobs of one to four nodes, submitted evenly over `hours` simulated hours; the same seed gives the same jobs."""
    rng = np.random.default_rng(seed)
    drafts = []
    for index, at in enumerate(np.sort(rng.uniform(0, hours * 3600, jobs))):
        group = groups[rng.choice(len(groups), p=[group.share for group in groups])]
        nodes, gpus = ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4))[rng.choice(5, p=(0.35, 0.25, 0.22, 0.12, 0.06))]
        run_s = int(np.clip(rng.lognormal(np.log(60 * group.median_min), 0.7), 120, 5400))
        reach_min = run_s * rng.choice((1.1, 2.0, 4.0)) / 60
        drafts.append(
            Submission(
                index=index,
                submit_s=int(at),
                user=str(rng.choice(list(USERS))),
                partition=group.partition,
                qos=group.qos,
                nodes=nodes,
                gpus_per_node=gpus,
                limit_min=next(limit for limit in LIMITS_MIN if limit >= reach_min),
                run_s=run_s,
                gpu_type=group.gpu_type,
            )
        )
    return drafts


def _cluster(*partitions: str, **settings: str) -> Cluster:
    return Cluster(NODES, NODE, SETTINGS | settings, tuple(f"{partition} {PARTITION}" for partition in partitions))


ALL = f"n[1-{NODES}]"
SCENES = {
    "qos": (
        submissions(
            (Group(0.45, "low", 14), Group(0.2, "spare", 9), Group(0.1, "normal", 8), Group(0.25, "high", 4)), seed=11
        ),
        Stage(
            _cluster(f"PartitionName=gpu Nodes={ALL} Default=YES", PreemptType="preempt/qos", PreemptMode="REQUEUE"),
            {
                "normal": "Priority=100",
                "low": "Priority=10",
                "spare": "Priority=5 PreemptMode=cancel",
                "high": "Priority=1000 Preempt=low,spare",
            },
        ),
    ),
    "tier": (
        submissions(
            (
                Group(0.35, "normal", 14, "low"),
                Group(0.2, "normal", 9, "spare"),
                Group(0.15, "normal", 9, "kept"),
                Group(0.3, "normal", 4, "urgent"),
            ),
            seed=12,
        ),
        Stage(
            _cluster(
                f"PartitionName=low Nodes={ALL} Default=YES PriorityTier=2",
                f"PartitionName=spare Nodes={ALL} PriorityTier=1 PreemptMode=CANCEL",
                f"PartitionName=kept Nodes=n[5-{NODES}] PriorityTier=3 PreemptMode=OFF",
                f"PartitionName=urgent Nodes=n[3-{NODES}] PriorityTier=9",
                PreemptType="preempt/partition_prio",
                PreemptMode="REQUEUE",
            ),
            {"normal": "Priority=100"},
        ),
    ),
    "nodes": (
        submissions(
            (Group(0.4, "normal", 9), *(Group(0.3, "normal", 9, gpu_type=kind) for kind in ("a100", "v100"))), seed=13
        ),
        Stage(
            _cluster(
                f"PartitionName=gpu Nodes={ALL} Default=YES",
                AccountingStorageTRES="gres/gpu,gres/gpu:a100,gres/gpu:v100",
            ),
            {"normal": "Priority=100"},
            (
                (
                    600,
                    (
                        "scontrol",
                        "create",
                        "reservation",
                        "ReservationName=course",
                        "Users=root",
                        "StartTime=@3000",
                        "EndTime=@6000",
                        "Nodes=n[2-4]",
                        "Flags=IGNORE_JOBS",
                    ),
                ),
                (1200, ("scontrol", "update", "NodeName=n1,n7", "State=DRAIN", "Reason=scene")),
                (
                    2400,
                    (
                        "scontrol",
                        "create",
                        "reservation",
                        "ReservationName=service",
                        "Users=root",
                        "StartTime=@5400",
                        "EndTime=@7200",
                        "Nodes=n[6,8]",
                        "Flags=MAINT,IGNORE_JOBS",
                    ),
                ),
                (4200, ("scontrol", "update", "NodeName=n1,n7", "State=RESUME")),
            ),
            TypedSlurm,
        ),
    ),
}

if __name__ == "__main__":
    scene, folder = sys.argv[1:]
    record(Path(folder), *SCENES[scene], keep_log=True)
