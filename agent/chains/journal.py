"""The journal of a chain: decisions and outcomes in the order in which they became known, one JSON object per line.

Most lines are the differences between two states of the chain; docs/agent.md describes each event. After a kill a line
may appear twice (with the same chain, event, job and time), but none is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.chains.state import COMPLETING, MISSING, ChainState, LinkAttempt
from agent.files import open_regular
from features.conventions import interruption_h, overlap_h
from traces.counted import counted
from traces.units import HOUR_S

LOG_VERSION = 1
USUAL = frozenset({"", "None", "Priority", "Resources", COMPLETING, MISSING})  # reasons that are not journalled

MEANINGS = {
    "JobHeldUser": ": held by its user; release it with scontrol release",
    "JobHeldAdmin": ": held by an administrator",
    "ReqNodeNotAvail": ": its nodes are down or reserved, for example for maintenance",
    "Reservation": ": a reservation holds its nodes, for example for maintenance",
    "PartitionTimeLimit": ": its time limit exceeds the partition's",
    "PartitionNodeLimit": ": it requests more nodes than the partition allows",
}

Event = dict[str, Any]


class Journal:
    """The file of a chain's events. Lines that cannot be written are kept and retried. None: nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._waiting: list[str] = []

    def write(self, time_s: int, chain: str, events: list[Event]) -> str | None:
        """Append the events; return a message if the file cannot be written, else None."""
        if self._path is None:
            return None
        for event in events:
            line = {"log_version": LOG_VERSION, "time_s": time_s, "chain": chain, **event}
            self._waiting.append(json.dumps(line, allow_nan=False))
        if not self._waiting:
            return None
        content = "".join(f"{line}\n" for line in self._waiting).encode()
        try:
            with open(self._path, "ab", opener=open_regular) as file:
                if file.tell() and not _ends_a_line(self._path):
                    content = b"\n" + content  # keep a line truncated by a kill or a full disk on its own
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return f"{self._path}: {error.strerror}; {counted(len(self._waiting), 'line', 'is')} not written yet"
        self._waiting.clear()
        return None


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def journal_events(before: ChainState, after: ChainState) -> list[Event]:
    """List the events between two states of one chain."""
    old = {attempt.name: attempt for attempt in before.attempts}
    found = [event for a in after.attempts for event in _attempt_events(old.get(a.name), a)]
    known = handovers(before)
    found += [event for key, event in handovers(after).items() if known.get(key) != event]
    if after.status != before.status:
        found.append({"event": "chain", "status": after.status, "why": after.why})
    return found


def _attempt_events(old: LinkAttempt | None, new: LinkAttempt) -> Iterator[Event]:
    before = old or LinkAttempt(new.link, new.number, new.name, new.intended_s)
    job = {"link": new.link, "attempt": new.number, "job_id": new.job_id, "job_name": new.name}
    if new.job_id and not before.job_id:
        yield {"event": "submitted", **job, "submit_s": new.submit_s or new.intended_s, "after": new.after,
               "limit_s": new.limit_s, "least_s": new.least_s, "nodes": new.nodes, "qos": new.qos}  # fmt: skip
    if new.is_alive and new.reason != before.reason and new.reason not in USUAL:
        yield {"event": "waits", **job, "reason": new.reason}
    if new.start_s is None and before.start_s is not None:
        yield {"event": "requeued", **job}
    if new.start_s is not None and new.start_s != before.start_s:
        yield {"event": "started", **job, "submit_s": new.submit_s, "start_s": new.start_s, "limit_s": new.limit_s}
    if new.resumed_s is not None and before.resumed_s is None:
        yield {"event": "note", "text": f"link {new.link} (job {new.job_id}): resumed after {new.resumed_s} s"}
    if new.withdrawn and not before.withdrawn:
        yield {"event": "withdrawn", **job, "why": new.withdrawn}
    if new.handed_to and not before.handed_to:
        yield {"event": "handed over", **job, "to": new.handed_to}
    if new.how and not before.how:
        times = {"start_s": new.start_s, "end_s": new.end_s}
        yield {"event": "ended", **job, "how": new.how, "exit_status": new.exit_status, **times}


def handovers(state: ChainState) -> dict[tuple[str, str], Event]:
    """Return the interruption or overlap before each run that took over, by the names of both runs.

    A run takes over from the run that ended last of those that started before it, once they have all ended. So the
    interruptions are the hours between the first start and the last end in which no run served. An overlap lasts until
    either run ends.
    """
    found = {}
    first: LinkAttempt | None = None
    for second in sorted((a for a in state.attempts if a.ran), key=_start_s):
        if first is not None:
            found[(first.name, second.name)] = _handover(first, second)
        if second.is_alive or second.end_s is None:
            break
        if first is None or second.end_s > _end_s(first):
            first = second
    return found


def _handover(first: LinkAttempt, second: LinkAttempt) -> Event:
    until_s = _end_s(first) if second.end_s is None else min(_end_s(first), second.end_s)
    gap_h = (_start_s(second) - until_s) / HOUR_S
    return {
        "event": "handover",
        "link": first.link,
        "next_link": second.link,
        "predecessor_id": first.job_id,
        "successor_id": second.job_id,
        "interruption_h": round(float(interruption_h(gap_h)), 4),
        "overlap_h": round(float(overlap_h(gap_h)), 4),
    }


def _start_s(attempt: LinkAttempt) -> int:
    assert attempt.start_s is not None
    return attempt.start_s


def _end_s(attempt: LinkAttempt) -> int:
    assert attempt.end_s is not None
    return attempt.end_s


def _asked_text(event: Mapping[str, Any]) -> str:
    """What a link asks for in place of what its script does."""
    asked = (("limit", event.get("limit_s")), ("at least", event.get("least_s")))
    nodes = event.get("nodes")
    limits = "".join(f", {what} {limit_s / HOUR_S:g} h" for what, limit_s in asked if limit_s)
    qos = f", QOS {event['qos']}" if event.get("qos") else ""
    return limits + (f", {counted(nodes, 'node')}" if nodes else "") + qos


def event_text(event: Mapping[str, Any]) -> str:
    """Describe an event in words, for the log."""
    job = f"link {event.get('link')} (job {event.get('job_id') or 'none'})"
    match event["event"]:
        case "submitted":
            after = f", dependency {event['after']}" if event["after"] else ""
            return f"{job}: submitted{_asked_text(event)}{after}"
        case "waits":
            meaning = MEANINGS.get(str(event["reason"]).split(",")[0], "")
            return f"{job}: waits, {event['reason']}{meaning}"
        case "requeued":
            return f"{job}: requeued by Slurm, waits again"
        case "started":
            return f"{job}: started{_asked_text(event)}"
        case "note":
            return str(event["text"])
        case "handed over":
            return f"{job}: asked to save and end, because {event['to']} runs"
        case "withdrawn":
            return f"{job}: cancelled by the agent: {event['why']}"
        case "ended":
            status = event["exit_status"]
            return f"{job}: ended as {event['how']}" + ("" if status is None else f", exit status {status}")
        case "handover":
            gap = f"{event['interruption_h']:.2f} h interruption, {event['overlap_h']:.2f} h overlap"
            return f"link {event['link']} to {event['next_link']}: {gap}"
        case _:
            return f"the chain is {event['status']}: {event['why']}"
