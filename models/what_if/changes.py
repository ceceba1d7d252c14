"""Changes of a GPU cluster and its jobs in an operator's notation: `nodes=+10%`, `limit=24h`, `type=A100`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs
from simulator.gpu.profiles import draw
from simulator.gpu.profiles.scaling import goodput
from simulator.gpu.registry import SCHEDULERS, parameters, parsed
from simulator.gpu.run import fits
from simulator.gpu.scheduler import Setting
from traces.counted import counted
from traces.errors import InputError
from traces.files.queue_tree import DeclaredQueue
from traces.slurm.text import SPAN_FORMS, parse_span_s

AS_IT_IS = "as it is"
KNOWN = "nodes, type, limit, arrivals, mix, elastic, quota.GROUP, SCHEDULER.PARAMETER"


@dataclass(frozen=True)
class GpuScene:
    """The input of a replay: cluster, jobs, quotas, a scheduler's parameters, and the assumptions so far."""

    cluster: GpuCluster
    jobs: GpuJobs
    quotas: dict[str, int] = field(default_factory=dict)
    queues: tuple[DeclaredQueue, ...] = ()  # of YARN's schedulers
    parameters: dict[str, dict[str, Setting]] = field(default_factory=dict)  # scheduler -> its parameters
    only: str | None = None  # the one scheduler that a change concerns
    assumptions: tuple[str, ...] = ()
    seed: int = 0


def parameters_of(scene: GpuScene, name: str) -> dict[str, Setting]:
    """Return the parameters of the scheduler `name` in the scene; a scheduler that draws gets the scene's seed."""
    own = scene.parameters.get(name, {})
    return {"seed": float(scene.seed), **own} if "seed" in parameters(name) else own


def with_settings(scene: GpuScene, settings: Sequence[str], schedulers: Sequence[str]) -> GpuScene:
    """Set parameters of schedulers (`tiresias.promote=8`) for every replay of the scene. Raises InputError."""
    for setting in settings:
        if setting.partition("=")[0].partition(".")[0].strip() not in SCHEDULERS:
            raise InputError(f"setting {setting[:80]!r} is not understood; write SCHEDULER.PARAMETER=VALUE")
        scene = replace(changed(scene, setting, schedulers), only=None)
    return scene


def is_drawn(scene: GpuScene) -> bool:
    """Whether models of its jobs are drawn, so that another seed makes another scene."""
    return bool(scene.jobs.drawn_models.any())


def _check_profiles(scene: GpuScene, change: str) -> None:
    if (scene.jobs.model < 0).all():
        raise InputError(f"change {change!r} needs profiles of models: give --profiles published or a file")


def redrawn(scene: GpuScene, seed: int) -> GpuScene:
    """Draw the models and the elastic jobs of the scene with another seed: generated, by `profiles.draw`."""
    mix = draw.equal_mix(scene.jobs.profiles, scene.cluster.types)
    return replace(scene, jobs=scene.jobs.drawn(seed, mix), seed=seed)


def changed(scene: GpuScene, change: str, schedulers: Sequence[str]) -> GpuScene:
    """Return the scene with one thing changed. Raises InputError for an unknown or infeasible change."""
    name, found, value = change.partition("=")
    name, value = name.strip(), value.strip()
    if not found or not value:
        raise InputError(f"change {change[:80]!r} is not understood; write NAME=VALUE, with one of {KNOWN}")
    first, _dot, second = name.partition(".")
    if first == "quota" and second:
        return _quota(scene, second, value, change)
    if first in SCHEDULERS and second:
        if first not in schedulers:
            raise InputError(f"change {change!r} concerns {first}, which is not among {', '.join(schedulers)}")
        own = {**scene.parameters.get(first, {}), second: parsed(first, second, value)}
        return replace(scene, parameters={**scene.parameters, first: own}, only=first)
    if name not in _CHANGES:
        raise InputError(f"unknown change {name[:80]!r}: known are {KNOWN}")
    return _CHANGES[name](scene, value, change)


