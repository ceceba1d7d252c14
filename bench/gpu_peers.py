"""GPU schedulers beside the programs of their authors, on the same jobs and machines.

    .venv/bin/python -m bench.gpu_peers

The results of the programs are in `../shared/references/gpu`; without them nothing is compared, and the reason is
printed. Figures are ratios, ours to theirs, of mean completion times, and the shares of jobs that end alike: at the
same second for the programs that count in whole seconds, within 10 % for the others. Tiresias' Gittins index is made
from every fifth value of the program's table. Sia has 40 jobs here; `hs_sia` is the program with our solver.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.results import Benchmark, BenchmarkRun
from simulator.gpu.cluster import of_nodes
from simulator.gpu.policies.sia import Sia
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu import (
    pollux_files,
    sia_files,
    test_gavel_references,
    test_pollux_references,
    test_references,
    test_sia_references,
)

ABOUT = Benchmark(
    "gpu_peers",
    "GPU schedulers beside their authors' programs",
    "gpu",
    "The same jobs on the same machine under the authors' program and here. Equal: ends at the same second, or "
    "completion times within 10 % (Gavel, Gandiva, Sia, Pollux). Sia's program with another solver differs from itself "
    "by 4 %.",
)


class PeerRow(NamedTuple):
    """One policy of a peer beside ours."""

    name: str
    ratio: float  # of mean completion times, ours to theirs
    equal: float  # share of jobs that end alike
    jobs: int
    restarts: float | None = None  # ratio of restarts


def of_tiresias() -> Iterator[PeerRow]:
    """Compare with Tiresias' program, and with Lucid's first in, first out and shortest job first."""
    for file, gpus in test_references.COUNTED.items():
        cluster, jobs = of_nodes(np.array([gpus])), 60 if file.endswith("60b") else 480
        for policy, name, settings in test_references.EQUAL:
            equal, ratio = test_references.compared(file, policy, cluster, name, settings)
            yield PeerRow(f"Tiresias' program, {policy}: {name}, {file[9:]}", ratio, equal, jobs)
        given = ("dlas-gpu-gittins", cluster, "tiresias-gittins", test_references.GITTINS)
        equal, ratio = test_references.compared(file, *given)
        yield PeerRow(f"Tiresias' program, {given[0]}: {given[2]}, {file[9:]}", ratio, equal, jobs)
    for policy, settings in test_references.LUCID.items():
        equal, ratio = test_references.compared("lucid_T480", policy, of_nodes(np.full(8, 8)), policy, settings)
        yield PeerRow(f"Lucid's program, {policy}: {policy}, T480", ratio, equal, 480)


def of_gavel() -> Iterator[PeerRow]:
    """Compare with Gavel's program."""
    for row in test_gavel_references.ROWS:
        own, theirs = test_gavel_references.completion_times(row)
        close = float((np.abs(own / theirs - 1.0) < 0.1).mean())
        yield PeerRow(f"Gavel's program, {row[4]}: {row[0]}, {row[3]}", own.mean() / theirs.mean(), close, len(own))


def of_sia() -> Iterator[PeerRow]:
    """Compare with Sia's program, with both of its solvers."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = sia_files.jobs("philly1_40", sia_files.profiles(Path(folder)))
    policy = Sia(60.0, first_start=True, free_moves=True, whole_seconds=True)
    result = simulate_rounds(jobs, test_sia_references.MACHINE, policy)
    own = result.end_s - np.array([job.submit_s for job in jobs])
    for solver in ("sia", "hs_sia"):
        rows = sia_files.rows(f"sia_philly1_40_{solver}.csv.gz")
        theirs = np.array([float(row["jct_s"]) for row in rows])
        restarts = result.restarts.sum() / sum(int(row["restarts"]) for row in rows)
        close = float((np.abs(own / theirs - 1.0) < 0.1).mean())
        yield PeerRow(
            f"Sia's program, {solver}: sia, philly1_40", own.mean() / theirs.mean(), close, len(own), restarts
        )


def of_pollux() -> Iterator[PeerRow]:
    """Compare with the results that Pollux's authors published: their Tiresias, and Pollux."""
    with tempfile.TemporaryDirectory() as folder:
        known = pollux_files.profiles(Path(folder))
    for workload in range(1, 9):
        given = (test_pollux_references.tiresias(), "tiresias", workload, known)
        own, theirs = test_pollux_references.completion_times(*given)
        equal = float((own == theirs).mean())
        yield PeerRow(
            f"Pollux's program, tiresias: tiresias-rounds, workload {workload}",
            own.mean() / theirs.mean(),
            equal,
            len(own),
        )
    for workload in (1, 6):
        own, theirs = test_pollux_references.completion_times(
            test_pollux_references.pollux(), "pollux", workload, known
        )
        close = float((np.abs(own / theirs - 1.0) < 0.1).mean())
        yield PeerRow(f"Pollux's program: pollux, workload {workload}", own.mean() / theirs.mean(), close, len(own))


def main() -> None:
    """Compare all, print and record the figures."""
    if not test_references.FOLDER.is_dir():
        print(f"nothing is compared: the results of the authors' programs are not there ({test_references.FOLDER})")
        return
    run = BenchmarkRun(ABOUT)
    for rows in (of_tiresias(), of_gavel(), of_sia(), of_pollux()):
        for row in rows:
            print(f"{row.name}: mean {row.ratio:.4f}, {row.equal:.0%} of {row.jobs} jobs alike", flush=True)
            run.add(row.name, "mean completion time, ours to theirs", row.ratio, n=row.jobs)
            run.add(row.name, "jobs that end alike", row.equal, n=row.jobs)
            if row.restarts is not None:
                run.add(row.name, "restarts, ours to theirs", row.restarts, n=row.jobs)
    run.write()


if __name__ == "__main__":
    main()
