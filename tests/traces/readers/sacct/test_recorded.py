"""A dump recorded from a real Slurm 22.05.8 (`python -m tests.live.record`): what its scheduler did, read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

DUMP = Path(__file__).resolve().parents[3] / "fixtures" / "traces" / "slurm-22.05-recorded.psv.gz"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    folder = DataFolder(tmp_path_factory.mktemp("recorded"))
    (result,) = ingest([DUMP], cluster=ClusterSettings("live"), data=folder)
    warehouse.build(folder)
    assert (result.rows, result.allocations, result.steps, result.duplicates, result.rejects) == (37, 19, 18, 0, 0)
    return folder


@pytest.mark.parametrize(
    ("name", "state", "gpus", "attempts"),
    [
        ("a|b", "COMPLETED", 1, 1),  # sacct does not escape the delimiter
        ("<script>alert(1)</script>", "COMPLETED", 1, 1),
        ("naïve 工作", "COMPLETED", 1, 1),
        ("wide", "COMPLETED", 8, 1),
        ("too long", "TIMEOUT", 1, 1),
        ("again", "COMPLETED", 1, 2),  # requeued once: two records of one JobIDRaw
        ("killed", "CANCELLED", 1, 1),  # in the second it started: zero elapsed, and yet it ran
        ("never ran", "CANCELLED", 0, 0),  # Start = End with no node assigned
    ],
)
def test_each_kind_of_job(data: DataFolder, name: str, state: str, gpus: int, attempts: int) -> None:
    (row,) = warehouse.read(data, "SELECT * FROM jobs WHERE job_name = ?", (name,)).iter_rows(named=True)
    assert (row["state"], row["allocated_gpus"] or 0, row["attempts"]) == (state, gpus, attempts)
    assert (row["start_utc"] is None) == (attempts == 0)


def test_tasks_of_an_array_share_its_id(data: DataFolder) -> None:
    tasks = warehouse.read(data, "SELECT array_job_id, array_task_id FROM jobs WHERE job_name = 'array' ORDER BY 2")
    assert tasks["array_task_id"].to_list() == [0, 1, 2, 3] and tasks["array_job_id"].n_unique() == 1


def test_a_chained_job_waits_from_when_it_became_eligible(data: DataFolder) -> None:
    second = warehouse.read(
        data, "SELECT wait_s, eligible_wait_s FROM jobs WHERE job_name = 'chain' ORDER BY job_id_raw"
    ).row(1, named=True)
    assert second["eligible_wait_s"] < second["wait_s"]
