"""Philly's defects in its own schema, one a row: what stands in the file, and what becomes of it.

Entries are made by hand after the README of msr-fiddle/philly-traces; names are invented.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

LIST = "machineId, number of GPUs, single GPU mem"
GPU = "time,machineId,gpu0_util,gpu1_util"


@dataclass(frozen=True)
class Row:
    """One defect: the record, the header of its file, and columns of the first row of a table (None: refused)."""

    format: str
    name: str
    header: str
    lines: str
    becomes: str
    table: str = "jobs"
    row: dict[str, Any] | None = field(default_factory=dict)


def _job(*attempts: tuple[str | None, str | None, int], **other: Any) -> str:
    runs = [
        {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": [f"gpu{n}" for n in range(gpus)]}]}
        for start, end, gpus in attempts
    ]
    plain = {"status": "Pass", "vc": "v", "jobid": "application_1_1", "attempts": runs}
    return json.dumps({**plain, "submitted_time": "2017-10-07 01:00:00", "user": "u", **other})


RUN = ("2017-10-07 01:10:00", "2017-10-07 02:10:00", 8)
ROWS = (
    Row("philly-jobs", "no attempt", "", _job(), "never ran: no start, no wait",
        row={"attempts": 0, "wait_s": None, "requested_gpus": None}),
    Row("philly-jobs", "times that are null or 'None'", "", _job(("None", None, 1)),
        "no start and no end: the attempt is kept, its wait is unknown",
        row={"start_utc": None, "wait_s": None, "attempts": 1}),
    Row("philly-jobs", "still running at the snapshot", "", _job(("2017-10-07 01:10:00", None, 1)),
        "RUNNING, whatever its status says", row={"state": "RUNNING", "end_utc": None, "run_s": None, "wait_s": 600}),
    Row("philly-jobs", "no count of requested GPUs", "", _job(RUN, ("2017-10-07 02:20:00", "2017-10-07 03:20:00", 1)),
        "GPUs of the first attempt are requested, those of the last allocated",
        row={"requested_gpus": 8, "allocated_gpus": 1, "attempts": 2, "gpu_time_s": 9 * 3600}),
    Row("philly-jobs", "over the clock change of 2017-11-05", "",
        _job(("2017-11-05 01:50:00", "2017-11-05 01:10:00", 1), submitted_time="2017-11-05 00:30:00"),
        "the order of events settles which of the two hours is meant", row={"run_s": 1200, "is_time_ambiguous": False}),
    Row("philly-jobs", "in the doubled hour", "",
        _job(("2017-11-05 01:10:00", "2017-11-05 05:00:00", 1), submitted_time="2017-11-05 00:30:00"),
        "both readings fit: the earlier, and flagged", row={"is_time_ambiguous": True}),
    Row("philly-jobs", "an end before its start", "", _job(("2017-10-07 02:00:00", "2017-10-07 01:00:00", 1)),
        "refused, with both times", row=None),
    Row("philly-jobs", "machines that are no list", "",
        _job(attempts=[{"start_time": None, "end_time": None, "detail": 5}]), "refused", row=None),
    Row("philly-jobs", "a time after 2106", "", _job(RUN, submitted_time="9999-12-31 23:59:59"), "refused", row=None),
    Row("philly-gpu-util", "NA and nothing", GPU, "2017-11-05 01:30:00 PDT,m29,NA,",
        "NA is a GPU that is offline: a sample without a value; nothing is no GPU",
        "gpu_utilization", {"gpu": 0, "utilization_percent": None}),
    Row("philly-gpu-util", "PDT and PST", GPU, "2017-11-05 01:30:00 PST,m29,3.5,4.5",
        "the suffix is the offset, also in the doubled hour", "gpu_utilization", {"utilization_percent": 3.5}),
    Row("philly-gpu-util", "another suffix", GPU, "2017-11-05 01:30:00 CET,m29,3.5,4.5", "refused", "", None),
    Row("philly-machines", "spaces after the commas", LIST, "m0,2, 12GB", "read without them",
        "nodes", {"node": "m0", "gpus": 2, "gpu_mem_gb": 12.0}),
)  # fmt: skip
