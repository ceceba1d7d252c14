"""Lines of the agent's decision log, and its oddities: what stands in a line, and what becomes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

AT_S = 1_800_000_000
_WHO = {"link": 2, "attempt": 1, "job_id": "101", "job_name": "train-0123abcd-2.1"}
EVENTS: dict[str, dict[str, Any]] = {
    "decision": {
        "link": 1, "job_id": "100", "submit": True, "by": "policy", "reason": "0.50 h left", "score": 0.25,
        "policy": "forest", "version": "00ff00ff00ff", "setting": 1.5, "hidden": ["held_jobs", "held_nodes"],
        "observation": {"remaining_h": 0.5, "start_estimate_h": 0.75, "start_estimate_expected_h": 0.25},
    },
    "submitted": {**_WHO, "submit_s": AT_S, "after": ""},
    "waits": {**_WHO, "reason": "JobHeldUser"},
    "started": {**_WHO, "submit_s": AT_S, "start_s": AT_S + 60},
    "requeued": _WHO,
    "withdrawn": {**_WHO, "why": "it started 2.00 h before the end of link 1"},
    "handed over": {**_WHO, "to": "train-0123abcd-3.1"},
    "ended": {**_WHO, "how": "TIMEOUT", "exit_status": 0, "start_s": AT_S + 60, "end_s": AT_S + 7260},
    "handover": {
        "link": 1, "next_link": 2, "predecessor_id": "100", "successor_id": "101",
        "interruption_h": 0.0169, "overlap_h": 0.0,
    },
    "chain": {"status": "done", "why": "all 3 links are used"},
    "note": {"text": "no look at Slurm (away)"},
}  # fmt: skip


def agent_line(event: str = "decision", **changes: Any) -> str:
    """A line of that event, and what is said otherwise; a value None is null."""
    values = {"log_version": 1, "time_s": AT_S, "chain": "0123abcd", "event": event, **EVENTS.get(event, {})}
    return json.dumps(values | changes)


@dataclass(frozen=True)
class Row:
    """One oddity: the line, what becomes of it, columns of its row, or what its reject says (None: it is taken)."""

    name: str
    lines: str
    becomes: str
    table: str = "agent_decisions"
    row: dict[str, Any] = field(default_factory=dict)
    refused: str | None = None


def _refused(name: str, lines: str, message: str, becomes: str = "refused") -> Row:
    return Row(name, lines, becomes, refused=message)


ROWS = (
    Row("no version", agent_line(version=None), "the version is null: older agents wrote none", row={"version": None}),
    Row("nothing could be observed", agent_line(observation={}, score=None), "no time left and no prediction",
        row={"left_s": None, "start_estimate_s": None, "start_expected_s": None, "score": None}),
    Row("half of a UTF-16 pair", agent_line(reason="a\ud800b"), "kept as an escape", row={"reason": "a\\ud800b"}),
    Row("a NUL in a text", agent_line(policy="a\0b"), "U+FFFD in its place", row={"policy": "a\ufffdb"}),
    Row("markup in a job name", agent_line("waits", job_name="<script>alert(1)</script>"), "kept as it is",
        "agent_events", {"job_name": "<script>alert(1)</script>"}),
    Row("hours of four digits", agent_line("handover"), "whole seconds: the log rounds to 0.36 s", "agent_events",
        {"interruption_s": 61, "overlap_s": 0, "link": 2, "predecessor_link": 1, "predecessor_id": "100"}),
    Row("a job cancelled while it waited", agent_line("ended", how="CANCELLED", start_s=None, exit_status=None),
        "no start", "agent_events", {"start_utc": None, "state": "CANCELLED", "exit_code": None}),
    Row("a plan", agent_line(by="plan", limit_s=7200, candidates=[{"limit_s": 3600, "interruption_h": 2.0},
                                                                  {"limit_s": 7200, "interruption_h": 0.5}]),
        "what it expects of the limit that it chose", row={"limit_s": 7200, "expected_interruption_s": 1800}),
    Row("a plan of one QOS, least limit and number of nodes",
        agent_line(by="plan", limit_s=7200, least_s=3600, nodes=2, qos="short", candidates=[
            {"limit_s": 7200, "least_s": least_s, "nodes": nodes, "qos": qos, "interruption_h": lost_h}
            for least_s, nodes, qos, lost_h in (
                (3600, 2, "", 4.0), (7200, 2, "short", 3.0), (3600, 4, "short", 2.0), (3600, 2, "short", 0.5),
            )
        ]), "what it expects of that link", row={"limit_s": 7200, "expected_interruption_s": 1800}),
    Row("a decision without a plan", agent_line(), "neither limit nor expectation",
        row={"limit_s": None, "expected_interruption_s": None}),
    _refused("candidates in words", agent_line(candidates="two"), "candidates is 'two', not a list of objects"),
    _refused("cut off by a kill or a full disk", agent_line()[:60], "not a line of JSON"),
    _refused("another version of the log", agent_line(log_version=2), "log_version is '2', not 1"),
    _refused("true in place of 1", agent_line(log_version=True), "log_version is 'True', not 1"),
    _refused("an unknown event", agent_line("born"), "event is 'born': known are decision, submitted"),
    _refused("a chain of another form", agent_line(chain="../../etc"), "chain is '../../etc', not eight"),
    _refused("a number that JSON has not", agent_line(score=float("nan")), "NaN is not a JSON number"),
    _refused("a time in hours", agent_line(time_s=1.5), "time_s is '1.5', not whole epoch seconds"),
    _refused("a time after 2106", agent_line("started", start_s=1 << 32), "start_s is '4294967296', not whole epoch"),
    _refused("a link below 0", agent_line(link=-1), "link is '-1', not a whole number from 0"),
    _refused("submit in words", agent_line(submit="yes"), "submit is 'yes', not true or false"),
    _refused("a wait beyond any", agent_line(observation={"start_estimate_h": 1e9}), "start_estimate_s 36000"),
    _refused("time left below 0", agent_line(observation={"remaining_h": -1}), "remaining_s -3600"),
    _refused("a handover without its gap", agent_line("handover", interruption_h=None), "interruption_h is missing"),
    _refused("a number of 5,000 digits", agent_line().replace("1.5", "9" * 5000), "not a line of JSON"),
    _refused("a list in place of an object", "[1]", "not a JSON object"),
    _refused("brackets without end", "[" * 100_000, ""),
)  # fmt: skip
