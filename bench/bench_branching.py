"""Cost of what-ifs: a branch of a simulation, tables of all submit times of all pairs, decisions of the environment.

1. One branch of a generated trace: copy the state, submit a job, run until it starts. Peer: the whole trace simulated
   again with that job in it, as a simulator without saved states must.
2. The pair table of January 2023 of the A100 trace (a start every 4 h, every submit time of the successor), where the
   trace lies beside the checkout, else of a month of generated jobs; with one thread and with both cores.
3. What a pair of that month costs under mirage, easy and slurm, in processor time.
4. Decisions a second of the batched environment on that table, observations gathered, beside the same environment one
   pair at a time behind Gymnasium's interface.

    python bench/bench_branching.py
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

import numpy as np

from traces.units import HOUR_S

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bench_simulator import CAPACITY, generate
from bench.results import Benchmark, BenchmarkRun
from models.engine.local import each_here
from models.provisioning.batched_pairs import BatchedPairs
from models.provisioning.environment import ProvisioningEnv
from models.provisioning.pairs.injected import build_pairs
from models.provisioning.protocol import PairTable
from simulator import cluster
from simulator.flat.kernel import advance, new_state, submit
from simulator.flat.replay import as_jobs, checked_knobs, replay
from simulator.flat.state import NEVER, NONE, FlatJobs, copy_state
from simulator.workload import Workload

A100 = Path(__file__).resolve().parents[2] / "shared" / "traces" / "tacc-lonestar6" / "ls6-a100.log"
ABOUT = Benchmark(
    "branching",
    "Branches and pair tables",
    "speed",
    "Cost of simulating what-ifs: one branch, a month's table of all submit times (A100, January 2023), decisions of "
    "the batched environment.",
)
BATCH, STEPS, SINGLE_STEPS = 4096, 400, 20_000
PRICED = ("mirage", "easy", "slurm")  # the schedulers whose cost a pair is compared


def branch_seconds(workload: Workload, branches: int = 2000) -> float:
    """Mean time to copy the state in the middle of the trace, submit one more job and run until it starts."""
    knobs = checked_knobs(scheduler="easy", capacity=CAPACITY)
    count = len(workload)
    extra = zip(as_jobs(workload), (0, 8, 3600, 3600), strict=True)
    jobs = FlatJobs(*(np.append(column, value) for column, value in extra))
    trunk, branch = (new_state(knobs, count, 4096, CAPACITY) for _ in range(2))
    starts = np.full(count + 1, NONE)
    now = int(workload.submit_s[count // 2])
    advance(jobs, knobs, trunk, starts, now, NONE)
    before = 0.0
    for repetition in range(branches + 1):
        if repetition == 1:  # the first may have compiled
            before = time.perf_counter()
        copy_state(branch, trunk)
        submit(branch, count, now)
        advance(jobs, knobs, branch, starts, NEVER, count)
    return (time.perf_counter() - before) / branches


def month() -> tuple[str, Workload, int, np.ndarray]:
    """A trace, its nodes and the submissions of P of a month, every 4 h."""
    if not A100.is_file():
        workload = generate(60_000)
        begin = int(workload.submit_s[len(workload) // 4])
        return "generated jobs", workload, CAPACITY, np.arange(begin, begin + 31 * 24 * HOUR_S, 4 * HOUR_S)
    from models.study.inputs import read_workload
    from traces import clusters, ingest
    from traces.store import warehouse
    from traces.store.folder import DataFolder

    with tempfile.TemporaryDirectory() as name:
        folder = DataFolder(Path(name))
        settings = clusters.resolve(folder, cluster="ls6", timezone="America/Chicago", nodes=80, new=True)
        ingest.ingest([A100], cluster=settings, data=folder)
        warehouse.build(folder)
        workload, _keys = read_workload(folder, "ls6")
    begin, end = (int(datetime(2023, number, 1, tzinfo=UTC).timestamp()) for number in (1, 2))
    return f"A100 trace, {len(workload):,} jobs", workload, 80, np.arange(begin, end, 4 * HOUR_S)


def table_seconds(
    workload: Workload, capacity: int, submits_s: np.ndarray, nodes: int, threads: int, scheduler: str = "mirage"
) -> tuple[PairTable, float]:
    """The table of pairs, and the seconds that it took with so many threads."""

    def build() -> PairTable:
        return build_pairs(
            cluster.plain(workload, scheduler=scheduler, capacity=capacity), submits_s=submits_s, pair_nodes=nodes,
            limit_s=48 * HOUR_S, engine=partial(each_here, processes=threads),
        )  # fmt: skip

    before = time.perf_counter()
    table = build()
    return table, time.perf_counter() - before


def pair_cost(workload: Workload, capacity: int, submits_s: np.ndarray, nodes: int) -> dict[str, float]:
    """Processor seconds a pair under each scheduler, in one thread, compiled before."""
    seconds = {}
    for scheduler in PRICED:
        table_seconds(workload, capacity, submits_s[:1], nodes, 1, scheduler)
        before = time.process_time()
        table_seconds(workload, capacity, submits_s, nodes, 1, scheduler)
        seconds[scheduler] = (time.process_time() - before) / len(submits_s)
    return seconds


def batched_decisions(table: PairTable, gather: bool) -> float:
    """Decisions/s of BATCH pairs at once under a policy that submits one time in 50; ended pairs begin anew."""
    rng = np.random.default_rng(0)
    pairs = BatchedPairs(table)
    rows = pairs.reset(rng.integers(0, len(table), BATCH))
    actions = rng.random((STEPS, BATCH)) < 0.02
    fresh = rng.integers(0, len(table), (STEPS, BATCH))
    left = rng.integers(0, 289, (STEPS, BATCH))
    seen = 0.0
    before = time.perf_counter()
    for step in range(STEPS):
        if gather:
            seen += float(table.observations[rows][0, 0])
        after = pairs.step(actions[step])
        rows = pairs.restart(after.done, fresh[step][after.done], left[step][after.done])
    return BATCH * STEPS / (time.perf_counter() - before)


def single_decisions(table: PairTable) -> float:
    """Decisions a second of the environment behind Gymnasium's interface."""
    env = ProvisioningEnv(table)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    actions = (rng.random(SINGLE_STEPS) < 0.02).astype(np.int64)
    before = time.perf_counter()
    for action in actions:
        if env.step(action)[2]:
            env.reset()
    return SINGLE_STEPS / (time.perf_counter() - before)


