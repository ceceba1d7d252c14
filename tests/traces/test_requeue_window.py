"""How long after a job's end a record of its id is still taken for it: the same in one dump and across two."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from tests.traces.conftest import HEADER, Lake
from traces.schema import REQUEUE_WITHIN_S

END = datetime(2024, 5, 1, 11, 30)


@pytest.mark.parametrize("dumps", [1, 2])
@pytest.mark.parametrize(
    ("after_s", "user", "jobs"), [(0, "alice", 1), (1, "alice", 2), (-1, "alice", 1), (0, "bob", 2)]
)
def test_a_requeue_is_of_the_same_job_until_the_window_ends(
    lake: Lake, sacct_row: Callable[..., str], dumps: int, after_s: int, user: str, jobs: int
) -> None:
    again = END + timedelta(seconds=REQUEUE_WITHIN_S + after_s)
    submit, start, end = ((again + timedelta(hours=hours)).isoformat() for hours in range(3))
    first = sacct_row(State="NODE_FAIL", End=END.isoformat())
    second = sacct_row(User=user, Submit=submit, Eligible=submit, Start=start, End=end)
    texts = [[first, second]] if dumps == 1 else [[first], [second]]
    lake.ingest(*(lake.put(str(n), "\n".join([HEADER, *lines]) + "\n") for n, lines in enumerate(texts)))
    found = lake.rows("jobs")
    assert [job["attempts"] for job in found] == ([2] if jobs == 1 else [1, 1])
    assert len({job["job_key"] for job in found}) == jobs
