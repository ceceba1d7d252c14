"""What a whole log lacks is listed once for its cluster, with the fields of sacct that it would be in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.traces.conftest import HEADER, Lake
from traces import quality
from traces.quality import Missing

BARE = "JobID|State|Submit|Start|End\n"
RAN = "{}|COMPLETED|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00\n"
ALL = (
    "node names", "partitions", "nodes held", "CPUs", "GPUs", "memory", "time limits", "users", "eligible times",
    "reasons of waiting",
)  # fmt: skip


def missing(lake: Lake) -> dict[str, Missing]:
    placed = lake.table("placements")["cluster"].unique().to_list()
    return quality.missing_fields(lake.table("jobs"), lake.table("trace_files"), placed)


def test_a_bare_dump_lacks_all_that_is_not_needed_to_read_it(lake: Lake) -> None:
    lake.ingest(lake.put("dump.psv", BARE + RAN.format(1) + RAN.format(2)))
    fields = ("NodeList", "Partition", "NNodes", "AllocCPUS", "AllocTRES", "ReqMem", "TimelimitRaw", "User", "Eligible")
    assert missing(lake) == {"lab": Missing(ALL, (*fields, "Reason"))}


def test_what_one_job_has_is_not_missing(lake: Lake, sacct_row: Callable[..., str]) -> None:
    bare = sacct_row(JobID="7", Partition="", AllocCPUS="", AllocTRES="", ReqTRES="", TimelimitRaw="", NodeList="")
    lake.ingest(lake.put("dump.psv", f"{HEADER}\n{bare}\n{sacct_row()}\n"))
    assert missing(lake) == {"lab": Missing(("reasons of waiting",), ("Reason",))}


@pytest.mark.parametrize(
    ("blank", "what", "add"),
    [
        ({"NodeList": ""}, "node names", ("NodeList",)),
        ({"Partition": ""}, "partitions", ("Partition",)),
        ({"AllocCPUS": "", "AllocTRES": "gres/gpu=4", "ReqTRES": "gres/gpu=4"}, "CPUs", ("AllocCPUS", "AllocTRES")),
        ({"TimelimitRaw": ""}, "time limits", ("TimelimitRaw",)),
    ],
)
def test_each_field(
    lake: Lake, sacct_row: Callable[..., str], blank: dict[str, str], what: str, add: tuple[str]
) -> None:
    """A job that never ran holds 0 CPUs, which says nothing of the log."""
    never = {"State": "CANCELLED by 7", "Start": "None", "ElapsedRaw": "0"}
    rows = [sacct_row(JobID="7", **blank), sacct_row(JobID="8", **{**blank, **never, "AllocTRES": "", "NodeList": ""})]
    lake.ingest(lake.put("dump.psv", "\n".join([HEADER, *rows]) + "\n"))
    (found,) = missing(lake).values()
    assert (found.what, found.add) == ((what, "reasons of waiting"), (*add, "Reason"))


def test_a_log_that_sacct_did_not_print_names_no_field_of_it(lake: Lake) -> None:
    lake.ingest(
        lake.put("log.swf", "; UnixStartTime: 1400000000\n1 10 20 3600 64 -1 -1 128 7200 1024 1 7 2 5 1 3 -1 -1\n")
    )
    (found,) = missing(lake).values()
    assert "node names" in found.what and "CPUs" not in found.what and found.add == ()


def test_a_log_of_which_nothing_ran_lacks_no_node_names(lake: Lake) -> None:
    lake.ingest(lake.put("dump.psv", BARE + "1|PENDING|2024-05-01T10:00:00|Unknown|Unknown\n"))
    assert "node names" not in missing(lake)["lab"].what and "partitions" in missing(lake)["lab"].what
