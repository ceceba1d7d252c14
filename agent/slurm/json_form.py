"""Read queue and nodes from `squeue --json` and `sinfo --json`, for a Slurm whose text output cannot be read.

Names, types and nesting change from version to version (docs/decisions/0036-text-then-json.md). A number is plain in
22.05 and later `{"set": .., "infinite": .., "number": ..}`. A state is a word, and since 23.11 a list of words. We
accept either form everywhere; any other form makes the row unreadable. Sources: openapi v0.0.38 of a Slurm 22.05.8, and
src/plugins/data_parser/v0.0.40 to v0.0.44/parsers.c (JOB_INFO, SINFO_DATA) of later ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent.slurm.commands import Commands, SlurmError
from agent.slurm.nodes import SinfoStates
from agent.slurm.numbers import LEAST_S, MOST_NODES, MOST_SHOWN, UNLIMITED_S, bounded, job_identity
from agent.slurm.queue import ENDED, Queue, SqueueJob
from traces.counted import counted
from traces.slurm.text import job_state

NO_VALUE, INFINITE = 0xFFFFFFFE, 0xFFFFFFFF  # as plain numbers (slurm.h: NO_VAL, INFINITE)
MOST_JOBS = 1 << 18  # including waiting array tasks, which a few bytes can describe; the text form holds as many
# sinfo appends one mark to a state: that of the first of these flags (node_state_string of the same file).
NODE_MARKS = {
    "MAINTENANCE": "$", "REBOOT_ISSUED": "^", "REBOOT_REQUESTED": "@", "POWERING_UP": "#", "POWERING_DOWN": "%",
    "POWERED_DOWN": "~", "POWER_DOWN": "!", "NOT_RESPONDING": "*",
}  # fmt: skip
IDLE_WORDS = {"RESERVED": "reserved", "BLOCKED": "blocked", "PLANNED": "planned"}


def read_queue(commands: Commands, now_s: int) -> Queue:
    """Read the queue as `agent.slurm.queue.read_queue` does, from JSON. Raises SlurmError."""
    return parse_queue(commands.run("squeue", "--all", "--states=all", "--json"), now_s)


def read_nodes(commands: Commands) -> SinfoStates:
    """Read the nodes as `agent.slurm.nodes.read_nodes` does, from JSON. Raises SlurmError."""
    return parse_nodes(commands.run("sinfo", "--all", "--Node", "--json"))


def parse_queue(text: str, now_s: int) -> Queue:
    """Parse the output of `squeue --json`. Raises SlurmError if it has no list of jobs, or no job can be read."""
    alive: list[SqueueJob] = []
    ended: list[SqueueJob] = []
    unread = 0
    for row in _rows("squeue", text, "jobs"):
        try:
            jobs = list(_jobs(row, now_s))
        except ValueError:
            unread += 1
            continue
        if len(alive) + len(ended) + len(jobs) > MOST_JOBS:
            raise SlurmError("nonsense", "squeue", f"its JSON holds more than {MOST_JOBS} jobs")
        for job in jobs:
            (ended if job.state in ENDED else alive).append(job)
    if unread and not alive and not ended:
        raise SlurmError("nonsense", "squeue", f"none of {counted(unread, 'job')} in its JSON could be read")
    return Queue(now_s, tuple(alive), frozenset(), tuple(ended), unread)


def parse_nodes(text: str) -> SinfoStates:
    """Parse the output of `sinfo --json`: `nodes` up to 22.05, `sinfo` later. Raises SlurmError for anything else."""
    states: dict[str, str] = {}
    try:
        for row in _rows("sinfo", text, "sinfo", "nodes"):
            if "name" in row:
                states[_word(row["name"])] = node_state([*_words(row["state"]), *_words(row.get("state_flags", []))])
            else:
                names = _words(_within(row, "nodes", "nodes"))
                states |= dict.fromkeys(names, node_state(_words(_within(row, "node", "state"))))
    except (KeyError, ValueError) as error:
        raise SlurmError("nonsense", "sinfo", f"its JSON holds a malformed node: {error}") from error
    return SinfoStates(states)


def node_state(words: list[str]) -> str:
    """Return the state that sinfo prints, in its long form, for the base state and flags of a node."""
    flags = {word.upper() for word in words}
    base = next((word for word in ("ALLOCATED", "MIXED", "DOWN", "IDLE") if word in flags), "")
    has_jobs = base in ("ALLOCATED", "MIXED")
    mark = next((mark for flag, mark in NODE_MARKS.items() if flag in flags), "")
    if not base or "INVALID_REG" in flags:
        return "inval" if base else "unknown"
    if "MAINTENANCE" in flags and base == "IDLE" and "DRAIN" not in flags:
        return "maint"
    if flags & {"REBOOT_ISSUED", "REBOOT_REQUESTED"} and not has_jobs:
        return "reboot"
    for flag, busy, free in (("DRAIN", "draining", "drained"), ("FAIL", "failing", "fail")):
        if flag in flags:
            return (busy if has_jobs or "COMPLETING" in flags else free) + mark
    if base == "IDLE" and "COMPLETING" in flags:
        return f"completing{mark}"
    if base == "IDLE" and not mark:
        return next((word for flag, word in IDLE_WORDS.items() if flag in flags), "idle")
    return base.lower() + (mark or ("-" if base == "MIXED" and "PLANNED" in flags else ""))


def _jobs(row: Mapping[str, Any], now_s: int) -> Iterator[SqueueJob]:
    """Yield the job of a record, or each of an array's waiting tasks, which share a record. Raises ValueError."""
    try:
        limit_min = _number(row["time_limit"])
        limit_s = UNLIMITED_S if limit_min is None else min(max(limit_min * 60, LEAST_S), UNLIMITED_S)
        end_s = _time(row["end_time"])
        is_endless = limit_min is None and end_s is not None and end_s > now_s  # squeue prints NONE
        reason = _text(row.get("state_description")) or _text(row["state_reason"])
        for identity in _identities(row):
            yield SqueueJob(
                id=job_identity(identity),
                name=_text(row["name"]),
                user=_word(row["user_name"]),
                account=_text(row["account"]),
                partition=_word(row["partition"]),
                qos=_text(row["qos"]),
                state=job_state(_words(row["job_state"]))[:MOST_SHOWN],
                reason=reason[:MOST_SHOWN] or "None",
                nodes=max(bounded(_number(row["node_count"]) or 0, MOST_NODES), 1),
                limit_s=limit_s,
                submit_s=_count(row["submit_time"]),
                start_s=_time(row["start_time"]),
                end_s=None if is_endless else end_s,
                priority=_count(row["priority"]),
                restarts=_count(row["restart_cnt"]),
                comment=_text(row["comment"]),
                node_list=_text(row["nodes"]),
            )
    except KeyError as error:
        raise ValueError(f"a job without {error}") from error


