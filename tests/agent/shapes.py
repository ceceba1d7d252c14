"""Jobs and nodes as `squeue --json` and `sinfo --json` of several versions write them, generated.

What is the same in all is written once; what differs is in PLAIN and WORDS. Names and types are those of the versions'
data_parser sources (JOB_INFO, SINFO_DATA) and, for 22.05, of a recorded answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.slurm.commands import SlurmError
from agent.slurm.queue import SqueueJob
from tests.agent.replayed_slurm import RecordedJob, ReplayedSlurm

VERSIONS = ("22.05", "23.11", "24.11", "25.11")
PLAIN = ("22.05",)  # numbers are plain and states one word
# What sinfo prints of a node, and the words by which JSON says it.
NODE_WORDS = {
    "idle": ["IDLE"], "mixed": ["MIXED"], "allocated": ["ALLOCATED"], "down": ["DOWN"],
    "down*": ["DOWN", "NOT_RESPONDING"], "drained": ["IDLE", "DRAIN"],
    "drained*": ["DOWN", "DRAIN", "NOT_RESPONDING"], "draining": ["MIXED", "DRAIN"],
    "idle*": ["IDLE", "NOT_RESPONDING"], "planned": ["IDLE", "PLANNED"], "mixed-": ["MIXED", "PLANNED"],
    "maint": ["IDLE", "MAINTENANCE"], "allocated$": ["ALLOCATED", "MAINTENANCE"],
    "reserved": ["IDLE", "RESERVED"], "reboot": ["IDLE", "REBOOT_REQUESTED"],
    "mixed@": ["MIXED", "REBOOT_REQUESTED"], "failing": ["ALLOCATED", "FAIL"], "fail": ["IDLE", "FAIL"],
    "completing": ["IDLE", "COMPLETING"], "draining@": ["ALLOCATED", "REBOOT_REQUESTED", "DRAIN"],
    "idle~": ["IDLE", "CLOUD", "POWERED_DOWN"], "idle#": ["IDLE", "CLOUD", "POWERING_UP"],
    "inval": ["IDLE", "INVALID_REG"], "blocked": ["IDLE", "BLOCKED"], "unknown": ["UNKNOWN"],
    "idle%": ["IDLE", "POWERING_DOWN"], "down$": ["DOWN", "MAINTENANCE"],
}  # fmt: skip


def number(version: str, value: int | None, *, is_infinite: bool = False) -> Any:
    """A number that may not be set, as that version writes it."""
    if version in PLAIN:
        return 0xFFFFFFFF if is_infinite else value
    return {"set": value is not None and not is_infinite, "infinite": is_infinite, "number": value or 0}


def job(version: str, one: SqueueJob, *, waiting: str = "") -> dict[str, Any]:
    """A record of `jobs`. waiting: the tasks of an array that wait, as Slurm writes them."""
    array, _, task = one.id.partition("_")
    base, _, offset = array.partition("+")
    has_no_limit = one.limit_s >= 365 * 86400
    return {
        "account": one.account,
        "array_job_id": number(version, int(base) if task or waiting else 0),
        "array_task_id": number(version, int(task) if task and not waiting else None),
        "array_task_string": waiting,
        "comment": one.comment,
        "end_time": number(version, one.end_s or 0),
        "het_job_id": number(version, int(base) if offset else 0),
        "het_job_offset": number(version, int(offset) if offset else 0),
        "job_id": int(base),
        "job_resources": None,
        "job_state": one.state if version in PLAIN else one.state.split("+"),
        "name": one.name,
        "node_count": number(version, one.nodes),
        "nodes": one.node_list,
        "partition": one.partition,
        "priority": number(version, one.priority),
        "qos": one.qos,
        "restart_cnt": one.restarts,
        "start_time": number(version, one.start_s or 0),
        "state_description": "",
        "state_reason": one.reason,
        "submit_time": number(version, one.submit_s),
        "time_limit": number(version, None if has_no_limit else one.limit_s // 60, is_infinite=has_no_limit),
        "user_name": one.user,
    }


def node(version: str, name: str, words: Sequence[str]) -> dict[str, Any]:
    """A record of `nodes` in 22.05, of `sinfo` later."""
    if version in PLAIN:
        return {"name": name, "state": words[0].lower(), "state_flags": list(words[1:])}
    return {"node": {"state": list(words)}, "nodes": {"allocated": 0, "total": 1, "nodes": [name]}}


def answer(version: str, key: str, rows: Sequence[dict[str, Any]]) -> str:
    """The whole of an answer."""
    return json.dumps({key: rows, "meta": {"slurm": {"release": f"{version}.3"}}, "errors": [], "warnings": []})


@dataclass
class JsonSlurm(ReplayedSlurm):
    """Tells the same by JSON alone: its text forms are refused, or another version's."""

    version: str = "24.11"
    text_fails: str = "refused"  # else: nonsense

    def run(self, *argv: str, **options: Any) -> str:
        if argv[0] not in ("squeue", "sinfo"):
            return super().run(*argv, **options)
        self.calls[argv[0]] += 1
        if "--json" not in argv:
            raise SlurmError(self.text_fails, argv[0], "Invalid job format specification")
        if argv[0] == "sinfo":
            rows = [node(self.version, name, NODE_WORDS[state]) for name, state in self.nodes.items()]
            return answer(self.version, "nodes" if self.version in PLAIN else "sinfo", rows)
        return answer(self.version, "jobs", [row for one in self.jobs if (row := self._record(one))])

    def _record(self, one: RecordedJob) -> dict[str, Any] | None:
        state = one.state(self.now_s)
        is_over = state in ("COMPLETED", "CANCELLED")
        if not state or (is_over and one.end_s < self.now_s - self.remembers_s):
            return None
        has_run = state in ("RUNNING", "COMPLETED")
        start_s = one.start_s if has_run else one.end_s if state == "CANCELLED" else None
        end_s = one.start_s + one.limit_s if state == "RUNNING" else one.end_s if is_over else None
        reason = one.reason if state == "PENDING" else "None"
        shown = SqueueJob(
            one.id, one.name, one.user, "science", one.partition, "normal", state, reason, one.nodes, one.limit_s,
            one.submit_s, start_s, end_s, one.priority, 0, "", one.node_list if has_run else "",
        )  # fmt: skip
        return job(self.version, shown)
