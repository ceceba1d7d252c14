"""The rows that a log of `baton-agent` would leave, invented: handovers of two versions of a policy, hostile names."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from traces.units import HOUR_S

LIMIT_H = 12
HOSTILE = "<img src=p onerror=alert(9)>"


def agent_tables(
    rng: np.random.Generator, cluster: str, first_utc: datetime, *, handovers: int, sha: str
) -> dict[str, pl.DataFrame]:
    """`agent_decisions` and `agent_events` of one chain: each link is decided upon once and waits up to 6 h."""
    decisions: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    about = {"cluster": cluster, "chain": "0123abcd", "trace_sha256": sha}

    def event(at: datetime, kind: str, link: int, **values: Any) -> None:
        who = {"link": link, "attempt": 1, "job_id": str(link), "job_name": f"{HOSTILE}-{link}"}
        events.append({**about, "time_utc": at, "event": kind, "line": 2 * len(events), **who, **values})

    start = first_utc
    event(start, "submitted", 1, submit_utc=start, dependency="")
    event(start, "started", 1, submit_utc=start, start_utc=start)
    for link in range(1, handovers + 1):
        end = start + timedelta(hours=LIMIT_H)
        wait_s, longest_s = int(rng.exponential(1.5 * HOUR_S)), int(rng.exponential(2.5 * HOUR_S))
        submit = end - timedelta(seconds=longest_s // 2)
        left_s = longest_s // 2
        decision = {
            "time_utc": submit, "link": link, "predecessor_id": str(link), "submit": True, "decided_by": "policy",
            "reason": HOSTILE, "score": 0.5, "policy": HOSTILE if link % 2 else "forest", "version": "0" * 12,
            "setting": 1.0, "left_s": left_s, "start_estimate_s": longest_s, "start_expected_s": longest_s // 3,
            "hidden": "", "line": 2 * len(decisions) + 1,
        }  # fmt: skip
        if link % 5 == 0:
            decision |= {"decided_by": "plan", "policy": "plan", "version": None, "limit_s": LIMIT_H * HOUR_S,
                         "expected_interruption_s": 1800}  # fmt: skip
        decisions.append(about | decision)
        event(submit, "submitted", link + 1, submit_utc=submit, dependency="")
        start = submit + timedelta(seconds=wait_s)
        event(start, "started", link + 1, submit_utc=submit, start_utc=start)
        event(end, "ended", link, start_utc=end - timedelta(hours=LIMIT_H), end_utc=end, state="TIMEOUT", exit_code=0)
        gap_s = int((start - end).total_seconds())
        event(
            max(start, end), "handover", link + 1, attempt=None, job_name=None, predecessor_link=link,
            predecessor_id=str(link), interruption_s=max(gap_s, 0), overlap_s=max(-gap_s, 0),
        )  # fmt: skip
    return {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in
            (("agent_decisions", decisions), ("agent_events", events))}  # fmt: skip