def branches(record: BenchmarkRun) -> None:
    """Print and record the cost of a branch beside that of the whole trace."""
    for count in (1_000, 100_000):
        workload = generate(count)
        branch, whole = branch_seconds(workload), replay(workload, scheduler="easy", capacity=CAPACITY).wall_s
        print(f"branch of a trace of {count:,} jobs: {branch * 1e6:.0f} us, simulated again {whole * 1e6:,.0f} us, "
              f"{whole / branch:,.0f} times")  # fmt: skip
        record.add(f"branch, trace of {count:,} jobs", "time", branch * 1e6, "us")
        record.add(f"branch, trace of {count:,} jobs", "whole trace simulated again", whole * 1e6, "us")


def tables(record: BenchmarkRun) -> PairTable:
    """Print and record the cost of a month's tables and of a pair; returns the last table."""
    name, workload, capacity, submits_s = month()
    table_seconds(workload, capacity, submits_s[:2], 1, 1)  # compiles
    for nodes in (1, 8):
        one, alone = table_seconds(workload, capacity, submits_s, nodes, 1)
        table, both = table_seconds(workload, capacity, submits_s, nodes, os.cpu_count() or 1)
        assert (one.successor_start_s == table.successor_start_s).all(), "the threads disagree"
        outcomes = len(table.decision_s)
        print(f"{name}, a month of {nodes}-node pairs: {len(table)} pairs, {outcomes:,} submit times in {both:.1f} s, "
              f"{outcomes / both:,.0f}/s; with one thread {alone:.1f} s, {alone / both:.2f} times")  # fmt: skip
        row = f"table of {nodes}-node pairs, {outcomes:,} submit times"
        record.add(row, f"{os.cpu_count()} threads", both, "s", n=len(table))
        record.add(row, "one thread", alone, "s", n=len(table))
    for nodes in (1, 8):
        cost = pair_cost(workload, capacity, submits_s, nodes)
        print(f"{name}, {nodes}-node pairs, processor time a pair: "
              + ", ".join(f"{scheduler} {1000 * seconds:.1f} ms" for scheduler, seconds in cost.items())
              + f"; slurm is {cost['slurm'] / cost['mirage']:.2f} times mirage, "
              f"{cost['slurm'] / cost['easy']:.2f} times easy")  # fmt: skip
        for scheduler, seconds in cost.items():
            record.add(f"one {nodes}-node pair, {scheduler}", "processor time", 1000 * seconds, "ms", n=len(submits_s))
    return table


def main() -> None:
    """Measure a branch, the tables and the environment; print and record each with its peer."""
    record = BenchmarkRun(ABOUT)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
          f"{date.today()}, load average {os.getloadavg()[0]:.1f}")  # fmt: skip
    branches(record)
    table = tables(record)
    stepped, gathered = (max(batched_decisions(table, gather) for _ in range(3)) for gather in (False, True))
    single = single_decisions(table)
    print(f"environment, {BATCH:,} pairs at once: {stepped:,.0f} decisions/s, {gathered:,.0f} with observations; "
          f"one pair at a time behind Gymnasium {single:,.0f}, {gathered / single:,.0f} times less")  # fmt: skip
    record.add(f"environment, {BATCH:,} pairs at once", "speed", round(stepped), "decisions/s")
    record.add(f"environment, {BATCH:,} pairs at once", "with observations", round(gathered), "decisions/s")
    record.add("environment, one pair at a time", "speed", round(single), "decisions/s")
    record.write()


if __name__ == "__main__":
    main()
