"""Looking ahead finds the last job of a group in closed form; here is the loop that it stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simulator.slurm import world as w
from simulator.slurm.compiled.ahead import last_awaited
from simulator.slurm.compiled.slots import KNOWN, READY
from simulator.slurm.compiled.state import EARLY, ON_NODES, RUNNING_ROWS, USABLE
from simulator.slurm.inputs.prepare import prepared

NODES, JOBS = 12, 40


def last_of_group(ends: list[int], touching: list[bool], enough: int) -> int:
    """Step 4.d word for word: the last job removed of the first group by which `enough` jobs, in order, have ended."""
    window, origin, i, last = 30, -1, 0, -1
    while i < enough:
        while i < len(ends):
            i += 1
            if not touching[i - 1]:
                continue
            last = i - 1
            if origin < 0:
                origin = (ends[last] // 30 + 1) * 30
            if i < len(ends) and ends[i] > origin + window:
                break
        window *= 2
        while i < len(ends) and ends[i] > origin + window:
            window *= 2
    return last


def holders(rng: np.random.Generator, running: int, whole: bool) -> NDArray[np.bool_]:
    """Which running job holds which node, shape (running, NODES): at least one does; if `whole`, a node has one job."""
    holds: NDArray[np.bool_] = rng.random((running, NODES)) < rng.choice([0.05, 0.1, 0.3])
    row, node = rng.integers(running), rng.integers(NODES)
    holds[row, node] = True
    if whole:
        kept = rng.integers(0, running, NODES)
        kept[node] = row
        holds &= np.arange(running)[:, None] == kept
    return holds


@pytest.mark.parametrize("whole", [False, True])
@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_last_of_a_group_is_found_without_making_groups(whole: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = np.ones(JOBS, np.int64)
    world = w.flat_world(w.plain_jobs(0 * one, one, one, one), NODES, w.SlurmSettings())
    parts = replace(world.partitions, exclusive=np.full(1, whole))
    run, state, _ = prepared(replace(world, partitions=parts))
    assert run.knobs.whole_nodes == whole
    scratch, running = run.scratch, int(rng.integers(1, JOBS + 1))
    ends = np.sort((1000 + rng.exponential(1, running) * rng.choice([20, 300, 5000])).astype(np.int64))
    holds = holders(rng, running, whole)
    bits = 1 << np.arange(NODES)
    state.scalars[RUNNING_ROWS] = running
    state.planned[:running, 0], state.planned[:running, 2] = ends, np.arange(running)
    state.held[:running, 0] = holds @ bits
    # Each node that is held comes to hold the share with the end of one of its jobs.
    held = np.flatnonzero(holds.any(axis=0))
    ready = np.array([1 + rng.choice(np.flatnonzero(holds[:, n])) for n in held])
    usable = np.union1d(rng.choice(held, rng.integers(1, len(held) + 1), replace=False), rng.integers(NODES, size=3))
    order = np.argsort(ready, kind="stable")
    scratch.ready[0, held], scratch.ready_order[0, : len(held)] = ready, held[order]
    scratch.words[USABLE, 0], scratch.words[EARLY, 0] = bits[usable].sum(), bits[held].sum()
    both = np.intersect1d(usable, held)
    # What is known: rows of State.planned where nodes are taken whole, else nodes in the order of `ready_order`.
    scratch.slots[KNOWN], scratch.slots[READY], scratch.stamp[ON_NODES] = running if whole else len(held), len(both), 1
    wanted = int(rng.integers(1, len(both) + 1))
    enough = int(np.sort(scratch.ready[0, both])[wanted - 1])
    holds_usable = [bool(row.any()) for row in holds[:, usable]]
    expected = last_of_group(ends.tolist(), holds_usable, enough)
    assert last_awaited(run, state, 0, wanted) == expected
    assert last_awaited(run, state, 0, wanted) == expected  # and again, from memory
