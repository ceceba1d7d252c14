"""Pending tasks of an array, which share a record, one by one, and all tasks in the order of their numbers."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from simulator.array_tasks import MOST_TASKS, one_row_a_task, sort_tasks


def jobs(*rows: dict[str, Any]) -> pl.DataFrame:
    none = {
        "submit_s": 0,
        "job_id": "1",
        "job_id_raw": None,
        "array_job_id": None,
        "array_task_id": None,
        "job_key": "",
    }
    types = dict.fromkeys(("submit_s", "job_id_raw", "array_job_id", "array_task_id"), pl.Int64)
    return pl.DataFrame([none | row for row in rows], schema_overrides=types)


@pytest.mark.parametrize(
    ("job_id", "tasks"),
    [
        ("12", [None]),
        ("12_[3]", [3]),
        ("12_[0-2,7,9-10%2]", [0, 1, 2, 7, 9, 10]),
        ("12_[0-5,...", [None]),
        ("12_[5-3]", [None]),
        (f"12_[0-{MOST_TASKS}]", [None]),
        (f"12_[1-{'9' * 30}]", [None]),
    ],
)
def test_pending_tasks_get_a_row_each(job_id: str, tasks: list[int | None]) -> None:
    rows = one_row_a_task(jobs({"job_id": job_id, "submit_s": 5}, {"job_id": "13_4", "array_task_id": 4}))
    assert rows["array_task_id"].to_list() == [*tasks, 4]
    assert rows["submit_s"].to_list() == [5] * len(tasks) + [0]
    assert rows.columns == jobs({}).columns


def test_tasks_come_in_the_order_of_their_numbers() -> None:
    """Slurm gives the last task of an array the id of the array itself, and the others the ids that follow."""
    tasks = [
        {"job_id": f"20_{task}", "job_id_raw": raw, "array_job_id": 20, "array_task_id": task, "job_key": f"20_{task}"}
        for task, raw in ((10, 20), (2, 22), (1, 21))
    ]
    others = [{"job_id": f"{raw}", "job_id_raw": raw, "job_key": f"{raw}"} for raw in (23, 19)]
    early = {"submit_s": -1, "job_id": "99", "job_id_raw": 99, "job_key": "99"}
    assert sort_tasks(jobs(*others, *tasks, early))["job_id"].to_list() == ["99", "19", "20_1", "20_2", "20_10", "23"]
