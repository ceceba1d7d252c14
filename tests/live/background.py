"""Background load for chains on a real Slurm: jobs of the bundled (generated) trace on 16 nodes of four GPUs.

The earlier days are the history that policies are fitted on, the later ones the load that chains compete with. Both
come from one call with one seed: a policy that is fitted on the first part meets the cluster that it knows.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from simulator.flat.replay import simulate
from simulator.workload import Workload
from tests.live.fidelity import SETTINGS
from tests.live.fidelity_workload import CPUS_PER_GPU, Submission
from tests.live.keeping import USER
from tests.live.slurm import Cluster, Slurm
from traces import clusters
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

SAMPLE = Path(__file__).parents[2] / "data/sample/slurm"
BEGIN = datetime(2026, 6, 8)  # of the sample: its first week is sparse
NODES = 16
FIRST_DAY = datetime(2026, 10, 15, tzinfo=UTC)  # of the history
BETWEEN_DAYS = 3.0  # of two copies of it: longer than the longest job, so that the first has ended
HISTORY_DAYS = 46.0  # of the background that policies may be fitted on
WIDEST = 8  # nodes of the widest job that is taken
LONGEST_MIN = 12 * 60  # of a time limit on this cluster
ACCOUNT = "science"
MOST_S = 65_000  # Slurm holds a time-out in 16 bits
TIME_OUTS = (
    "SlurmctldTimeout", "SlurmdTimeout", "MessageTimeout", "TCPTimeout", "BatchStartTimeout", "PrologEpilogTimeout",
    "UnkillableStepTimeout",
)  # fmt: skip
USERS = ("daemon", "bin", "games", "man", "news", "uucp")  # Debian's own: none has to be made on the machine


def cluster(rate: float) -> Cluster:
    """The 16 nodes. What Slurm bounds by time is bounded by as much real time as on a clock 60 times fast."""
    slower = max(rate / 60, 1)
    bounds = {name: SETTINGS[name] for name in TIME_OUTS}
    return Cluster(
        nodes=NODES,
        node="CPUs=32 RealMemory=256000 Gres=gpu:a100:4",
        settings=SETTINGS
        | {name: str(min(int(int(value) * slower), MOST_S)) for name, value in bounds.items()}
        | {
            "SchedulerParameters": "bf_interval=180,bf_continue,bf_max_job_test=100,bf_yield_interval=100000000,"
            f"bf_yield_sleep=1000,max_sched_time={int(120 * slower)},bf_max_time={int(1800 * slower)}",
            "PriorityWeightAge": "10000",
            "PriorityMaxAge": "14-0",
            "PriorityWeightFairshare": "0",
            "PriorityWeightJobSize": "0",
            "PriorityWeightPartition": "0",
            "PriorityWeightQOS": "0",
            "PriorityWeightTRES": "gres/gpu=0",
            "AccountingStorageEnforce": "associations",
            "SlurmctldDebug": "error",
            "DebugFlags": "NO_CONF_HASH",
        },
        partitions=(
            "PartitionName=gpu Nodes=ALL Default=YES MaxTime=12:00:00 DefaultTime=01:00:00 State=UP DefMemPerCPU=7000",
        ),
    )


@dataclass(frozen=True)
class Load:
    """How busy the cluster is: `share` of all its node-seconds, over `days`, from the draw of `seed`."""

    share: float = 0.65
    days: float = 60.0
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


def asked(job: Submission) -> list[str]:
    """The options of sbatch that such a job is submitted with."""
    return [
        f"--uid={job.user}", f"--account={ACCOUNT}", f"--partition={job.partition}", f"--nodes={job.nodes}",
        "--ntasks-per-node=1", f"--cpus-per-task={job.gpus_per_node * CPUS_PER_GPU}",
        f"--gres=gpu:{job.gpus_per_node}", f"--time={job.limit_min}", "--job-name=background",
    ]  # fmt: skip


FIELDS = (
    "JobID|JobIDRaw|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|"
    "AllocTRES"
)


def with_chains(jobs: list[Submission], chains: int, link_min: int) -> list[Submission]:
    """The jobs, and as many chains of one-node jobs of that limit, each submitted when its predecessor has ended.

    They are all of the user whose agents will keep chains. A chain begins an hour after the one before it, and goes on
    until the last submission of `jobs`.
    """
    until_s, link_s = jobs[-1].submit_s, link_min * 60
    submits = [[3600 * (1 + chain)] for chain in range(chains)]
    while True:
        links = [
            Submission(0, at_s, USER, "gpu", "normal", 1, 4, link_min, link_s + 3600, name=f"c{chain}")
            for chain, times in enumerate(submits)
            for at_s in times
        ]
        merged = sorted([*jobs, *links], key=lambda job: job.submit_s)
        starts = _starts(merged).tolist()
        found = [[times[0]] for times in submits]
        for job, start_s in zip(merged, starts, strict=True):
            if job.name != "job" and start_s + link_s < until_s:
                found[int(job.name[1:])].append(start_s + link_s)
        found = [sorted(times)[: len(old) + 1] for times, old in zip(found, submits, strict=True)]
        if found == submits:
            return [replace(job, index=index) for index, job in enumerate(merged)]
        submits = found


def _starts(jobs: list[Submission]) -> np.ndarray:
    """When the simulator's `mirage` starts each, s: int64, (jobs,)."""
    columns = {
        "job_id": np.arange(len(jobs)),
        "submit_s": np.array([job.submit_s for job in jobs]),
        "size": np.array([job.nodes for job in jobs]),
        "run_s": np.array([min(job.run_s, job.limit_min * 60) for job in jobs]),
        "limit_s": np.array([job.limit_min * 60 for job in jobs]),
        "start_s": np.full(len(jobs), -1),
    }
    return simulate(Workload(**columns), scheduler="mirage", capacity=NODES)


