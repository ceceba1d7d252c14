"""Every feature against its twin on snapshots of replays, and on what the pair table holds of them."""

from __future__ import annotations

import numpy as np
import pytest

from features.observe import FEATURES, RECENT, observe
from models.provisioning.pairs.injected import build_pairs
from simulator.cluster import plain
from tests.features.observe_twin import observe_twin
from tests.models.provisioning.pairs.test_injected import CAPACITY, LIMIT_S, NODES, replay, snapshot, trace, with_jobs


@pytest.mark.parametrize("scheduler", ["mirage", "easy"])
def test_features_of_a_replay_are_those_of_the_twin(scheduler: str) -> None:
    base = trace(8, jobs=400)
    submits = base.submit_s[150] + np.arange(4) * 5 * 3600 + 11
    table = build_pairs(
        plain(base, scheduler=scheduler, capacity=CAPACITY), submits_s=submits, pair_nodes=NODES, limit_s=LIMIT_S
    )
    for pair in range(len(table)):
        workload, (first,) = with_jobs(base, int(table.submit_s[pair]))
        starts = replay(workload, scheduler)
        ends = starts + np.minimum(workload.run_s, workload.limit_s)
        for row in (table.offset[pair] + 3, table.offset[pair] + 24, table.last[pair]):
            seen = snapshot(workload, starts, ends, int(table.decision_s[row]), first, scheduler)
            assert len(seen.recent_wait_s) == len(seen.ended_use) == RECENT == 100
            twin = observe_twin(seen)
            for name, held, found in zip(FEATURES, table.observations[row], observe(seen), strict=True):
                assert found == pytest.approx(twin[name], rel=1e-5, abs=1e-5), name
                assert held == pytest.approx(twin[name], rel=1e-5, abs=1e-5), name