def _identities(row: Mapping[str, Any]) -> list[str]:
    """Return the ids as `squeue --array` prints them: 12, 12_3 (array task), 12+1 (heterogeneous component)."""
    array, task = _number(row.get("array_job_id")), _number(row.get("array_task_id"))
    waiting = _text(row.get("array_task_string"))
    if array and waiting:
        return [f"{array}_{number}" for number in _task_numbers(waiting)]
    if array and task is not None:
        return [f"{array}_{task}"]
    het = _number(row.get("het_job_id"))
    if het:
        return [f"{het}+{_number(row.get('het_job_offset')) or 0}"]
    return [str(_count(row["job_id"]))]


def _task_numbers(text: str) -> list[int]:
    """Parse task numbers such as `1-3,7,10-20:5%2`; the throttle after % is ignored."""
    numbers: list[int] = []
    for part in text.partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        low, high, by = int(first), int(last or first), int(step or 1)
        if not 0 <= low <= high or by < 1 or len(numbers) + (high - low) // by >= MOST_JOBS:
            raise ValueError("array task numbers are malformed or too many")
        numbers += range(low, high + 1, by)
    return numbers


def _rows(program: str, text: str, *keys: str) -> list[Mapping[str, Any]]:
    """Return the list of records under the first of the keys that exists. Raises SlurmError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SlurmError("nonsense", program, f"its answer is not JSON: {error}") from error
    rows = next((found[key] for key in keys if key in found), None) if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SlurmError("nonsense", program, f"its JSON has no list {keys[0]!r}")
    return rows


def _number(value: Any) -> int | None:
    """Parse a number, plain or with `set` and `infinite`; None if it is not set or infinite. Raises ValueError."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{str(value)[:40]!r} is not a count")
    return None if value in (NO_VALUE, INFINITE) else bounded(value)


def _count(value: Any) -> int:
    number = _number(value)
    if number is None:
        raise ValueError("a count that is not set")
    return number


def _time(value: Any) -> int | None:
    return _number(value) or None


def _within(row: Mapping[str, Any], *keys: str) -> Any:
    value: Any = row
    for key in keys:
        if not isinstance(value, dict):
            raise ValueError(f"{key} is not inside an object")
        value = value[key]
    return value


def _words(value: Any) -> list[str]:
    """Return a word or a list of words as a list. Raises ValueError."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{str(value)[:40]!r} is not a list of words")
    return words


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{str(value)[:40]!r} is not a name")
    return value


def _text(value: Any) -> str:
    """Return optional text; "" if it is not set. Raises ValueError."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} is not text")
    return "" if value in (None, "(null)") else value
