"""Generate minute samples of GPU, CPU and memory utilization that agree with the generated Philly job log.

A GPU is busy only while an attempt holds it. Its samples follow the quantiles of GPU utilization that AcmeTrace
publishes for Philly (CC BY 4.0, rounded below; mean 0.52 in use, Jeon et al.), around a constant level of the job.
Times end with PDT or PST, which distinguishes the repeated hour of the clock change. 'NA' is an offline GPU, a GPU that
the machine does not have, or an offline machine. Every GPU row ends with a comma, as in the original.
"""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from traces.arrays import Float64s, Int64s
from traces.generate.philly import CLOCK_CHANGE_S, Machines, PhillyJob, local_text
from traces.generate.text import open_text
from traces.units import DAY_S

# Utilization (%) at 0, 5, ..., 100 % of samples, rounded.
UTILIZATION_QUANTILES = np.array(
    [0, 0, 0, 0, 0, 0, 0, 6.2, 22.2, 37.2, 48.6, 58.6, 69.4, 79.5, 87.4, 92.0, 96.5, 98.3, 99.3, 100, 100]
)
Flags = NDArray[np.bool_]
SAMPLES_A_MINUTE = 30  # the published values are multiples of 1/30
PERSISTENCE_MIN = 15  # minutes between changes of a job's level
ABSENT = -1.0
GPUS_A_ROW = 8


def first_sample_s() -> int:
    """Return 2017-11-04 00:00 PDT, so that two days of samples cover the repeated hour of the 5th."""
    return CLOCK_CHANGE_S - 2 * 3600 - DAY_S


def gpu_utilization(rng: np.random.Generator, jobs: list[PhillyJob], cluster: Machines, times_s: Int64s) -> Float64s:
    """Draw utilization in percent, shape (machines, minutes, 8); -1 for 'NA'."""
    grid = np.array([NormalDist().inv_cdf(min(max(p, 0.002), 0.998)) for p in np.linspace(0, 1, 21)])
    values = np.full((len(cluster.gpus), len(times_s), GPUS_A_ROW), ABSENT, dtype=np.float64)
    for machine, count in enumerate(cluster.gpus):
        values[machine, :, :count] = 0.0
    for job in jobs:
        for attempt in job.attempts:
            low, high = np.searchsorted(times_s, [attempt.start_s, attempt.end_s])
            if low == high:
                continue
            level = rng.normal(0.15, 0.30)  # a little above the quantiles of all GPUs, because these are in use
            blocks = np.repeat(rng.normal(0, 0.90, (high - low) // PERSISTENCE_MIN + 1), PERSISTENCE_MIN)[: high - low]
            for machine, held in attempt.held:
                noise = rng.normal(0, 0.12, (high - low, len(held))) * (rng.random((high - low, len(held))) < 0.5)
                percent = np.interp(level + blocks[:, None] + noise, grid, UTILIZATION_QUANTILES)
                values[machine, low:high, held] = (np.round(percent * SAMPLES_A_MINUTE) / SAMPLES_A_MINUTE).T
    for machine, gpu in enumerate(cluster.gpus):
        if machine % 9 == 4:  # one GPU is offline for some hours
            begin = int(rng.integers(0, max(1, len(times_s) - 200)))
            values[machine, begin : begin + 200, gpu - 1] = ABSENT
    return values


def write_samples(
    out: Path, jobs: list[PhillyJob], cluster: Machines, *, days: int, seed: int, compress: bool
) -> list[Path]:
    """Write the GPU, CPU and memory files for `days` days of local time (one of them has 25 hours)."""
    rng = np.random.default_rng([seed, 2])
    first_s = first_sample_s()
    minutes = days * 1440 + (60 if days > 1 else 0)
    times_s = first_s + 60 * np.arange(minutes)
    stamps = [
        f"{text} {'PDT' if at < CLOCK_CHANGE_S else 'PST'}"
        for text, at in zip(local_text(times_s), times_s.tolist(), strict=True)
    ]
    gpu = gpu_utilization(rng, jobs, cluster, times_s)
    offline = np.zeros(gpu.shape[:2], dtype=bool)
    for machine in range(0, len(cluster.names), 11):  # some machines are down for two hours
        begin = int(rng.integers(0, max(1, minutes - 120)))
        offline[machine, begin : begin + 120] = True
    gpu[offline] = ABSENT
    suffix = ".gz" if compress else ""
    paths = [out / f"cluster_{name}_util{suffix}" for name in ("gpu", "cpu", "mem")]
    _write_gpu(paths[0], gpu, cluster, stamps, compress=compress)
    busy = np.clip(gpu, 0, None).sum(axis=2) / np.array(cluster.gpus)[:, None]
    _write_cpu(paths[1], rng, busy, offline, cluster, stamps, compress=compress)
    _write_memory(paths[2], rng, busy, offline, cluster, stamps, compress=compress)
    return paths


def percent_text(value: float) -> str:
    """Format a percentage as the original does: 100.0, 60.8, 99.366666667."""
    return repr(round(value, 9))


def _write_gpu(path: Path, gpu: Float64s, cluster: Machines, stamps: list[str], *, compress: bool) -> None:
    texts = {value: percent_text(value) for value in np.unique(gpu).tolist()} | {ABSENT: "NA"}
    with open_text(path, compress=compress) as stream:
        stream.write("time,machineId," + ",".join(f"gpu{number}_util" for number in range(GPUS_A_ROW)) + "\n")
        for machine, name in enumerate(cluster.names):
            stream.writelines(
                f"{stamp},{name},{','.join([texts[value] for value in row])},\n"
                for stamp, row in zip(stamps, gpu[machine].tolist(), strict=True)
            )


def _write_cpu(
    path: Path, rng: np.random.Generator, busy: Float64s, offline: Flags, cluster: Machines, stamps: list[str],
    *, compress: bool,
) -> None:  # fmt: skip
    with open_text(path, compress=compress) as stream:
        stream.write("time,machine_id,cpu_util\n")
        for machine, name in enumerate(cluster.names):
            noise = rng.normal(0, 0.4, busy.shape[1]) * (rng.random(busy.shape[1]) < 0.4)
            percent = np.round(np.clip(1.5 + 0.45 * busy[machine] + noise, 0.1, 100), 1)
            stream.writelines(
                f"{stamp},{name},{'NA' if gone else value}\n"
                for stamp, value, gone in zip(stamps, percent.tolist(), offline[machine].tolist(), strict=True)
            )


def _write_memory(
    path: Path, rng: np.random.Generator, busy: Float64s, offline: Flags, cluster: Machines, stamps: list[str],
    *, compress: bool,
) -> None:  # fmt: skip
    """Write total and free KiB; free memory changes mainly when jobs start and end."""
    with open_text(path, compress=compress) as stream:
        stream.write("time,machine_id,mem_total,mem_free\n")
        for machine, name in enumerate(cluster.names):
            total = 528_272_672.0 if cluster.gpus[machine] == 8 else 264_056_812.0
            used = 0.08 + 0.7 * np.round(busy[machine] / 10) / 10 + 0.02 * np.round(rng.normal(0, 0.6, busy.shape[1]))
            free = np.round(total * np.clip(1 - used, 0.02, 0.98) * 3) / 3
            stream.writelines(
                f"{stamp},{name},{'NA,NA' if gone else f'{total},{round(value, 4)}'}\n"
                for stamp, value, gone in zip(stamps, free.tolist(), offline[machine].tolist(), strict=True)
            )
