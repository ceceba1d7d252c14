"""The example of docs/calibration.md, by the compiled forms."""

from __future__ import annotations

import numpy as np

from simulator.recorded.free import free_starts
from simulator.recorded.record import NEVER, RecordedTrace, events
from simulator.recorded.single import single_starts
from simulator.recorded.state import RecordedRules
from tests.simulator.recorded.cases import jobs_of
from traces.units import HOUR_S


def test_each_form_says_when_j_starts_as_the_example_does() -> None:
    hours = {
        "submit_s": (0, 0.5, 1, 7 / 6),
        "start_s": (0, 5, 2 + 1 / 6, 2 + 1 / 6),
        "end_s": (2, 7, 3, 3),
        "limit_s": (4, 3, 1, 1),
    }
    times = {name: np.rint(HOUR_S * np.array(column)).astype(np.int64) for name, column in hours.items()}
    size, user, none = np.array([2, 2, 1, 1]), np.arange(4), np.zeros(4, np.int64)
    record = RecordedTrace(**times, size=size, user=user, priority=none, job_key=["A", "B", "J", "K"])
    jobs, rules = jobs_of(record), RecordedRules(2, 0, 0, NEVER, NEVER, 1, 1)
    only_j = np.array([False, False, True, False])
    informed, forked = (
        single_starts(record, events(record), jobs, rules, only_j, forked=forked)[2] for forked in (False, True)
    )
    frozen = free_starts(record, jobs, rules, np.array([2], np.int64))[2]
    # A pass comes a second after what it waits for, in a replay at once.
    assert (informed, forked, frozen) == (record.start_s[3] + 1, 5 * HOUR_S + 2, 4 * HOUR_S)