def _nodes(scene: GpuScene, value: str, change: str) -> GpuScene:
    """Change the number of nodes; additional nodes are copies of the present ones, from the first on."""
    now = scene.cluster.nodes
    wanted = round(relative(now, value, change))
    if wanted < 1:
        raise InputError(f"change {change!r} leaves {counted(wanted, 'node')} of {now}; at least 1 is needed")
    kept = np.arange(wanted) % now
    cluster = scene.cluster
    smaller = GpuCluster(
        cluster.capacity[kept],
        tuple(cluster.types[at] for at in kept),
        np.where(np.arange(wanted) < now, cluster.racks[kept], cluster.racks.max() + 1 + (np.arange(wanted) // 16)),
        cluster.reference,
        tuple(cluster.labels[at] for at in kept) if cluster.labels else (),
    )
    if cluster.reference not in smaller.types:
        raise InputError(f"change {change!r} leaves no node of {cluster.reference}, the type of the recorded run times")
    return _feasible(replace(scene, cluster=smaller), change)


def _type(scene: GpuScene, value: str, change: str) -> GpuScene:
    """Change the GPU types: `A100` for all nodes, `T4:12,A100:4` for the first twelve and the next four.

    Run times stay as recorded if nodes of the present reference type are left; else they are scaled to the type named
    first.
    """
    _check_profiles(scene, change)
    types = _types(scene, value, change)
    before = scene.cluster.reference
    after = before if before in types else types[0]
    cluster = scene.cluster._replace(types=types, reference=after, labels=())
    if after == before:
        line = f"{change}: run times are those of {before}, on other types at the speed of the drawn models"
        return _feasible(replace(scene, cluster=cluster, assumptions=(*scene.assumptions, line)), change)
    speed = np.array([goodput(one, after, 1, 1, 1) / goodput(one, before, 1, 1, 1) for one in scene.jobs.profiles])
    jobs = replace(scene.jobs, run_s=scene.jobs.run_s / speed[scene.jobs.model])
    line = f"{change}: run times are scaled by the profiles of the drawn models on one GPU"
    return _feasible(replace(scene, cluster=cluster, jobs=jobs, assumptions=(*scene.assumptions, line)), change)


def _types(scene: GpuScene, value: str, change: str) -> tuple[str, ...]:
    """Return the GPU type of each node. Raises InputError for an unmeasured type, or if the counts do not add up."""
    nodes, counts = scene.cluster.nodes, dict[str, int]()
    known = dict.fromkeys(kind for profile in scene.jobs.profiles for kind in profile.steps)
    for part in value.split(","):
        name, colon, count = (word.strip() for word in part.partition(":"))
        if name not in known:
            raise InputError(f"change {change!r}: unknown GPU type {name!r}: measured are {', '.join(known)}")
        if name in counts:
            raise InputError(f"change {change!r}: GPU type {name} is named twice")
        if colon and re.fullmatch(r"[1-9]\d{0,8}", count) is None:
            raise InputError(
                f"change {change!r}: {count!r} nodes of {name}; write a number from 1 on, as in T4:12,A100:4"
            )
        counts[name] = int(count) if colon else nodes
    if sum(counts.values()) != nodes:
        raise InputError(f"change {change!r} names {counted(sum(counts.values()), 'node')}: the cluster has {nodes}")
    return tuple(name for name, count in counts.items() for _ in range(count))


def _limit(scene: GpuScene, value: str, change: str) -> GpuScene:
    """Cut jobs at that run time; the work beyond it is lost."""
    seconds = limit_of(value, change)
    cut = int((scene.jobs.run_s > seconds).sum())
    jobs = replace(scene.jobs, run_s=np.minimum(scene.jobs.run_s, seconds))
    line = f"{change}: {counted(cut, 'job', 'is')} cut and not submitted again"
    return replace(scene, jobs=jobs, assumptions=(*scene.assumptions, line))


def limit_of(value: str, change: str) -> float:
    """Return the seconds of the value of `limit=`; infinite for UNLIMITED. Raises InputError."""
    try:
        seconds = parse_span_s(value)
    except ValueError as error:
        raise InputError(f"change {change!r}: {error}") from None
    if seconds is None:
        return float("inf")
    if seconds <= 0.0:
        raise InputError(f"change {change!r}: a limit of 0 s; {SPAN_FORMS}")
    return seconds


def _arrivals(scene: GpuScene, value: str, change: str) -> GpuScene:
    """Change the arrival rate: divide the time between submissions by the factor."""
    rate = arrival_rate(value, change)
    first = scene.jobs.submit_s.min()
    return replace(scene, jobs=replace(scene.jobs, submit_s=first + (scene.jobs.submit_s - first) / rate))


def arrival_rate(value: str, change: str) -> float:
    """Return the factor on the arrival rate. Raises InputError for one that is not allowed."""
    rate = relative(1.0, value, change)
    if not 0.01 <= rate <= 100.0:
        raise InputError(f"change {change!r}: {rate:g} times the arrival rate; allowed is 0.01 to 100")
    return rate


def _mix(scene: GpuScene, value: str, change: str) -> GpuScene:
    """Draw the models from another mix: `mix=bert:0.5,yolov3:0.5`; with `mix=none` no job has a profile."""
    if value == "none":
        bare = replace(
            scene.jobs, model=np.full(len(scene.jobs), -1), elastic=np.zeros(len(scene.jobs), dtype=np.bool_)
        )
        line = f"{change}: no job has a profile: place and spread cost nothing, a restart 30 s, and none is elastic"
        return replace(scene, jobs=bare, assumptions=(*scene.assumptions, line))
    _check_profiles(scene, change)
    mix = {}
    for part in value.split(","):
        model, _colon, share = part.partition(":")
        mix[model.strip()] = finite(share, change)
    return replace(scene, jobs=scene.jobs.drawn(scene.seed, mix))


def _elastic(scene: GpuScene, value: str, change: str) -> GpuScene:
    """Change the share of gangs that may run on more GPUs than they request: `elastic=0.5`."""
    _check_profiles(scene, change)
    drawn = draw.elastic(scene.jobs.number, scene.jobs.gpus, finite(value, change), scene.seed)
    elastic = np.where(scene.jobs.drawn_models, drawn, scene.jobs.elastic)  # a named model keeps its elasticity
    return replace(scene, jobs=replace(scene.jobs, elastic=elastic))


def _quota(scene: GpuScene, group: str, value: str, change: str) -> GpuScene:
    if group not in scene.jobs.groups:
        raise InputError(f"change {change!r}: unknown group {group!r}: known are {', '.join(scene.jobs.groups)}")
    if scene.queues:
        raise InputError(f"change {change!r}: quotas do not count where queues are declared: change their capacities")
    quotas = {**scene.quotas, group: round(finite(value, change))}
    if sum(quotas.values()) > scene.cluster.gpus or min(quotas.values()) < 0:
        raise InputError(
            f"change {change!r}: the quotas add up to {sum(quotas.values())} GPUs, the cluster has {scene.cluster.gpus}"
        )
    return replace(scene, quotas=quotas)


_CHANGES: dict[str, Callable[[GpuScene, str, str], GpuScene]] = {
    "nodes": _nodes,
    "type": _type,
    "limit": _limit,
    "arrivals": _arrivals,
    "mix": _mix,
    "elastic": _elastic,
}


def _feasible(scene: GpuScene, change: str) -> GpuScene:
    outside = np.flatnonzero(~fits(scene.cluster, scene.jobs))
    if len(outside):
        raise InputError(
            f"change {change!r} is not feasible: {counted(len(outside), 'job', 'fits')} nowhere, the largest of "
            f"{counted(scene.jobs.gpus[outside].max(), 'GPU')} on a cluster of {scene.cluster.gpus}"
        )
    if scene.queues:
        from simulator.gpu.yarn_queues import above_most

        outside = np.flatnonzero(above_most(scene.cluster, scene.jobs, scene.queues))
        if len(outside):
            raise InputError(
                f"change {change!r} is not feasible: {counted(len(outside), 'job', 'asks')} for more than the most "
                "capacity of a queue"
            )
    return scene


def relative(now: float, value: str, change: str) -> float:
    """Apply `+10%`, `-5`, `110%` or a plain number to `now`. Raises InputError for anything else."""
    match = re.fullmatch(r"([+-]?)(\d+(?:\.\d+)?)(%?)", value)
    if match is None:
        raise InputError(f"change {change!r}: {value!r} is not understood; write +10%, -5 or a number")
    amount = float(match[2]) * (now / 100.0 if match[3] else 1.0)
    return {"+": now + amount, "-": now - amount, "": amount}[match[1]]


def finite(value: str, change: str) -> float:
    """Parse a number. Raises InputError for other text, and for an infinite one."""
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not np.isfinite(number):
        raise InputError(f"change {change!r}: {value[:40]!r} is not a number")
    return number
