"""Pollux: every round a genetic search allocates GPUs to elastic jobs to maximise the mean of their speedups.

Qiao et al., "Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning" (OSDI 2021), section 4, and
the simulator that its authors released (petuum/adaptdl, branch osdi21-artifact). Jobs that declare their work learn
their goodput from what they run, and choose their batch (`simulator.gpu.training`).

| rule | paper, as we recall it | released program | here |
|---|---|---|---|
| decisions | every 60 s | the same | `round_s` |
| fitness | power mean of the speedups, exponent -1 | of speedup x nodes / GPUs + 0.001 | as the program |
| speedup | goodput over that on a fair share of the GPUs | the fair share is on one node | as the program |
| second objective | none | speedups per GPU of the nodes in use | `objectives` 1 or 2 |
| a move (age T, R restarts of d s) | speedup x (T - R d) / (T + d) | a start too | as the program |
| most GPUs | twice the most that the job has run on | also what its largest batch keeps busy | as the program |
| interference | at most one job of several nodes on a node | the same | `avoid`; 0: any number |
| search | 100 generations of 100 states, kept over rounds | NSGA-II; the first front is kept | `generations` |
| too many GPUs on a node | random jobs lose them | jobs with the most GPU time lose them | as the program |
| first start | | charged like a restart | `first_start` |
| epochs | | end on whole seconds | `whole_seconds` |
| fit of the step times | by L-BFGS-B | scipy's tolerance; 1e-5 in Sia's program | `tolerance`, 0: scipy's |

Test: `tests/simulator/gpu/test_pollux_references.py` compares completion times with those that the authors published.

Our reading: the GPUs of all types count as alike, because Pollux knows no types. A gang on several types is as fast as
its slowest GPU. Pollux is for elastic jobs. The search leaves out rigid jobs and models split into pipeline stages.
These start in order of arrival as soon as the GPUs without rigid jobs hold them. A job that does not fit lets others
pass, and none is stopped. Elastic jobs share the rest. A job that arrives at the second of a decision starts without
penalty. The goodput of an elastic job that does not declare its work is that of its profile on the reference type, and
is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simulator.gpu.algorithms.allocation_search import GENERATIONS, AllocationProblem, search_allocations
from simulator.gpu.algorithms.placement import packed, take
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.profiles.scaling import goodput
from simulator.gpu.round_policy import NOBODY, GpuJob, GpuMachine, Placed, View
from simulator.gpu.scheduler import RoundScheduler, check_choice, check_range, check_seconds
from traces.arrays import Float64s, Int64s


class Pollux:
    """Allocates all GPUs without rigid jobs to the elastic jobs every round by `algorithms.allocation_search`."""

    pause_s: float | None = None
    guests = NOBODY

    def __init__(
        self,
        round_s: float = 60.0,
        objectives: int = 1,
        avoid: bool = True,
        generations: int = GENERATIONS,
        first_start: bool = False,
        whole_seconds: bool = False,
        tolerance: float = 0.0,
        seed: int = 0,
    ) -> None:
        check_seconds("pollux", round_s=round_s)
        check_choice("pollux", 1, 2, objectives=objectives)
        check_range("pollux", 1, generations=generations)
        self.round_s, self.generations = round_s, generations
        self.avoid, self.by_utility = avoid, objectives == 2
        self.first_start, self.whole_seconds = first_start, whole_seconds
        self.fit_tolerance = tolerance or None
        self.settled = False  # whether no job is elastic: the decision remains valid until a job arrives or ends
        self._random = np.random.default_rng(seed)
        self._states: Int64s = np.empty((0, 0, 0), dtype=np.int64)  # to begin the next search with
        self._searched: list[int] = []  # their jobs
        self._expected: dict[int, _Expectation] = {}
        self._most_given: dict[int, int] = {}  # job that does not declare its work -> the most GPUs that it has had

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.round_policy.RoundPolicy`."""
        there = {job.number for job in view.jobs}
        self._expected = {number: found for number, found in self._expected.items() if number in there}
        self._most_given = {number: gpus for number, gpus in self._most_given.items() if number in there}
        free = view.machine.gpus.copy()
        elastic = [job for job in view.jobs if _is_resized(job)]
        wanted = _rigid([job for job in view.jobs if not _is_resized(job)], free)
        self.settled = not elastic
        if not elastic or not free.any():
            self._searched = []
            return wanted
        elastic.sort(key=lambda job: (job.gpu_s, job.submit_s, job.number))
        problem = self._problem(elastic, free, view)
        best, self._states = search_allocations(problem, self._first(elastic, problem), self._random, self.generations)
        self._searched = [job.number for job in elastic]
        for job, row in zip(elastic, best, strict=True):
            if row.any():
                wanted[job.number] = {int(node): int(row[node]) for node in np.flatnonzero(row)}
                self._most_given[job.number] = max(self._most_given.get(job.number, 0), int(row.sum()))
        return wanted

    def _problem(self, jobs: Sequence[GpuJob], free: Int64s, view: View) -> AllocationProblem:
        """Return what is searched: the allocation of `free` GPUs (nodes,) to `jobs` in order of precedence."""
        most = np.array([self._most(job, int(free.sum())) for job in jobs])
        fair = -(-int(free.sum()) // len(jobs))
        speedup = np.zeros((len(jobs), len(free) + 1, int(most.max()) + 1))
        current = np.zeros((len(jobs), len(free)), dtype=np.int64)
        for at, job in enumerate(jobs):
            speedup[at, :, : most[at] + 1] = self._speedups(job, int(most[at]), fair, view.machine)
            for node, gpus in job.placed.items():
                current[at, node] = gpus
        age_s = view.now_s - np.array([job.submit_s for job in jobs])
        restart_s = np.array([job.restart_cost_s for job in jobs])
        lost_s = restart_s * np.array([job.restarts for job in jobs])
        factor = np.where(age_s > 0.0, np.maximum(0.0, age_s - lost_s) / np.maximum(1.0, age_s + restart_s), 1.0)
        least = np.minimum(np.array([job.least for job in jobs]), most)
        return AllocationProblem(free, current, speedup, factor, least, most, self.avoid, self.by_utility)

    def _most(self, job: GpuJob, free: int) -> int:
        """Return the most GPUs of a job: twice the most that it has run on."""
        if job.training is None:
            seen, able = self._most_given.get(job.number, 0), free
        else:
            seen = max(job.training.most_replicas_seen(kind) for kind in job.training.profile.steps)
            able = job.training.most_gpus
        return max(1, min(max(2 * seen, job.least), able, free, job.most or free))

    def _speedups(self, job: GpuJob, most: int, fair: int, machine: GpuMachine) -> Float64s:
        """Return the job's speedup by number of nodes and of GPUs, (nodes + 1, most + 1), relative to `fair` GPUs.

        A job that has not learned anything expects that of its GPUs.
        """
        training = job.training
        if training is None:
            table = _known(job.model, machine.reference, job.gpus, most, len(machine.gpus))
            own = float(fair) if job.model is None else goodput(job.model, machine.reference, fair, 1, job.gpus)
            return table / own
        if training.gradient is None:
            return np.broadcast_to(np.arange(most + 1.0) / fair, (len(machine.gpus) + 1, most + 1))
        state = (training.gradient, training.fits, most)
        found = self._expected.get(job.number)
        if found is None or found.state != state:
            nodes, gpus = _pairs(len(machine.gpus), most)
            table = np.zeros((len(machine.gpus) + 1, most + 1))
            table[nodes, gpus] = training.expected(training.gpu_type, nodes.astype(float), gpus.astype(float))
            found = self._expected[job.number] = _Expectation(state, table, {})
        if fair not in found.fair:
            share = np.array([float(min(fair, training.most_gpus))])
            goodputs = training.expected(training.gpu_type, np.ones(1), share)
            assert goodputs is not None
            found.fair[fair] = float(goodputs[0]) or float(found.goodput.max()) or 1.0
        return found.goodput / found.fair[fair]

    def _first(self, jobs: Sequence[GpuJob], problem: AllocationProblem) -> Int64s:
        """Return the first population: the states of the last search for the present jobs, else the present state."""
        at = {number: position for position, number in enumerate(self._searched)}
        if not at:
            return problem.current[None]
        known = [position for position, job in enumerate(jobs) if job.number in at]
        states = np.zeros((len(self._states), *problem.current.shape), dtype=np.int64)
        states[:, known] = self._states[:, [at[jobs[position].number] for position in known]]
        return states


class _Expectation(NamedTuple):
    """What a job expected when its training was in a `state`."""

    state: tuple[tuple[float, float], int, int]
    goodput: Float64s  # (nodes + 1, most GPUs + 1)
    fair: dict[int, float]  # GPUs of a fair share -> goodput on it


def _is_resized(job: GpuJob) -> bool:
    """Whether the number of GPUs of a job may change: it is elastic, and each of its GPUs holds the whole model."""
    return job.elastic and (job.model is None or all(steps.stages == 1 for steps in job.model.steps.values()))


def _rigid(jobs: Sequence[GpuJob], free: Int64s) -> dict[int, Placed]:
    """Keep and start rigid jobs, in order of arrival, and take their GPUs from `free` (nodes,)."""
    placed = {job.number: job.placed for job in jobs if job.placed}
    for own in placed.values():
        take(free, own)
    for job in jobs:
        if job.number not in placed and (found := packed(free, job.gpus)) is not None:
            placed[job.number] = found
            take(free, found)
    return placed


def _pairs(nodes: int, most: int) -> tuple[Int64s, Int64s]:
    """Return every number of nodes up to `nodes`, and of at least as many GPUs up to `most`, as two arrays."""
    on, gpus = np.meshgrid(np.arange(1, nodes + 1), np.arange(1, most + 1), indexing="ij")
    return on[on <= gpus], gpus[on <= gpus]


@lru_cache(maxsize=10_000)
def _known(model: Profile | None, gpu_type: str, own: int, most: int, nodes: int) -> Float64s:
    """Return the goodput of a job of `own` GPUs by number of nodes and of GPUs, (nodes + 1, most + 1)."""
    table = np.zeros((nodes + 1, most + 1))
    for on, gpus in zip(*(each.tolist() for each in _pairs(nodes, most)), strict=True):
        table[on, gpus] = float(gpus) if model is None else goodput(model, gpu_type, gpus, on, own)
    return table


SCHEDULER = RoundScheduler(Pollux)