def _rows(jobs: list[Submission], epoch_s: int, first_id: int) -> list[str]:
    """The jobs as sacct would print them, had they started when the simulator starts them: generated."""
    lines = []
    for job, start_s in zip(jobs, _starts(jobs).tolist(), strict=True):
        run_s = min(job.run_s, job.limit_min * 60)
        submit, start, end = (
            f"{datetime.fromtimestamp(epoch_s + at_s, UTC):%Y-%m-%dT%H:%M:%S}"
            for at_s in (job.submit_s, start_s, start_s + run_s)
        )
        state = "TIMEOUT" if job.run_s > job.limit_min * 60 else "COMPLETED"
        gpus, cpus = job.nodes * job.gpus_per_node, job.nodes * job.gpus_per_node * CPUS_PER_GPU
        values = (
            first_id + job.index, first_id + job.index, job.user, ACCOUNT, job.partition, job.qos, state, submit,
            submit, start, end, run_s, job.limit_min, job.nodes, cpus,
            f"billing={cpus},cpu={cpus},gres/gpu:a100={gpus},gres/gpu={gpus},node={job.nodes}",
        )  # fmt: skip
        lines.append("|".join(map(str, values)))
    return lines


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


def write_history(
    folder: Path, link_min: int = 360, chains: int = 5, busier: Sequence[float] = (), seed: int = 2
) -> int:
    """What policies are fitted on, as a site would hand it over: `history.psv`, `slurm.conf` and `clusters.toml`.

    The background of the first HISTORY_DAYS with chains of that limit beside it, all of one user, who submits a link
    when the one before it has ended. busier: before it lie as many copies of these days, each at another share of the
    cluster and drawn with another seed, from `seed` on, so that a fit meets queues that the days themselves did not
    have. Returns the number of jobs. Fit with `--cluster live --scheduler slurm --limit 6h --user games --data FOLDER`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    loads = [*(Load(share=share, seed=seed) for seed, share in enumerate(busier, seed)), Load()]
    lines = [FIELDS]
    for copy, load in enumerate(loads):
        days_before = (len(loads) - 1 - copy) * (HISTORY_DAYS + BETWEEN_DAYS)
        earlier = [job for job in submissions(load) if job.submit_s < HISTORY_DAYS * 86400]
        epoch_s = int(FIRST_DAY.timestamp() - days_before * 86400)
        lines += _rows(with_chains(earlier, chains, link_min), epoch_s, 999 + len(lines))
    (folder / "history.psv").write_text("\n".join(lines) + "\n")
    conf = folder.resolve() / "slurm.conf"
    conf.write_text(Slurm(Path("/slurm"), cluster(60)).conf("localhost"))
    (folder / "clusters.toml").write_text(
        f'[live]\ntimezone = "UTC"\nnodes = {NODES}\ngpus_per_node = 4\nslurm_conf = "{conf}"\n'
    )
    return len(lines) - 1


def main() -> None:
    """The command line: `python -m tests.live.background FOLDER [--busier 0.8,0.9] [--seed 2]`."""
    parser = argparse.ArgumentParser(description="Write the history that policies are fitted on.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--busier", default="", help="shares of the cluster of copies that lie before it: 0.8,0.9")
    parser.add_argument("--seed", type=int, default=2, help="of the first copy's draw; the days themselves have 1")
    given = parser.parse_args()
    busier = [float(share) for share in given.busier.split(",") if share]
    print(f"{write_history(given.folder, busier=busier, seed=given.seed)} jobs -> {given.folder}")


if __name__ == "__main__":
    main()
