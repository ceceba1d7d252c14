"""What happened to a chain, one JSON object a line: decisions and outcomes, in the order in which they became known.

The lines of a file differ between two states of the chain; docs/agent.md describes each. A line may come twice after a
kill (chain, event, job and time are the same then), and none is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from agent.state import COMPLETING, MISSING, ChainState, LinkAttempt
from traces.counted import counted

LOG_VERSION = 1
HOUR_S = 3600
USUAL = frozenset({"", "None", "Priority", "Resources", COMPLETING, MISSING})  # reasons that need no line

MEANINGS = {
    "JobHeldUser": ": held by its user; scontrol release lets it go on",
    "JobHeldAdmin": ": held by an administrator",
    "ReqNodeNotAvail": ": nodes are down or reserved, as for maintenance",
    "Reservation": ": a reservation keeps its nodes, as for maintenance",
    "PartitionTimeLimit": ": its time limit is above the partition's",
    "PartitionNodeLimit": ": it asks for more nodes than the partition has",
}

Event = dict[str, Any]


class Journal:
    """The file of a chain's events; what cannot be written is kept and tried again. None: nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._waiting: list[str] = []

    def write(self, time_s: int, chain: str, events: list[Event]) -> str | None:
        """Append the events; returns what is to be said where the file cannot be written."""
        if self._path is None:
            return None
        for event in events:
            line = {"log_version": LOG_VERSION, "time_s": time_s, "chain": chain, **event}
            self._waiting.append(json.dumps(line, allow_nan=False))
        if not self._waiting:
            return None
        content = "".join(f"{line}\n" for line in self._waiting).encode()
        try:
            with self._path.open("ab") as file:
                if file.tell() and not _ends_a_line(self._path):
                    content = b"\n" + content  # a line that a kill or a full disk cut off stays alone
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return f"{self._path}: {error.strerror}; {counted(len(self._waiting), 'line', 'waits')}"
        self._waiting.clear()
        return None


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def events(before: ChainState, after: ChainState) -> list[Event]:
    """What has changed between two states of one chain."""
    old = {attempt.name: attempt for attempt in before.attempts}
    found = [event for a in after.attempts for event in _attempt_events(old.get(a.name), a)]
    known = handovers(before)
    found += [event for key, event in handovers(after).items() if key not in known]
    if after.status != before.status:
        found.append({"event": "chain", "status": after.status, "why": after.why})
    return found


def _attempt_events(old: LinkAttempt | None, new: LinkAttempt) -> Iterator[Event]:
    was = old or LinkAttempt(new.link, new.number, new.name, new.intended_s)
    who = {"link": new.link, "attempt": new.number, "job_id": new.job_id, "job_name": new.name}
    if new.job_id and not was.job_id:
        yield {"event": "submitted", **who, "submit_s": new.submit_s or new.intended_s, "after": new.after}
    if new.is_alive and new.reason != was.reason and new.reason not in USUAL:
        yield {"event": "waits", **who, "reason": new.reason}
    if new.start_s is None and was.start_s is not None:
        yield {"event": "requeued", **who}
    if new.start_s is not None and new.start_s != was.start_s:
        yield {"event": "started", **who, "submit_s": new.submit_s, "start_s": new.start_s}
    if new.withdrawn and not was.withdrawn:
        yield {"event": "withdrawn", **who, "why": new.withdrawn}
    if new.how and not was.how:
        times = {"start_s": new.start_s, "end_s": new.end_s}
        yield {"event": "ended", **who, "how": new.how, "exit_status": new.exit_status, **times}


def handovers(state: ChainState) -> dict[tuple[str, str], Event]:
    """From each link's run to the next one's, where the one has ended and the other started: gap or overlap."""
    runs = sorted((a for a in state.attempts if a.start_s is not None and not a.never_was), key=_start_s)
    found = {}
    for first, second in pairwise(runs):
        if first.is_alive or first.end_s is None:
            continue
        gap_h = (_start_s(second) - first.end_s) / HOUR_S
        found[(first.name, second.name)] = {
            "event": "handover",
            "link": first.link,
            "next_link": second.link,
            "predecessor_id": first.job_id,
            "successor_id": second.job_id,
            "interruption_h": round(max(gap_h, 0.0), 4),
            "overlap_h": round(max(-gap_h, 0.0), 4),
        }
    return found


def _start_s(attempt: LinkAttempt) -> int:
    assert attempt.start_s is not None
    return attempt.start_s


def told(event: Mapping[str, Any]) -> str:
    """An event in words, for the log."""
    who = f"link {event.get('link')} (job {event.get('job_id') or 'none'})"
    match event["event"]:
        case "submitted":
            return f"{who}: submitted" + (f", {event['after']}" if event["after"] else "")
        case "waits":
            meaning = MEANINGS.get(str(event["reason"]).split(",")[0], "")
            return f"{who}: waits, {event['reason']}{meaning}"
        case "requeued":
            return f"{who}: requeued by Slurm, waits again"
        case "started":
            return f"{who}: started"
        case "withdrawn":
            return f"{who}: cancelled by the agent: {event['why']}"
        case "ended":
            status = event["exit_status"]
            return f"{who}: ended as {event['how']}" + ("" if status is None else f", exit status {status}")
        case "handover":
            gap = f"{event['interruption_h']:.2f} h interruption, {event['overlap_h']:.2f} h overlap"
            return f"link {event['link']} to {event['next_link']}: {gap}"
        case _:
            return f"the chain is {event['status']}: {event['why']}"
