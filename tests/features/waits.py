"""Rows of `queueing_delay` of toy logs, for the tests of the causes of waits."""

from __future__ import annotations

from typing import Any

from features import queueing
from features.causes.waits import CAUSES
from tests.features.toy import CLUSTER, job, trace
from traces.clusters import ClusterSettings


def delays(
    jobs: list[dict[str, Any]],
    placements: list[dict[str, Any]] | None = None,
    reason: dict[str, str] | None = None,
    nodes: list[dict[str, Any]] | None = None,
    declared: dict[str, Any] | None = None,
    **known: Any,
) -> dict[str, dict[str, Any]]:
    """Rows of queueing_delay by job. nodes: the machine list. declared, known: settings of the cluster."""
    jobs = [{**row, "reason": (reason or {}).get(row["job_key"])} for row in jobs]
    of = trace(jobs, placements=placements or [], nodes=nodes or [])
    found = queueing.from_trace(of, ClusterSettings(CLUSTER, **(declared or {}), **known))["queueing_delay"]
    return {row["job_key"]: row for row in found.to_dicts()}


def spent(row: dict[str, Any]) -> dict[str, int]:
    """Seconds of each cause that has any, by its column without `_s`."""
    return {name.removesuffix("_s"): row[name] for name in CAUSES if row[name]}


def seconds(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in CAUSES)


def on(key: str, *nodes: str, gpus: int | None = 1) -> list[dict[str, Any]]:
    return [{"job_key": key, "attempt": 0, "node": node, "gpus": gpus} for node in nodes]


OPEN = job("open", 0, 0, None, 0, state="RUNNING", nodes=1)  # the log shows the machine at its end
