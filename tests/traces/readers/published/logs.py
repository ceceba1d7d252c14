"""Rows of published job logs, one an oddity: what stands in the file, and what becomes of it.

The first rows of Helios and Acme are those that their READMEs print; all others are made by hand after the schema, with
invented names. No file here is a part of a published trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
SEREN = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time"
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
    "fail_time,stop_time,duration,queue,gpu_time"
)
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
GRAHAM = (
    "job_unique_id,cluster_id,submit_time,partition_id_x,account_id,req_cpus,req_mem_total,req_tres,alloc_nodes,state,"
    "priority_x,eligible_time,start_time,elapsed_time,end_time,time_limit,req_mem_per_cpu,time_limit_sec,poll_time,"
    "poll_wait_sec,submit_wait_sec,eligible_wait_sec,run_time_sec"
)
DERIVED = "timestamp,duration,num_gpus,gpu_time,cluster"
SWF = "; Version: 2.2\n; UnixStartTime: 1400000000\n; MaxNodes: 16\n; MaxProcs: 128"


@dataclass(frozen=True)
class Row:
    """One oddity: the lines under the header, and columns of the first job (or None: the lines are refused)."""

    format: str
    name: str
    header: str
    lines: str
    becomes: str
    job: dict[str, Any] | None = field(default_factory=dict)
    timezone: str = "UTC"


def _graham(submit: str, start: str, end: str, elapsed: int, tres: str = "cpu=6,gres/gpu=2,mem=8000M,node=1") -> str:
    return (
        f'7,3,{submit},21,9934,6,8000,"{tres}",1,COMPLETED,1469164,{submit},{start},{elapsed},{end},7 days 00:00:00,'
        f"5120.0,604800,2021-05-01 12:00:00,60,60,60,{elapsed}"
    )


ROWS = (
    Row("helios", "a job", HELIOS,
        "1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0",
        "read as it is; `vc` is the partition",
        {"job_id_raw": 1425512, "partition": "vchbv", "state": "FAILED", "wait_s": 0, "run_s": 249,
         "requested_gpus": 4, "gpu_time_s": 996, "attempts": 1, "allocated_nodes": 1, "allocated_cpus": 16,
         "allocated_mem_mib": None}),
    Row("helios", "cancelled before it ran", HELIOS,
        "9,u1,vc1,8,8,1,CANCELLED,2020-06-09 18:00:00,2020-06-09 18:30:00,2020-06-09 18:30:00,0,1800",
        "CANCELLED with start = end never ran (Slurm before 22.05): no start, no wait, no attempt",
        {"start_utc": None, "wait_s": None, "attempts": 0, "allocated_gpus": 0, "gpu_time_s": None}),
    Row("helios", "the doubled hour", HELIOS,
        "9,u1,vc1,1,1,1,COMPLETED,2020-11-01 01:10:00,2020-11-01 01:20:00,2020-11-01 01:20:30,3630,600",
        "`duration` settles which of the two hours is meant", {"run_s": 3630, "is_time_ambiguous": False},
        "America/Chicago"),
    Row("helios", "a state that Slurm does not have", HELIOS,
        "9,u1,vc1,1,1,1,DONE,2020-06-09 18:00:00,2020-06-09 18:30:00,2020-06-09 18:40:00,600,0",
        "refused, with the value", None),
    Row("helios", "a field too few", HELIOS, "9,u1,vc1,1,1,1,FAILED,2020-06-09 18:00:00", "refused", None),
    Row("helios", "more GPUs than any machine has", HELIOS,
        "9,u1,vc1,1048577,1,1,FAILED,2020-06-09 18:00:00,2020-06-09 18:30:00,2020-06-09 18:40:00,600,0",
        "refused, with the bound", None),
    Row("helios", "a year of five digits", HELIOS, "9,u1,vc1,1,1,1,FAILED,+12345-06-09 18:00:00,,,0,0",
        "refused: times are from 1970 to 2106", None),
    Row("helios", "an end before its start", HELIOS,
        "9,u1,vc1,1,1,1,FAILED,2020-06-09 18:00:00,2020-06-09 18:30:00,2020-06-09 18:20:00,600,0",
        "refused, with both times", None),
    Row("acme", "Seren: a job", SEREN,
        "5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,"
        "2023-03-01 00:20:51+08:00,117,32,936.0",
        "times by their own offset; `type` is the job's name",
        {"job_id_raw": 5778432, "wait_s": 32, "run_s": 117, "gpu_time_s": 936, "job_name": "Other"}),
    Row("acme", "Kalos: a duration that counts the queue", KALOS,
        "dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
        "2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0",
        "start and end decide; `duration` and `gpu_time` are left aside",
        {"job_id_raw": None, "wait_s": 10, "run_s": 8, "gpu_time_s": 512, "requested_mem_mib": 7629395,
         "allocated_mem_mib": 7629395}),
    Row("acme", "Kalos: still running at the snapshot", KALOS,
        "dlcx,u1,1,8,96,1000,100.0,Other,RUNNING,2023-08-01 11:00:00+00:00,2023-08-01 11:00:30+00:00,,,,,30.0,",
        "no end, no run time", {"state": "RUNNING", "end_utc": None, "run_s": None, "wait_s": 30, "attempts": 1}),
    Row("acme", "Kalos: stopped, without an end", KALOS,
        "dlcx,u1,1,8,96,1000,100.0,Other,CANCELLED,2023-08-01 11:00:00+00:00,2023-08-01 11:00:30+00:00,,,"
        "2023-08-01 11:10:30+00:00,600,30.0,4800",
        "it ended when it was stopped (or failed)", {"run_s": 600, "state": "CANCELLED"}),
    Row("acme", "no start", KALOS,
        "dlcx,u1,1,8,96,1000,100.0,Other,CANCELLED,2023-08-01 11:00:00+00:00,,2023-08-01 11:00:30+00:00,,,,,",
        "never ran", {"attempts": 0, "wait_s": None}),
    Row("openb-pods", "a pod", PODS, "pod-1,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437507",
        "seconds since the trace's zero, shown from 1970 on",
        {"state": "COMPLETED", "wait_s": 10, "run_s": 1332347, "requested_cpus": 88, "requested_mem_mib": 327680,
         "gpu_time_s": 8 * 1332347, "state_is_inferred": False}),
    Row("openb-pods", "a part of a GPU", PODS, "pod-1,6000,12288,1,460,V100M16|V100M32,LS,Failed,0,1000,0",
        "one GPU, `gpu_part` 0.46 of the attempt, and its part in `gpu_time_s`; the types allowed are the partition",
        {"requested_gpus": 1, "gpu_time_s": 460, "partition": "V100M16|V100M32", "state": "FAILED"}),
    Row("openb-pods", "deleted while Running", PODS, "pod-1,6000,12288,1,1000,,LS,Running,0,1000,0",
        "CANCELLED, and said to be inferred", {"state": "CANCELLED", "run_s": 1000, "state_is_inferred": True}),
    Row("openb-pods", "there at the snapshot", PODS,
        "pod-1,6000,12288,1,1000,,LS,Running,0,12902960,0\npod-2,1,1,0,0,,LS,Running,0,12902960,0",
        "a last second that several pods share is the snapshot: RUNNING, no end",
        {"state": "RUNNING", "end_utc": None, "run_s": None, "gpu_time_s": None}),
    Row("openb-pods", "never scheduled", PODS, "pod-1,6000,12288,1,1000,,LS,Pending,0,1000,",
        "never ran", {"state": "CANCELLED", "start_utc": None, "attempts": 0, "allocated_gpus": 0}),
    Row("graham", "a job", GRAHAM, _graham("2021-04-24 18:26:01", "2021-05-10 06:43:05", "2021-05-10 07:43:05", 3500),
        "GPUs from the TRES; `elapsed_time`, without suspended time, is the run time",
        {"requested_gpus": 2, "run_s": 3500, "gpu_time_s": 7000, "limit_s": 604800, "priority": 1469164}),
    Row("graham", "the doubled hour", GRAHAM,
        _graham("2020-10-31 20:00:00", "2020-11-01 01:30:00", "2020-11-01 01:30:00", 3600),
        "`elapsed_time` settles which of the two hours is meant", {"run_s": 3600, "is_time_ambiguous": False},
        "America/Toronto"),
    Row("graham", "no GPU in the TRES", GRAHAM,
        _graham("2021-04-24 18:26:01", "2021-05-10 06:43:05", "2021-05-10 07:43:05", 3600, "cpu=6,node=1"),
        "no GPU", {"requested_gpus": 0, "gpu_time_s": 0}),
    Row("graham", "a quote left open", GRAHAM,
        _graham("2021-04-24 18:26:01", "2021-05-10 06:43:05", "2021-05-10 07:43:05", 3600).replace('=1"', "=1"),
        "refused; the next line is read", None),
    Row("philly-derived", "a job", DERIVED, "2017-10-09 07:01:55,66.0,1,66.0,11cb48",
        "no start, so no wait; how it ended is UNKNOWN",
        {"job_id": "line 2", "state": "UNKNOWN", "run_s": 66, "start_utc": None, "wait_s": None, "attempts": 1}),
    Row("philly-derived", "equal lines", DERIVED,
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:01:55,66.0,1,66.0,11cb48",
        "different jobs: nothing but its line names a job", {"job_id": "line 2"}),
    Row("philly-derived", "the doubled hour", DERIVED, "2017-11-05 01:30:00,66.0,1,66.0,11cb48",
        "nothing settles it: the earlier, and flagged", {"is_time_ambiguous": True}, "America/Los_Angeles"),
    Row("swf", "a job", SWF, "1 10 20 3600 64 -1 -1 128 7200 1024 1 7 2 5 1 3 -1 -1",
        "processors are CPUs, times count from UnixStartTime",
        {"job_id_raw": 1, "user_name": "7", "account": "2", "qos": "1", "partition": "3", "requested_cpus": 128,
         "allocated_cpus": 64, "requested_nodes": None, "requested_mem_mib": 128, "allocated_mem_mib": 128,
         "limit_s": 7200, "wait_s": 20}),
    Row("swf", "MaxNodes = MaxProcs", "; MaxNodes: 4360\n; MaxProcs: 4360", "1 0 0 60 128 -1 -1 128 60" + " -1" * 9,
        "processors are nodes too", {"requested_nodes": 128, "allocated_nodes": 128, "state": "UNKNOWN"}),
    Row("swf", "cancelled in the queue", SWF, "1 0 50 -1 -1 -1 -1 8 60 -1 5" + " -1" * 7,
        "status 5 without a run time never ran; it ended after its wait",
        {"state": "CANCELLED", "attempts": 0, "start_utc": None, "wait_s": None}),
    Row("swf", "all unknown", SWF, "1 " + "-1 " * 17, "every -1 is a null",
        {"submit_utc": None, "run_s": None, "requested_cpus": None, "user_name": None, "attempts": 0}),
    Row("swf", "stopped and went on", SWF,
        "1 0 10 150 8 -1 -1 8 200 -1 1" + " -1" * 7 + "\n1 0 10 100 8 -1 -1 8 200 -1 2" + " -1" * 7
        + "\n1 -1 30 50 8 -1 -1 8 200 -1 3" + " -1" * 7,
        "the line of status 0, 1 or 5 is the job, those of status 2 to 4 its runs",
        {"run_s": 150, "attempts": 2, "state": "COMPLETED", "wait_s": 10}),
    Row("swf", "17 numbers", SWF, "1 " * 17, "refused", None),
    Row("swf", "seconds beyond all calendars", SWF, "1 1125899906842624 0 60 8 -1 -1 8 60" + " -1" * 9,
        "refused, with the bound", None),
)  # fmt: skip
