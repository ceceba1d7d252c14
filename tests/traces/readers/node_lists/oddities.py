"""Oddities of Slurm's node lists, one a row: what is printed, by which command, and what becomes of it.

Lines are made by hand after the source named, with invented names. `docs/oddities.md` is generated from this table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

HEADER = "NODELIST|PARTITION|CPUS|MEMORY|GRES|AVAIL_FEATURES|STATE"
DATE = "Fri Nov 27 10:00:00 2026"
LONG_HEADER = "NODELIST NODES PARTITION STATE CPUS S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON"
LAB = "list of a Slurm 22.05.8"
MAN = "sinfo(1)"
PARAGRAPH = """NodeName=n01 Arch=x86_64 CoresPerSocket=32
   CPUAlloc=0 CPUEfctv=62 CPUTot=64 CPULoad=4.97
   AvailableFeatures=a100,ib
   ActiveFeatures=a100
   Gres=gpu:a100:4(S:0-1)
   NodeAddr=n01 NodeHostName=n01 Version=22.05.8
   OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC State=of the art
   RealMemory=512000 AllocMem=4000 FreeMem=16564 Sockets=2 Boards=1
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=gpu,long
   BootTime=2026-11-21T07:33:47 SlurmdStartTime=2026-11-21T08:01:08
   CfgTRES=cpu=64,mem=500G,billing=64,gres/gpu=4
   AllocTRES=
   CapWatts=n/a
   Reason=State=UP Gres=gpu:9 soon [root@2026-11-21T08:00:00]"""
BARE = "NodeName=c01 CoresPerSocket=8 CPUAlloc=0 CPUTot=16 CPULoad=N/A AvailableFeatures=(null) ActiveFeatures=(null)"
BARE += " Gres=(null) NodeAddr=c01 NodeHostName=c01 RealMemory=64000 AllocMem=0 FreeMem=N/A State=DOWN* Weight=1"
NODE: dict[str, Any] = {
    "name": "n01", "cpus": 64, "real_memory": 512_000, "gres": "gpu:a100:4", "partitions": ["gpu", "long"],
    "features": "a100,ib", "state": "idle", "state_flags": ["PLANNED"],
}  # fmt: skip
GROUP: dict[str, Any] = {
    "node": {"state": ["IDLE", "DRAIN"]}, "nodes": {"total": 2, "nodes": ["n[01-02]"]},
    "cpus": {"total": 128, "minimum": 64, "maximum": 64}, "memory": {"minimum": 512_000, "maximum": 512_000},
    "gres": {"total": "gpu:a100:4"}, "features": {"total": "a100,ib"}, "partition": {"name": "gpu"},
}  # fmt: skip
PLAIN = {"gpus": 4, "gpu_type": "a100", "cpus": 64, "memory_mib": 512_000, "features": "a100,ib"}


@dataclass(frozen=True)
class Row:
    """One oddity: the lines under the header, and columns of each node by its name (None: one record is refused)."""

    format: str
    name: str
    source: str
    lines: str
    becomes: str
    nodes: dict[str, dict[str, Any]] | None = field(default_factory=dict)
    header: str = ""


def _json(**other: Any) -> str:
    return json.dumps({**NODE, **other})


def _group(**other: Any) -> str:
    return json.dumps({**GROUP, **other})


def _sinfo(name: str, lines: str, becomes: str, nodes: dict[str, dict[str, Any]] | None, header: str = HEADER) -> Row:
    return Row("sinfo", name, MAN, lines, becomes, nodes, header)


ROWS = (
    Row("scontrol-nodes", "a paragraph a node", "scontrol(1), show node", PARAGRAPH,
        "read as with -o; what stands in OS and Reason is not believed",
        {"n01": {**PLAIN, "partitions": "gpu,long", "state": "IDLE+DRAIN", "line": 1}}),
    Row("scontrol-nodes", "a line a node", LAB, " ".join(PARAGRAPH.split("\n")), "read; CPUTot is the count of CPUs",
        {"n01": {**PLAIN, "partitions": "gpu,long", "state": "IDLE+DRAIN"}}),
    Row("scontrol-nodes", "neither GRES, features nor partition", "a node that never registered", BARE,
        "0 GPUs; features and partitions are not known",
        {"c01": {"gpus": 0, "gpu_type": None, "cpus": 16, "memory_mib": 64_000, "features": None, "partitions": None,
                 "state": "DOWN*"}}),
    Row("scontrol-nodes", "GPUs of two types", "gres.conf",
        BARE.replace("Gres=(null)", "Gres=gpu:a100:2,gpu:v100:1,nic:1"),
        "their sum, and both types", {"c01": {"gpus": 3, "gpu_type": "a100,v100"}}),
    Row("scontrol-nodes", "cut short", "the end of a full disk", BARE.split(" RealMemory")[0],
        "refused, with what is missing", None),
    Row("scontrol-nodes", "a message of Slurm", "scontrol", "slurm_load_node error: Unable to contact slurm controller",
        "refused", None, BARE),
    Row("scontrol-nodes", "a node twice", "two lists in one file", BARE.replace("State=DOWN*", "State=IDLE"),
        "the later values", {"c01": {"state": "IDLE", "line": 2}}, BARE),
    _sinfo("a node in two partitions",
           "n01|gpu*|64|512000|gpu:a100:4|a100,ib|idle\nn01|long|64|512000|gpu:a100:4|a100,ib|idle",
           "one node of both partitions; `*` marks the default one and is left out",
           {"n01": {**PLAIN, "partitions": "gpu,long", "state": "idle"}}),
    _sinfo("nodes that are alike", "n[01-02]|gpu|64|512000|gpu:4|(null)|mix",
           "a node each", {"n01": {"gpus": 4, "gpu_type": None, "features": None}, "n02": {"cpus": 64}}),
    _sinfo("nodes that differ", "n[01-02]|gpu|64+|512000-768000|gpu:a100:4|ib|idle",
           "a size that is that of the least node is not known",
           {"n01": {"cpus": None, "memory_mib": None, "gpus": 4}, "n02": {"cpus": None}}),
    _sinfo("CPUs by their state", "n01|4/60/0/64\nn[02-03]|0/128/0/128",
           "the total, of one node; not known where the line is of several",
           {"n01": {"cpus": 64, "gpus": None}, "n02": {"cpus": None}}, "NODELIST|CPUS(A/I/O/T)"),
    _sinfo("columns of spaces", "n01        gpu*         64 512000     idle", "read",
           {"n01": {"cpus": 64, "memory_mib": 512_000, "partitions": "gpu"}},
           "HOSTNAMES  PARTITION  CPUS MEMORY    STATE"),
    _sinfo("the long form", f"{LONG_HEADER}\nn01 1 gpu* draining 64 2:16:2 64000 0 1 a100,ib disk is failing",
           "read; the date before the header is left out, a reason has words",
           {"n01": {"cpus": 64, "memory_mib": 64_000, "gpus": None, "partitions": "gpu", "state": "draining"}}, DATE),
    _sinfo("1,031,000 MiB in the long form", f"{LONG_HEADER}\nn01 1 gpu* idle 64 2:16:2 103100 0 1 (null) none",
           "memory is not known: Slurm prints six characters of it; give -o",
           {"n01": {"cpus": 64, "memory_mib": None}}, DATE),
    _sinfo("six digits of memory with sockets, not in the long form", "n01 64 2:16:2 512000", "read",
           {"n01": {"cpus": 64, "memory_mib": 512_000}}, "NODELIST CPUS S:C:T MEMORY"),
    _sinfo("columns run together", "a-very-long-nam gpu*64 512000 idle", "refused: give -o a delimiter", None,
           "HOSTNAMES PARTITION CPUS MEMORY STATE"),
    _sinfo("CPUs that are no number", "n01|gpu|many|512000|gpu:a100:4|ib|idle", "refused, with the value", None),
    _sinfo("GPUs beyond any machine", "n01|gpu|64|512000|gpu:9999999|ib|idle", "refused, with the bound", None),
    _sinfo("a node list that does not close", "n[01|gpu|64|512000|gpu:a100:4|ib|idle", "refused", None),
    _sinfo("a delimiter in a reason", "n01|64|a|b", "refused", None, "NODELIST|CPUS|REASON"),
    Row("sinfo-json", "the controller's records", LAB, _json(), "state and flags joined by +",
        {"n01": {**PLAIN, "partitions": "gpu,long", "state": "idle+PLANNED", "line": 1}}, "nodes"),
    Row("sinfo-json", "numbers that may be unset", "data_parser since 23.02",
        _json(cpus={"set": True, "infinite": False, "number": 8}, features=["ib"], state=["DOWN", "DRAIN"],
              state_flags=None),
        "the number", {"n01": {"cpus": 8, "features": "ib", "state": "DOWN+DRAIN"}}, "nodes"),
    Row("sinfo-json", "groups of nodes", "data_parser, SINFO_DATA",
        f"{_group()},\n{_group(partition={'name': 'long'})}", "a node each, of all partitions",
        {"n01": {**PLAIN, "partitions": "gpu,long", "state": "IDLE+DRAIN"},
         "n02": {**PLAIN, "partitions": "gpu,long"}}, "sinfo"),
    Row("sinfo-json", "a group of nodes that differ", "data_parser, SINFO_DATA",
        _group(cpus={"minimum": 32, "maximum": 64}), "the size is not known",
        {"n01": {"cpus": None}, "n02": {"cpus": None}}, "sinfo"),
    Row("sinfo-json", "a record without its name", "made by hand", json.dumps({"cpus": 64}), "refused", None, "nodes"),
    Row("sinfo-json", "half a surrogate pair", "made by hand", _json(features="\ud800"), "refused", None, "nodes"),
)  # fmt: skip


def file_of(row: Row) -> str:
    """A whole file with the row in it."""
    if row.format == "sinfo-json":
        return f'{{"meta": {{"Slurm": {{}}}}, "errors": [], "{row.header}": [\n{row.lines}\n]}}\n'
    return "\n".join(filter(None, (row.header, row.lines))) + "\n"
