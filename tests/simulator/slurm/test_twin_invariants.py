"""What holds in every run of the twin, whatever the world."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from simulator.slurm import world as w
from tests.simulator.slurm.worlds import worlds
from tests.twins.slurm import clock as reference


@given(world=worlds())
@settings(max_examples=60, deadline=None)
def test_every_run_is_a_possible_one(world: w.SlurmWorld) -> None:
    result = reference.simulate(world)
    jobs, settings_ = world.jobs, world.settings
    started = np.flatnonzero(result.start_s != w.NONE)
    assert (result.start_s[started] >= jobs.submit_s[started]).all()
    assert (result.start_s[started] >= jobs.eligible_s[started]).all()
    once = started[result.restarts[started] == 0]  # a cancellation that comes while a job runs means nothing to it
    assert (result.start_s[once] <= jobs.cancel_s[once]).all()
    longest = jobs.limit_s[started] + settings_.over_time_limit_s + settings_.kill_wait_s
    assert (result.end_s[started] - result.start_s[started] <= np.minimum(jobs.run_s[started], longest)).all()
    use = np.zeros((len(world.nodes), 3), np.int64)
    events = []
    for job in started.tolist():
        held = result.placement[result.placement_first[job] : result.placement_first[job + 1]]
        partition = jobs.partition[job]
        assert len(held) == jobs.nodes[job] and world.partitions.nodes[partition, held].all()
        share = [jobs.cpus_per_node[job], jobs.memory_per_node_mb[job], jobs.gpus_per_node[job]]
        events += [(result.end_s[job], 0, held, share), (result.start_s[job], 1, held, share)]
    room = np.stack([world.nodes.cpus, world.nodes.memory_mb, world.nodes.gpus], axis=1)
    # Ends before starts within a second; a job of no length holds nothing in between.
    for _, begins, held, share in sorted((event for event in events), key=lambda event: (int(event[0]), event[1])):
        use[held] += np.array(share) * (1 if begins else -1)
        assert (use <= room).all()
