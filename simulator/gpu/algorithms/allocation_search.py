"""Pollux's genetic search over allocation matrices: the GPUs of each job on each node.

Qiao et al., "Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning" (OSDI 2021), section 4.2, and
the program that its authors released (`pollux.py` of petuum/adaptdl, branch osdi21-artifact). The program searches by
NSGA-II (`fronts`). A state is a matrix (jobs, nodes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import njit
from simulator.gpu.algorithms.fronts import survivors
from traces.arrays import Float64s, Int64s

POPULATION = 100
GENERATIONS = 100
_CROSSED = 0.9  # share of the pairs of parents that exchange jobs
_RESET, _THINNED, _CLEARED = 0.1, 0.1, 0.1  # shares of: jobs reset, jobs thinned, and elements of these set to 0
_TINY = 1e-3  # speedup of a job without GPUs
_TRIES = 10  # states made for each new one that is wanted, at most
_START, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # of the hash FNV-1


class AllocationProblem(NamedTuple):
    """What is allocated. Jobs are in order of precedence: earlier ones keep their GPUs where a state has too many."""

    gpus: Int64s  # (nodes,) GPUs of each node
    current: Int64s  # (jobs, nodes) the present allocation
    speedup: Float64s  # (jobs, nodes + 1, most GPUs + 1) by number of nodes and of GPUs, relative to a fair share
    factor: Float64s  # (jobs,) of the speedup on any allocation other than the present one
    least: Int64s  # (jobs,) least GPUs of a job that has any
    most: Int64s  # (jobs,) most GPUs
    avoids: bool = True  # at most one job that runs on several nodes on each node
    by_utility: bool = True  # whether the use of the GPUs is a second objective


def search_allocations(
    problem: AllocationProblem, states: Int64s, random: np.random.Generator, generations: int = GENERATIONS
) -> tuple[Int64s, Int64s]:
    """Return the best state found, (jobs, nodes), and the states with which to begin the next search.

    `states` (n, jobs, nodes), n from 1 to POPULATION, are the first population. The next search begins with the first
    front, and without a second objective with all survivors.
    """
    population, values, first = _evolve(problem, states.astype(np.int64), random, generations)
    return population[values[:first, 0].argmin()], population[:first] if problem.by_utility else population


@njit
def _evolve(
    problem: AllocationProblem, states: Int64s, random: np.random.Generator, generations: int
) -> tuple[Int64s, Float64s, int]:
    """Return the last population, (n, jobs, nodes), best front first, its values, and the size of that front."""
    count, jobs, nodes = states.shape
    population = np.zeros((2 * POPULATION, jobs, nodes), dtype=np.int64)
    values, codes = np.zeros((2 * POPULATION, 2)), np.zeros(2 * POPULATION, dtype=np.uint64)
    found = 0
    for index in range(count):
        population[found] = states[index]
        repair(problem, population[found], random)
        found += _is_new(population, codes, found)
    for index in range(found):
        evaluate(problem, population[index], values[index])
    kept, distance, first = survivors(values[:found], POPULATION)
    for _ in range(generations):
        population[: len(kept)], values[: len(kept)], codes[: len(kept)] = population[kept], values[kept], codes[kept]
        found = _breed(problem, population, values, codes, distance, random)
        for index in range(len(kept), found):
            evaluate(problem, population[index], values[index])
        kept, distance, first = survivors(values[:found], POPULATION)
    return population[kept], values[kept], first


@njit
def _is_new(population: Int64s, codes: NDArray[np.uint64], index: int) -> bool:
    """Whether no state before `index` equals that at `index`, by a hash of 64 bits."""
    code = _START
    for part in population[index].flat:
        code = (code * _PRIME) ^ np.uint64(part)
    codes[index] = code
    return not (codes[:index] == code).any()


@njit
def _breed(
    problem: AllocationProblem,
    population: Int64s,
    values: Float64s,
    codes: NDArray[np.uint64],
    distance: Float64s,
    random: np.random.Generator,
) -> int:
    """Append up to POPULATION new states; return the number of all states.

    The first len(distance) states are the parents. Two parents exchange the jobs before a random one.
    """
    parents, jobs = len(distance), population.shape[1]
    found, last = parents, parents + POPULATION
    for _ in range(_TRIES * POPULATION // 2):
        pair = (_winner(values, distance, random), _winner(values, distance, random))
        point = int(random.random() * jobs) if random.random() < _CROSSED else 0
        for child in range(2):
            if found == last:
                return found
            population[found, :point] = population[pair[1 - child], :point]
            population[found, point:] = population[pair[child], point:]
            mutate(problem, population[found], random)
            repair(problem, population[found], random)
            found += _is_new(population, codes, found)
    return found


@njit
def _winner(values: Float64s, distance: Float64s, random: np.random.Generator) -> int:
    """Return the one of two random states that dominates the other, else the one that is less crowded."""
    one, other = int(random.random() * len(distance)), int(random.random() * len(distance))
    is_better = values[one, 0] < values[other, 0] or values[one, 1] < values[other, 1]
    is_worse = values[one, 0] > values[other, 0] or values[one, 1] > values[other, 1]
    if is_better == is_worse:
        return one if distance[one] >= distance[other] else other
    return one if is_better else other


@njit
def mutate(problem: AllocationProblem, state: Int64s, random: np.random.Generator) -> None:
    """Change a state (jobs, nodes) at random.

    Some jobs return to their present allocation, others lose some of their nodes. Where a node has free GPUs, jobs get
    more of its GPUs, above all those that run on it.
    """
    jobs, nodes = state.shape
    for job in range(jobs):
        if random.random() < _RESET:
            state[job] = problem.current[job]
        if random.random() < _THINNED:
            for node in range(nodes):
                if random.random() < _CLEARED:
                    state[job, node] = 0
    for node in range(nodes):
        held, on_it = 0, 0
        for job in range(jobs):
            held += state[job, node]
            on_it += state[job, node] > 0
        if held >= problem.gpus[node]:
            continue
        for job in range(jobs):
            chance = 1.0 / jobs
            if state[job, node] > 0:
                chance += (1.0 - chance) / on_it
            if random.random() < chance:
                choices = problem.gpus[node] + 1 - state[job, node]
                state[job, node] += int(random.random() * choices)


@njit
def repair(problem: AllocationProblem, state: Int64s, random: np.random.Generator) -> None:
    """Change a state (jobs, nodes) until it keeps all limits.

    Of the jobs that run on several nodes, a node keeps the first. A job over its `most` GPUs loses some on random
    nodes. An overbooked node serves the first jobs. A job below its `least` GPUs gets none.
    """
    jobs, nodes = state.shape
    is_taken, order = np.zeros(nodes, dtype=np.bool_), np.arange(nodes)
    for job in range(jobs):
        on = 0
        for node in range(nodes):
            on += state[job, node] > 0
        if problem.avoids and on > 1:
            for node in range(nodes):
                if state[job, node] > 0:
                    if is_taken[node]:
                        state[job, node] = 0
                    is_taken[node] = True
        if state[job].sum() > problem.most[job]:
            left = problem.most[job]
            for at in range(nodes):
                other = at + int(random.random() * (nodes - at))
                order[at], order[other] = order[other], order[at]
                state[job, order[at]] = min(state[job, order[at]], left)
                left -= state[job, order[at]]
    for node in range(nodes):
        left = problem.gpus[node]
        for job in range(jobs):
            state[job, node] = min(state[job, node], left)
            left -= state[job, node]
    for job in range(jobs):
        if state[job].sum() < problem.least[job]:
            state[job] = 0


@njit
def evaluate(problem: AllocationProblem, state: Int64s, values: Float64s) -> None:
    """Set the objectives of a state (jobs, nodes), both to be minimised, in `values` (2,).

    The first is minus the power mean of the speedups, with exponent -1. Each speedup is multiplied by the nodes per GPU
    of the cluster, as in the released program. The second is minus the sum of the speedups over the GPUs of the nodes
    in use, or 0.
    """
    jobs, nodes = state.shape
    share = nodes / max(1, problem.gpus.sum())
    inverse, total, used = 0.0, 0.0, 0
    for job in range(jobs):
        on, gpus, is_moved = 0, 0, False
        for node in range(nodes):
            on += state[job, node] > 0
            gpus += state[job, node]
            is_moved = is_moved or state[job, node] != problem.current[job, node]
        speedup = problem.speedup[job, on, gpus]
        total += speedup
        inverse += 1.0 / (speedup * share * (problem.factor[job] if is_moved else 1.0) + _TINY)
    for node in range(nodes):
        for job in range(jobs):
            if state[job, node] > 0:
                used += problem.gpus[node]
                break
    values[0] = -jobs / inverse
    values[1] = -total / max(1, used) if problem.by_utility else 0.0
