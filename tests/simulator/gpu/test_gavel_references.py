"""Gavel and Gandiva against the program of Gavel's authors: mean completion time on the same jobs.

The program (stanford-futuredata/gavel, commit c4fa400) ignores on how many nodes a job is, and so do the profiles here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
import pytest

from simulator.gpu.profiles.profile import Profile, StepTimes
from simulator.gpu.registry import scheduler
from simulator.gpu.round_policy import GpuJob, GpuMachine
from simulator.gpu.rounds import simulate_rounds
from simulator.gpu.scheduler import RoundScheduler
from traces.arrays import Float64s

REFERENCES = Path(__file__).parents[4] / "shared" / "references" / "gpu"

pytestmark = pytest.mark.skipif(
    not REFERENCES.is_dir(), reason="the results of other programs in ../shared/references are not on this machine"
)

MIXED = GpuMachine(np.array([4] * 6 + [8] * 3), ["v100"] * 2 + ["p100"] * 4 + ["k80"] * 3, "v100")
V100 = GpuMachine(np.full(8, 4), ["v100"] * 8, "v100")
AS_RELEASED = {"reset_s": 1920.0, "pause_s": 0.0}
GANDIVA = {**AS_RELEASED, "round_s": 360.0, "released": 1.0}
GavelRow: TypeAlias = tuple[str, dict[str, float], GpuMachine, str, str, float, float]
ROWS: list[GavelRow] = [
    # scheduler, settings, machine, file, policy, most distance of the mean, least share of jobs within 10 %
    ("gavel", {}, MIXED, "gavel_continuous", "max_min_fairness_perf", 0.03, 0.9),
    ("gavel", {}, V100, "gavel_v100only", "max_min_fairness", 0.03, 0.9),
    ("gavel", {"heterogeneity": 0.0}, MIXED, "gavel_continuous", "max_min_fairness", 0.03, 0.5),
    ("gavel-ftf", {}, MIXED, "gavel_continuous", "finish_time_fairness_perf", 0.03, 0.9),
    ("gavel-ftf", {}, V100, "gavel_v100only", "finish_time_fairness", 0.03, 0.9),
    ("gavel-throughput", {}, MIXED, "gavel_continuous", "max_sum_throughput_perf", 0.05, 0.7),
    ("gandiva", GANDIVA, MIXED, "gavel_continuous", "gandiva", 0.05, 0.4),
    ("gandiva", GANDIVA, V100, "gavel_v100only", "gandiva", 0.05, 0.4),
]


def profiles() -> dict[str, Profile]:
    """The models of the program, with one step time for each GPU type and number of GPUs, on any number of nodes."""
    table = pl.read_csv(REFERENCES / "gavel_throughputs.csv.gz").filter(
        (pl.col("file") == "simulation") & pl.col("gpu_type").is_in(["v100", "p100", "k80"])
    )
    alone: dict[str, dict[str, list[tuple[int, float]]]] = {}
    packed: dict[str, dict[tuple[str, str, int], float]] = {}
    columns = ("gpu_type", "job_type", "scale_factor", "other_job_type", "steps_per_s", "other_steps_per_s")
    for kind, model, gpus, other, steps, others in table.select(columns).iter_rows():
        if other is None and steps > 0.0:
            alone.setdefault(model, {}).setdefault(kind, []).append((gpus, gpus / steps))
        elif other is not None and steps > 0.0 and others > 0.0:
            packed.setdefault(model, {})[kind, other, gpus] = gpus / steps
            packed.setdefault(other, {}).setdefault((kind, model, gpus), gpus / others)
    return {
        model: Profile(
            model,
            {
                kind: StepTimes(
                    np.array([[1.0, gpus, 1.0] for gpus, _ in rows]), np.array([[step_s, 0.0] for _, step_s in rows])
                )
                for kind, rows in kinds.items()
            },
            local_batch=1.0,
            packed=packed.get(model, {}),
        )
        for model, kinds in alone.items()
    }


def jobs() -> list[GpuJob]:
    """The jobs with their run times on V100."""
    models, found = profiles(), []
    rows = pl.read_csv(REFERENCES / "jobs_gavel_continuous.csv.gz")
    for number, submit_s, gpus, steps, model in rows.select(
        "job", "submit_s", "gpus", "total_steps", "job_type"
    ).iter_rows():
        step_s, _ = models[model].steps["v100"].at(1, gpus, 1.0)
        found.append(GpuJob(number, submit_s, gpus, steps * step_s / gpus, model=models[model]))
    return found


def completion_times(row: GavelRow) -> tuple[Float64s, Float64s]:
    """Completion times of the jobs, s: ours, and the program's."""
    name, settings, machine, file, policy, _most, _close = row
    found = scheduler(name)
    assert isinstance(found, RoundScheduler)
    given = jobs()
    result = simulate_rounds(given, machine, found.build({**AS_RELEASED, **settings}))
    own = result.end_s - np.array([job.submit_s for job in given])
    theirs = pl.read_csv(REFERENCES / f"{file}.csv.gz").filter(pl.col("policy") == policy).sort("job")
    return own, theirs["jct_s"].to_numpy()


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}, {row[4]}, {row[3]}" for row in ROWS])
def test_completion_times_are_those_of_the_authors(row: GavelRow) -> None:
    most, close = row[5:]
    own, theirs = completion_times(row)
    assert own.mean() / theirs.mean() == pytest.approx(1.0, abs=most)
    assert (np.abs(own / theirs - 1.0) < 0.1).mean() >= close
