"""Small random records: what hypothesis draws and what the tests build from it."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.state import RecordedJobs, RecordedRules
from tests.twins.recorded import PlainRecordedJob

NODES = 6


@st.composite
def records(draw: st.DrawFn, most: int = 12) -> tuple[RecordedTrace, RecordedJobs]:
    """Up to `most` jobs of three users with starts that no scheduler need have made; limits near run times."""
    count = draw(st.integers(2, most))
    times = st.integers(0, 40).map(lambda k: 100 * k)
    rows = []
    for _ in range(count):
        submit = draw(times)
        wait = draw(st.sampled_from([0, 1, 50, 300, 900, 2000]))
        run = draw(st.sampled_from([1, 200, 600, 1500]))
        ran = draw(st.integers(0, 4)) > 0
        start = submit + wait if ran else NEVER
        end = submit + wait + (run if ran else 0)
        size, limit, user = draw(st.integers(1, 4)), draw(st.sampled_from([200, 600, 1500])), draw(st.integers(0, 2))
        rows.append((submit, start, end, size, limit, user, draw(st.sampled_from([0, 0, 500]))))
    rows.sort(key=lambda row: row[0])
    submit_s, start_s, end_s, size, limit_s, user, priority = np.array(rows, np.int64).T.copy()
    record = RecordedTrace(submit_s, start_s, end_s, size, limit_s, user, priority, [str(k) for k in range(count)])
    return record, jobs_of(record)


def jobs_of(record: RecordedTrace) -> RecordedJobs:
    """The kernel's jobs, one point of priority for a second waited."""
    return RecordedJobs(record.submit_s, record.size, record.limit_s, record.user, record.priority - record.submit_s)


rules = st.builds(
    RecordedRules,
    nodes=st.just(NODES),
    window_s=st.sampled_from([0, 700, 10**6]),
    stall_s=st.sampled_from([0, 300]),
    max_jobs=st.sampled_from([1, 2, NEVER]),
    max_nodes=st.sampled_from([3, NEVER]),
    overtaken=st.integers(0, 1),
    siblings=st.integers(0, 1),
    backfill=st.sampled_from([1, 1, 0]),
    depth=st.sampled_from([1, 3, NEVER, NEVER]),
    user_depth=st.sampled_from([1, NEVER, NEVER]),
    plan_s=st.sampled_from([0, 500, NEVER, NEVER]),
    order=st.just(0),
)


def twins(record: RecordedTrace, jobs: RecordedJobs) -> list[PlainRecordedJob]:
    """The same jobs for the slow twin."""
    columns = (jobs.submit_s, record.start_s, record.end_s, jobs.size, jobs.limit_s, jobs.user, jobs.key)
    return [PlainRecordedJob(row, *(int(column[row]) for column in columns)) for row in range(len(record))]
