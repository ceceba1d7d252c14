"""Sia: every round an integer programme chooses a GPU type and a number of GPUs per job to maximise goodput.

Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling" (SOSP 2023). The
parameters are those of the released solver: p = -0.5, lambda = 1.1, costs of two decimals, rounds of 60 s there (here
`round_s`).

**Jobs that declare their work**, with gradient statistics in their profile, are unknown at first. An elastic job starts
on one GPU (`least`) of any type. It learns a throughput model for each type that it runs on. It may have at most twice
the most GPUs that it has run on, up to `most` and to what its largest batch keeps busy. On a type where it has not run,
it expects the goodput of one where it has, times the ratio of one GPU's measured throughputs. With `project` 0, one GPU
there is as good as the least of the others. It chooses its batch (`simulator.gpu.training`), unless the user fixed it.

**Other jobs** are known from their profiles. Elastic ones may have from one GPU to `most_times` times their request, at
most twice their current number. Rigid jobs have the requested number, on any type.

Our reading: nodes of one type with different numbers of GPUs are separate pools. A job that is still paying for its
last restart is pinned. A job whose configuration does not fit on the intended number of nodes is spread over more. As
in the released solver, the restart factor applies to running jobs: a stopped job competes at its full value. So a
waiting job replaces a running job wherever that gains, and ties favour the running job (`algorithms.assignment`). The
factor uses the restart of the model's profile; the job pays its own.

**Hybrid-parallel jobs**: the layers of a model may be divided between the `stages` GPUs of a replica. Such a job has
whole replicas, at least one, and does not run on types where it was not measured.

The released simulator charges a first start like a restart (`first_start` 1). It packs all jobs anew each round and
charges no move between nodes of a type (`free_moves` 1). It ends epochs on whole seconds (`whole_seconds` 1).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simulator.gpu.algorithms.assignment import ConfigurationChoice, assign
from simulator.gpu.algorithms.configurations import Configuration, Pool, configurations, moving, restart_factor, values
from simulator.gpu.algorithms.placement import packed, take
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.profiles.scaling import goodput
from simulator.gpu.round_policy import NOBODY, GpuJob, GpuMachine, Placed, View
from simulator.gpu.scheduler import RoundScheduler, check_range, check_seconds
from simulator.gpu.training import Training
from traces.arrays import Float64s, Int64s
from traces.errors import InputError


class Sia:
    """Chooses the GPU type and number of each job every round by an integer programme that maximises goodput.

    The programme of a round may take `limit_s` seconds; then its best answer so far is used.
    """

    pause_s: float | None = None
    guests = NOBODY

    def __init__(
        self,
        round_s: float = 360.0,
        most_times: int = 4,
        limit_s: float = 5.0,
        project: bool = True,
        first_start: bool = False,
        free_moves: bool = False,
        whole_seconds: bool = False,
    ) -> None:
        check_seconds("sia", round_s=round_s)
        check_range("sia", 1, most_times=most_times)
        self.round_s, self.most_times, self.limit_s = round_s, most_times, limit_s
        self.project, self.first_start = project, first_start
        self.free_moves, self.whole_seconds = free_moves, whole_seconds
        self.timed_out = 0  # rounds in which the solver timed out
        self._pools: dict[str, Pool] = {}
        self._nodes: dict[str, Int64s] = {}
        self._given: dict[int, Configuration] = {}
        self._expected: dict[int, _Expectation] = {}

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.round_policy.RoundPolicy`."""
        if not self._pools:
            self._learn(view.machine)
        there = {job.number for job in view.jobs}
        self._given = {number: given for number, given in self._given.items() if number in there}
        self._expected = {number: row for number, row in self._expected.items() if number in there}
        capacity = {key: int(view.machine.gpus[nodes].sum()) for key, nodes in self._nodes.items()}
        wanted: dict[int, tuple[GpuJob, Configuration]] = {}
        for job in view.jobs:
            if job.placed and job.resume_s > view.now_s:
                pinned = self._given[job.number]
                wanted[job.number] = (job, pinned)
                capacity[pinned.gpu_type] -= pinned.gpus
        jobs = [job for job in view.jobs if job.number not in wanted]
        choices = [self._choice(job, view) for job in jobs]
        assignment = assign(choices, capacity, self.limit_s)
        self.timed_out += assignment.timed_out
        for job, choice, index in zip(jobs, choices, assignment.chosen, strict=True):
            if index is not None:
                wanted[job.number] = (job, choice.allowed[index])
        return self._place(wanted, view.machine.gpus.copy())

    def said(self) -> list[str]:
        """Return the assumptions and time-outs of the run as sentences for the user."""
        lines = ["sia: jobs that declare their work learn their goodput; others have that of the model's profile"]
        if self.timed_out:
            lines.append(f"sia: in {self.timed_out} rounds the solver timed out and its best answer so far was used")
        return lines

    def _learn(self, machine: GpuMachine) -> None:
        for kind, gpus in sorted({(kind, int(gpus)) for kind, gpus in zip(machine.types, machine.gpus, strict=True)}):
            nodes = np.array([n for n, own in enumerate(machine.types) if own == kind and machine.gpus[n] == gpus])
            self._pools[f"{kind}/{gpus}"] = Pool(f"{kind}/{gpus}", len(nodes), gpus)
            self._nodes[f"{kind}/{gpus}"] = nodes

    def _choice(self, job: GpuJob, view: View) -> ConfigurationChoice:
        current = self._given.get(job.number) if job.placed else None
        if job.training is not None and job.elastic:
            allowed, row = self._learned(job, job.training)
        else:
            allowed, row = self._known(job, current)
        position = allowed.index(current) if current is not None and current in allowed else None
        restart_s = job.restart_cost_s if job.model is None else job.model.restart_s
        factor = restart_factor(view.now_s - job.submit_s, job.restarts, restart_s)
        return ConfigurationChoice(allowed, moving(row, position, factor), position)

    def _learned(self, job: GpuJob, training: Training) -> tuple[list[Configuration], Float64s]:
        """Return the configurations of a job that learns, and their values by what it expects."""
        before = self._expected.get(job.number)
        state = (training.gradient, training.fits)
        if before is None or before.state != state:
            rows = _expected(training, list(self._pools.values()), job.least, job.most, self.project)
            if not rows[0]:
                raise self._too_wide(job.number, job.least)
            before = self._expected[job.number] = _Expectation(state, *rows)
        return before.allowed, before.values

    def _known(self, job: GpuJob, current: Configuration | None) -> tuple[list[Configuration], Float64s]:
        """Return the configurations of a job whose profile is known, and their values."""
        most = self.most_times * job.gpus if job.elastic else job.gpus
        held = current.gpus if current is not None else job.gpus
        rows = _row(tuple(self._pools.values()), job.model, job.gpus, job.elastic, min(most, max(1, 2 * held)))
        if rows is None:
            raise self._too_wide(job.number, job.gpus)
        return rows

    def _too_wide(self, number: int, gpus: int) -> InputError:
        most = max(pool.nodes * pool.gpus_per_node for pool in self._pools.values())
        return InputError(
            f"sia: job {number} asks for {gpus} GPUs, but no kind of node has more than {most} in total: "
            "leave the job out, or use another scheduler"
        )

    def _place(self, wanted: dict[int, tuple[GpuJob, Configuration]], free: Int64s) -> dict[int, Placed]:
        """Place the jobs: one with an unchanged configuration keeps its GPUs; others by size, packed in their pool."""
        placed: dict[int, Placed] = {}
        for number, (job, given) in wanted.items():
            if job.placed and self._given.get(number) == given and not self.free_moves:
                placed[number] = job.placed
                take(free, job.placed)
        for number, (_, given) in sorted(wanted.items(), key=lambda item: (-item[1][1].gpus, item[0])):
            if number in placed:
                continue
            nodes = self._nodes[given.gpu_type]
            found = packed(free[nodes], given.gpus)
            if found is not None:
                placed[number] = {int(nodes[position]): gpus for position, gpus in found.items()}
                take(free, placed[number])
        self._given = {number: wanted[number][1] for number in placed}
        return placed


