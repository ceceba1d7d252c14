"""Fits on a Slurm of two nodes against local processes: `python bench/engine_slurm.py [--fits 8] [--starts 400]`.

Starts a real Slurm on loopback (root, and the packages of `make system`) with two nodes of one processor each, which
share the processors of this machine with the local processes that run before. The fits are those of one learner with
several seeds. The artifacts are asserted to be equal. Then it runs 1,000 tasks that cost nothing, and one alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import Benchmark, BenchmarkRun
from models.deployment import EngineOptions
from models.engine.local import each_here
from models.engine.scratch import Scratch
from models.engine.slurm import each_on_slurm
from models.engine.work import Engine, Task, Work
from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.policies.dqn import DQN
from models.provisioning.protocol import PairTable
from models.provisioning.training.processes import fit_each
from tests.live import tasks
from tests.live.slurm import Cluster, Slurm
from tests.models.generated import queue_table
from traces.counted import counted

ABOUT = Benchmark(
    "engine_slurm",
    "Fits as jobs of a Slurm against local processes",
    "speed",
    "Wall time of the same fits in local processes and as jobs of a Slurm of two nodes on the same two processors, "
    "start-up included; target: two workers at least 1.8 times as fast as one, and Slurm at most 10 % above local.",
)
TASKS = 1000


def main() -> None:
    """Run the fits with each engine and number of workers; print and record the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=8, help="seeds")
    parser.add_argument("--starts", type=int, default=400, help="pairs, which set how long a fit takes")
    options = parser.parse_args()
    pairs, record = queue_table(seed=2, starts=options.starts), BenchmarkRun(ABOUT)
    with Slurm.running(Cluster(nodes=2, node="CPUs=1 RealMemory=4000 Gres=gpu:a100:4")) as slurm:
        os.environ.update(slurm.env)
        with tempfile.TemporaryDirectory() as folder:
            scratch = Scratch(Path(folder) / "scratch")
            slurm_with = partial(EngineOptions, "slurm", str(scratch.root), "gpu", time="30m", memory="2G")
            seconds: dict[tuple[str, int], float] = {}
            digests = set()
            for workers in (1, 2):
                on_slurm: Engine = lambda work, _most, n=workers: each_on_slurm(work, slurm_with(at_once=n), scratch)  # type: ignore[misc]  # noqa: E731
                for name, engine in (("local", partial(each_here, processes=workers)), ("slurm", on_slurm)):
                    began = time.monotonic()
                    found, each_s = fits(options.fits, pairs, engine)
                    seconds[name, workers] = time.monotonic() - began
                    digests.add(found)
                    scratch.remember_times("models.provisioning.training.processes:fit_one", {"dqn": each_s})
                    for answer in (scratch.root / "answers").iterdir():
                        answer.unlink()
                    print(
                        f"{name}, {counted(workers, 'worker')}: {seconds[name, workers]:.1f} s, {each_s:.1f} s a fit",
                        flush=True,
                    )
                    record.add(name, counted(workers, "worker"), seconds[name, workers], "s", n=options.fits)
            assert len(digests) == 1, "the engines made other artifacts"
            for name in ("local", "slurm"):
                record.add(name, "speed-up of two workers", seconds[name, 1] / seconds[name, 2], "times")
            for workers in (1, 2):
                more = seconds["slurm", workers] / seconds["local", workers]
                record.add("slurm", f"against local, {counted(workers, 'worker')}", more, "times")
            for count in (1, TASKS):
                took_s = trivial(count, slurm_with(at_once=2), scratch)
                print(f"{counted(count, 'trivial task')}: {took_s:.1f} s", flush=True)
                record.add("slurm", counted(count, "trivial task"), took_s, "s", n=count)
    record.write()


def fits(seeds: int, pairs: PairTable, engine: Engine) -> tuple[str, float]:
    """Make the fits; returns their digests in the order of the seeds, and the mean time of one, s."""
    made = sorted(fit_each([(DQN(), seed) for seed in range(seeds)], pairs, engine), key=lambda one: one.seed)
    return " ".join(content_digest(one.artifact) for one in made), sum(one.wall_s for one in made) / len(made)


def trivial(count: int, options: EngineOptions, scratch: Scratch) -> float:
    """Run so many tasks that cost nothing; returns the time until the last result, s."""
    began = time.monotonic()
    work = Work(tasks.identity, [Task(f"{place}", place, "none") for place in range(count)], ("of", count))
    assert sorted(each_on_slurm(work, options, scratch)) == [(place, place) for place in range(count)]
    return time.monotonic() - began


if __name__ == "__main__":
    main()
