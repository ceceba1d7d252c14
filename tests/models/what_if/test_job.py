"""One job with another limit or size, in a record that the inferred rules made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from models.what_if.job import JobChange, what_if_job
from models.what_if.recorded.outcomes import outcome_of
from simulator.recorded.record import NEVER
from tests.models.what_if.recorded import cases
from traces.units import DAY_S, HOUR_S

SMALLER = [JobChange("one node", nodes=1), JobChange("a short limit", limit_s=600)]


def test_the_base_is_that_of_whatif_and_a_smaller_job_starts_sooner() -> None:
    record, scene = cases.record(), cases.scene()
    daily, wait_s = outcome_of(scene), record.start_s - record.submit_s
    rows = np.flatnonzero(scene.judged & (wait_s > HOUR_S) & (record.size == 4))[:4]
    for row in rows:
        found = what_if_job(record, record.job_key[row], None, SMALLER)
        assert found is not None and not found["is_held"] and not found["said"]
        assert found["replayed_wait_s"] == wait_s[row] == daily.wait_s[row] and found["distance_s"] == 0
        assert found["changes"][0]["wait_s"] < wait_s[row] and found["changes"][0]["nodes"] == 1
        later = what_if_job(record, record.job_key[row], int(record.submit_s[row]) + 60, [])
        assert later is not None and later["recorded_wait_s"] == wait_s[row] - 60


def test_a_held_job_starts_when_it_did() -> None:
    record = cases.record()
    row = int(np.flatnonzero((record.start_s == record.submit_s) & (record.size == 1))[300])
    start_s, end_s = record.start_s.copy(), record.end_s.copy()
    start_s[row], end_s[row] = start_s[row] + 2 * DAY_S, end_s[row] + 2 * DAY_S
    found = what_if_job(replace(record, start_s=start_s, end_s=end_s), record.job_key[row], None, SMALLER)
    assert found is not None and found["is_held"] and found["replayed_wait_s"] == 2 * DAY_S
    assert {change["difference_s"] for change in found["changes"]} == {0}


def test_a_job_that_left_the_queue_is_simulated_to_its_limit() -> None:
    record = cases.record()
    row = 500
    assert record.start_s[row] == NEVER
    found = what_if_job(record, record.job_key[row], None)
    assert found is not None and found["recorded_wait_s"] is None and found["replayed_wait_s"] is not None
    last = record.take(np.arange(len(record)) <= row)
    assert what_if_job(last, record.job_key[row], None) is None
