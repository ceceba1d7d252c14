"""What of a job and of its runs was known before an instant, case by case."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from models.study.as_of import attempts_as_of, jobs_as_of

NOW_S = 1000
Row = tuple[Any, ...]


def read(table: str, columns: str, row: Row, selected: str) -> list[Row]:
    """What `selected` makes of a table of that one row; times in epoch s, null for none."""
    times = ("submit_utc", "start_utc", "end_utc")
    values = [f"make_timestamp({one}::BIGINT * 1000000)" if name in times else one
              for name, one in zip(columns.split(), ["?"] * len(row), strict=True)]  # fmt: skip
    shown = [f"epoch({name})::BIGINT" if name in times else name for name in columns.split()]
    with duckdb.connect() as connection:
        named = ", ".join(f"{value} AS {name}" for value, name in zip(values, columns.split(), strict=True))
        connection.execute(f"CREATE TABLE {table} AS SELECT {named}", list(row))
        is_open = ["is_open"] if table == "jobs" else []
        return connection.execute(f"SELECT {', '.join([*shown, *is_open])} FROM ({selected})").fetchall()


JOB = "submit_utc start_utc end_utc run_s allocated_nodes state state_is_inferred"


@pytest.mark.parametrize(
    ("job", "known"),
    [
        ((10, 20, 999, 979, 4, "COMPLETED", False), (20, 999, 979, 4, False)),
        ((10, 20, 1000, 980, 4, "COMPLETED", False), (20, None, None, 4, True)),  # it ended then: it ran before
        ((10, 999, 1500, 501, 4, "COMPLETED", False), (999, None, None, 4, True)),
        ((10, 1000, 1500, 500, 4, "COMPLETED", False), (None, None, None, None, True)),  # it waited before
        ((999, 1200, 1500, 300, 4, "COMPLETED", False), (None, None, None, None, True)),
        ((1000, 1200, 1500, 300, 4, "COMPLETED", False), None),
        ((10, None, 900, 0, 0, "CANCELLED", False), (None, 900, 0, None, False)),  # in the queue
        ((10, None, 1000, 0, 0, "CANCELLED", False), (None, None, None, None, True)),
        # a log without ends: the start and the run time say them
        ((10, 20, None, 979, 4, "COMPLETED", False), (20, None, 979, 4, False)),
        ((10, 20, None, 980, 4, "COMPLETED", False), (20, None, None, 4, True)),
        # still running when the log was taken: the run time is no end, but where the state is inferred
        ((10, 20, None, 500, 4, "RUNNING", False), (20, None, None, 4, True)),
        ((10, 20, None, 500, 4, "SUSPENDED", False), (20, None, None, 4, True)),
        ((10, 20, None, 500, 4, "RUNNING", True), (20, None, 500, 4, False)),
        ((10, None, None, None, 0, "PENDING", False), (None, None, None, None, True)),
        # over, and nothing says when: since its start
        ((10, None, None, None, 0, "CANCELLED", False), (None, None, None, None, False)),
        ((10, 999, None, None, 4, "FAILED", False), (999, None, None, 4, False)),
        ((10, 1000, None, None, 4, "FAILED", False), (None, None, None, None, True)),
    ],
)
def test_what_was_known_of_a_job(job: Row, known: Row | None) -> None:
    found = read("jobs", JOB, job, jobs_as_of(NOW_S))
    if known is None:
        assert found == []
    else:
        start_s, end_s, run_s, nodes, is_open = known
        assert found == [(job[0], start_s, end_s, run_s, nodes, *job[5:], is_open)]


RUN = "attempt submit_utc start_utc end_utc run_s nodes gpus state"


@pytest.mark.parametrize(
    ("run", "known"),
    [
        ((1, 10, 20, 999, 979, 4, 16, "NODE_FAIL"), (20, 999, 979, 4, 16, "NODE_FAIL")),
        ((1, 10, 20, 1000, 980, 4, 16, "NODE_FAIL"), (20, None, None, 4, 16, "RUNNING")),
        ((1, 10, 20, None, 979, 4, 16, "REQUEUED"), (20, None, 979, 4, 16, "REQUEUED")),
        ((1, 10, 20, None, 980, 4, 16, "REQUEUED"), (20, None, None, 4, 16, "RUNNING")),
        ((1, 10, 999, 1500, 501, 4, 16, "COMPLETED"), (999, None, None, 4, 16, "RUNNING")),
        ((1, 999, 1000, 1500, 500, 4, 16, "COMPLETED"), (None, None, None, None, None, "RUNNING")),
        ((1, 1000, 1200, 1500, 300, 4, 16, "COMPLETED"), None),  # it was queued again then
        ((0, 1000, 1200, 1500, 300, 4, 16, "COMPLETED"), (None, None, None, None, None, "RUNNING")),
    ],
)
def test_what_was_known_of_a_run(run: Row, known: Row | None) -> None:
    found = read("attempts", RUN, run, attempts_as_of(NOW_S))
    assert found == ([] if known is None else [(*run[:2], *known)])


def test_without_an_instant_all_is_known() -> None:
    job = (5000, 6000, 7000, 1000, 4, "COMPLETED", False)
    assert read("jobs", JOB, job, jobs_as_of(None)) == [(*job, False)]
    run = (1, 5000, 6000, 7000, 1000, 4, 16, "COMPLETED")
    assert read("attempts", RUN, run, attempts_as_of(None)) == [run]
