"""Which job an id means: arrays, requeued ids, steps, several clusters, hostile text, and who is near."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.traces.conftest import HEADER, Lake
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.find_job import find_job, find_user
from traces.ingest import ingest
from traces.store import contents, warehouse

Row = Callable[..., str]
HOSTILE = "o'neil\x1b[31m; DROP TABLE jobs"


@pytest.fixture
def lake(lake: Lake, sacct_row: Row) -> Lake:
    rows = [
        sacct_row(JobID="7", JobIDRaw="7", User="anna"),
        sacct_row(JobID="20_1", JobIDRaw="21", User="anna"),
        sacct_row(JobID="20_2", JobIDRaw="20", User="bob"),
        sacct_row(JobID="30_5", JobIDRaw="30", User=HOSTILE),
    ]
    lake.ingest(lake.put("a", "\n".join([HEADER, *rows]) + "\n"))
    warehouse.build(lake.data)
    return lake


@pytest.mark.parametrize(
    ("wanted", "key"), [("7", "7"), ("20_1", "21"), ("21", "21"), ("20_2", "20"), ("30", "30"), ("7.batch", "7")]
)
def test_an_id_as_printed_of_an_array_raw_or_of_a_step(lake: Lake, wanted: str, key: str) -> None:
    assert find_job(lake.data, wanted).job_key == key


def test_an_array_of_several_tasks_is_refused_by_name(lake: Lake) -> None:
    """20 is the raw id of its second task as well: the array is meant."""
    with pytest.raises(InputError, match="array of 2 tasks: name one of them: '20_1', '20_2'"):
        find_job(lake.data, "20")


def test_what_there_is_not_names_what_is_near(lake: Lake) -> None:
    with pytest.raises(InputError, match=r"no job '20_3' .*did you mean '20_1' or '20_2'"):
        find_job(lake.data, "20_3")
    with pytest.raises(InputError, match="no job of user 'ana': did you mean 'anna'"):
        find_user(lake.data, "ana")
    with pytest.raises(InputError, match=r"unknown cluster 'nope': .* holds lab"):
        find_job(lake.data, "7", "nope")


def test_what_is_not_near_is_not_named(lake: Lake) -> None:
    with pytest.raises(InputError, match=r"no job 'abc' in \S+$"):
        find_job(lake.data, "abc")
    with pytest.raises(InputError, match=r"no job of user 'nobody'$"):
        find_user(lake.data, "nobody")


def test_hostile_names_are_found_and_never_run_or_printed_raw(lake: Lake) -> None:
    assert find_user(lake.data, HOSTILE) == "lab"
    with pytest.raises(InputError) as refused:
        find_user(lake.data, HOSTILE.replace("TABLE", "TABLES"))
    assert "\x1b" not in str(refused.value) and "o'neil\\x1b" in str(refused.value)
    with pytest.raises(InputError, match=r"^no job of user \"' OR 1=1 --\"$"):
        find_user(lake.data, "' OR 1=1 --")
    assert contents.cluster_names(lake.data) == ["lab"]


def test_an_id_of_two_clusters_asks_which(lake: Lake, sacct_row: Row) -> None:
    log = lake.put("b", f"{HEADER}\n{sacct_row(JobID='7', JobIDRaw='7', User='anna')}\n")
    ingest([log], cluster=ClusterSettings("other"), data=lake.data)
    warehouse.build(lake.data)
    with pytest.raises(InputError, match="job '7' is in the clusters lab, other: give --cluster"):
        find_job(lake.data, "7")
    with pytest.raises(InputError, match="user 'anna' has jobs in lab, other: give --cluster"):
        find_user(lake.data, "anna")
    assert find_job(lake.data, "7", "other").cluster == find_user(lake.data, "anna", "other") == "other"


def test_of_an_id_used_again_the_newest_is_meant_and_the_older_named(lake: Lake, sacct_row: Row) -> None:
    first = sacct_row(JobID="9", JobIDRaw="9", Submit="2024-01-01T00:00:00", Start="2024-01-01T00:00:01")
    again = sacct_row(JobID="9", JobIDRaw="9", Submit="2026-01-01T00:00:00", Start="2026-01-01T00:00:01")
    lake.ingest(lake.put("c", "\n".join([HEADER, first, again]) + "\n"))
    warehouse.build(lake.data)
    rows = warehouse.read(lake.data, "SELECT job_key FROM jobs WHERE job_id = '9' ORDER BY submit_utc")[
        "job_key"
    ].to_list()
    assert len(rows) == 2
    found = find_job(lake.data, "9")
    assert (found.job_key, found.older) == (rows[1], (rows[0],))
