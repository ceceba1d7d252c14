"""Give each job the profile of its model, drawn where the model is not named, and list the assumptions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs
from simulator.gpu.profiles import draw
from simulator.gpu.profiles.profile import Profile
from traces.counted import counted
from traces.errors import InputError

NO_PROFILES = (
    "no profiles: each job runs as long as recorded, on any GPUs and any nodes; with --profiles, GPU types, spreading, "
    "packing and growing change how long"
)


def profiled(
    jobs: GpuJobs, known: tuple[Profile, ...], cluster: GpuCluster, seed: int, is_strict: bool
) -> tuple[GpuJobs, list[str]]:
    """Return the jobs with models, and the assumptions as sentences. Without profiles jobs run as long as recorded.

    A job whose model is not named draws one of those measured on all GPU types of the cluster. Raises InputError with
    `is_strict` for a GPU type or a batch on which a model was not measured.
    """
    if not known:
        return jobs, [NO_PROFILES]
    mix = draw.equal_mix(known, cluster.types)
    jobs = replace(jobs, profiles=known).drawn(seed, mix)
    drawn = int(jobs.drawn_models.sum())
    said = []
    if drawn == len(jobs):
        said.append(f"the log names no models: each job draws one of {', '.join(mix)}, seed {seed} (generated)")
    elif drawn:
        said.append(
            f"{drawn:,} of {counted(len(jobs), 'job')} name no model and draw one of {', '.join(mix)}, seed {seed} "
            "(generated)"
        )
    unmeasured = _unmeasured(jobs, cluster)
    if unmeasured and is_strict:
        raise InputError(f"{unmeasured[0]}: measure it, or omit --strict")
    return jobs, said + unmeasured


def _unmeasured(jobs: GpuJobs, cluster: GpuCluster) -> list[str]:
    """Name the GPU types and batches on which a model of the jobs was not measured, and what counts instead."""
    said = []
    for index in np.unique(jobs.model):
        profile = jobs.profiles[index]
        missing = [kind for kind in dict.fromkeys(cluster.types) if kind not in profile.steps]
        if missing:
            as_type = profile.nearest_type(missing[0])
            said.append(f"{profile.model} was not measured on {', '.join(missing)} and runs there as on {as_type}")
        if jobs.batch is None:
            continue
        own = (jobs.model == index) & ~np.isnan(jobs.batch)
        a_gpu = (jobs.batch / jobs.gpus)[own]
        batches = [steps.points[:, 2] for steps in profile.steps.values()]
        least, most = min(own.min() for own in batches), max(own.max() for own in batches)
        outside = int(((a_gpu < least) | (a_gpu > most)).sum())
        if outside:
            said.append(
                f"{profile.model} was measured at {least:g} to {most:g} samples a GPU, and "
                f"{counted(outside, 'job', 'asks')} for others and runs as at the nearest"
            )
    return said
