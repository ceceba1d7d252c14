"""Background load for chains on a real Slurm: jobs of the bundled (generated) trace on 16 nodes of four GPUs.

The earlier days are the history that policies are fitted on, the later ones the load that chains compete with. Both
come from one call with one seed: a policy that is fitted on the first part meets the cluster that it knows.
"""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tests.live.fidelity_workload import Submission
from tests.live.slurm import Cluster
from traces import clusters
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

SAMPLE = Path(__file__).parents[2] / "data/sample/slurm"
BEGIN = datetime(2026, 6, 8)  # of the sample: its first week is sparse
NODES = 16
WIDEST = 8  # nodes of the widest job that is taken
LONGEST_MIN = 12 * 60  # of a time limit on this cluster
ACCOUNT = "science"
USERS = ("daemon", "bin", "games", "man", "news", "uucp")  # Debian's own: none has to be made on the machine
CHAIN_USERS = ("mail", "proxy", "backup", "list", "irc")  # whose chains run beside them


@dataclass(frozen=True)
class Load:
    """How busy the cluster is: `share` of all its node-seconds, over `days`, from the draw of `seed`."""

    share: float = 0.65
    days: float = 24.0
    seed: int = 1


def submissions(load: Load) -> list[Submission]:
    """Jobs of the sample in order, each kept or left out by a coin so that their sum is `load.share` of the cluster.

    A job asks for whole nodes. Time limits above that of the partition become it, and run times with them.
    """
    rng = np.random.default_rng(load.seed)
    rows = [row for row in _sample() if row[0] < load.days * 86400 and row[1] <= WIDEST]
    run_s = np.array([min(row[3], LONGEST_MIN * 60) for row in rows])
    asked = float(np.sum(np.array([row[1] for row in rows]) * run_s))
    chance = load.share * NODES * load.days * 86400 / asked
    if chance > 1:
        raise ValueError(f"the sample holds {1 / chance:.0%} of that load")
    kept = [row for row, coin in zip(rows, rng.random(len(rows)), strict=True) if coin < chance]
    users = rng.choice(len(USERS), len(kept), p=(0.35, 0.25, 0.15, 0.1, 0.1, 0.05))
    return [
        Submission(
            index=index, submit_s=at_s, user=USERS[user], partition="gpu", qos="normal", nodes=nodes, gpus_per_node=4,
            limit_min=min(limit_s // 60, LONGEST_MIN), run_s=min(ran_s, LONGEST_MIN * 60 + 3600),
        )
        for index, ((at_s, nodes, limit_s, ran_s), user) in enumerate(zip(kept, users, strict=True))
    ]  # fmt: skip


def between(jobs: list[Submission], from_s: int, until_s: int) -> list[Submission]:
    """The submissions of that time, counted from its begin."""
    return [replace(job, submit_s=job.submit_s - from_s) for job in jobs if from_s <= job.submit_s < until_s]


@functools.cache
def _sample() -> list[tuple[int, int, int, int]]:
    """(seconds since BEGIN, nodes, limit in s, run time in s) of the sample's jobs that ran, in order of submission."""
    with tempfile.TemporaryDirectory(prefix="baton-sample-") as place:
        data = DataFolder(Path(place))
        ingest([SAMPLE], cluster=clusters.resolve(data, cluster="sample"), data=data)
        warehouse.build(data)
        jobs = warehouse.read(
            data,
            "SELECT submit_utc, allocated_nodes, limit_s, run_s FROM jobs "
            "WHERE start_utc IS NOT NULL AND end_utc IS NOT NULL AND run_s > 0 AND limit_s > 0 AND submit_utc >= ? "
            "ORDER BY submit_utc, job_key",
            (BEGIN,),
        )
    begin_s = BEGIN.replace(tzinfo=UTC).timestamp()
    return [
        (int(submit.replace(tzinfo=UTC).timestamp() - begin_s), nodes, limit_s, run_s)
        for submit, nodes, limit_s, run_s in jobs.iter_rows()
    ]