class _Expectation(NamedTuple):
    """What a job expected when its training was in a `state`."""

    state: tuple[tuple[float, float] | None, int]
    allowed: list[Configuration]
    values: Float64s


def _expected(
    training: Training, pools: list[Pool], least: int, most: int | None, project: bool
) -> tuple[list[Configuration], Float64s]:
    """Return the configurations from `least` to `most` GPUs in which the job expects progress, and their values.

    They hold whole replicas, at most twice the most that it has run anywhere. Where it has no expectation, and if it
    expects no progress anywhere, it may have `least` GPUs, rounded up to a replica.
    """
    twice = 2 * max(training.most_replicas_seen(pool.kind) for pool in pools)
    stages = {pool: training.profile.stages(pool.kind) for pool in pools}
    lowest = {pool: -(-least // each) * each for pool, each in stages.items() if each}
    highest = {
        pool: min(max(lowest[pool], twice * stages[pool]), training.most_gpus, most or training.most_gpus)
        for pool in lowest
    }
    known = [pool for pool in pools if training.gradient is not None and pool.kind in training.models]
    allowed: list[Configuration] = []
    goodputs: list[float] = []
    fitting = [pool for pool, own in lowest.items() if own <= min(pool.nodes * pool.gpus_per_node, most or own)]
    learned: set[Pool] = set()
    for pool in fitting if known else []:
        like = pool if pool in known else known[0] if project else None
        if like is None:
            continue
        given = [given for given in configurations([pool]) if lowest[pool] <= given.gpus <= highest[pool]]
        given = [configuration for configuration in given if configuration.gpus % stages[pool] == 0]
        if not given:
            continue
        gpus = np.array([float(configuration.gpus // stages[pool] * stages[like]) for configuration in given])
        nodes = np.ceil(gpus / like.gpus_per_node)
        found = training.expected(like.kind, nodes, gpus)
        assert found is not None
        learned.add(pool)
        ratio = training.alone(pool.kind) / training.alone(like.kind)
        allowed.extend(configuration for configuration, each in zip(given, found, strict=True) if each > 0.0)
        goodputs.extend(float(each) * ratio for each in found if each > 0.0)
    row = values(lambda given: goodputs[allowed.index(given)], allowed) if allowed else np.empty(0)
    unknown = [pool for pool in fitting if pool not in learned or not allowed]
    first = [Configuration(pool.gpu_type, -(-lowest[pool] // pool.gpus_per_node), lowest[pool]) for pool in unknown]
    return [*allowed, *first], np.concatenate([row, np.full(len(first), float(min(lowest.values(), default=least)))])


@lru_cache(maxsize=10_000)
def _row(
    pools: tuple[Pool, ...], model: Profile | None, own: int, elastic: bool, most: int
) -> tuple[list[Configuration], Float64s] | None:
    """Return the allowed configurations of a job of `own` GPUs and their values; None if there is none.

    An elastic job may have any configuration of at most `most` GPUs, other jobs `own` GPUs in each pool; all hold whole
    replicas.
    """
    if elastic:
        allowed = [given for given in configurations(pools) if given.gpus <= most]
    else:
        fitting = [pool for pool in pools if own <= pool.nodes * pool.gpus_per_node]
        allowed = [Configuration(pool.gpu_type, -(-own // pool.gpus_per_node), own) for pool in fitting]
    if model is not None:
        stages = {pool.gpu_type: model.stages(pool.kind) for pool in pools}
        allowed = [given for given in allowed if stages[given.gpu_type] and given.gpus % stages[given.gpu_type] == 0]
    return (allowed, values(lambda given: _goodput(model, own, given), allowed)) if allowed else None


def _goodput(model: Profile | None, own: int, given: Configuration) -> float:
    if model is None:
        return float(given.gpus)
    return goodput(model, given.gpu_type.split("/")[0], given.gpus, given.nodes, own)


SCHEDULER = RoundScheduler(Sia)
