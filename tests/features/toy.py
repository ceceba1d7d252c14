"""Small traces as canonical frames, by hand and by hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl
from hypothesis import strategies as st

from features.trace import Trace
from traces import schema
from traces.store.frames import conform, empty

EPOCH = datetime(2023, 2, 6)  # a Monday
CLUSTER = "toy"


def at(seconds: int | None) -> datetime | None:
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


def table(of: schema.Table, rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Rows with defaults for the required columns that say nothing here."""
    if not rows:
        return empty(of)
    defaults = {
        "cluster": CLUSTER, "state": "COMPLETED", "state_is_inferred": False, "attempts": 1, "attempt": 0,
        "is_time_ambiguous": False, "trace_sha256": "0", "line": 1,
    }  # fmt: skip
    names = set(of.names)
    full = [{name: value for name, value in {**defaults, **row}.items() if name in names} for row in rows]
    return conform(of, pl.from_dicts(full, infer_schema_length=None))


def job(
    key: str, submit: int | None, start: int | None = None, end: int | None = None, gpus: int | None = 1, **more: Any
) -> dict[str, Any]:
    """A job of one attempt; times in seconds after EPOCH."""
    run = None if start is None or end is None else end - start
    return {
        "job_key": key, "job_id": key, "submit_utc": at(submit), "eligible_utc": at(more.pop("eligible", None)),
        "start_utc": at(start), "end_utc": at(end),
        "requested_gpus": gpus, "allocated_gpus": 0 if start is None else gpus,
        "requested_nodes": more.get("nodes"), "run_s": run, "gpus": gpus,
        "cpus": more.get("allocated_cpus"),
        "wait_s": None if start is None or submit is None else start - submit,
        "gpu_time_s": None if run is None or gpus is None else run * gpus,
        **more,
    }  # fmt: skip


def trace(
    jobs: Sequence[dict[str, Any]],
    attempts: Sequence[dict[str, Any]] | None = None,
    placements: Sequence[dict[str, Any]] = (),
    nodes: Sequence[dict[str, Any]] = (),
) -> Trace:
    """Without `attempts` each job that started has one, the job's own."""
    if attempts is None:
        attempts = [row for row in jobs if row["start_utc"] is not None]
    return Trace(
        table(schema.JOBS, jobs),
        table(schema.ATTEMPTS, attempts),
        table(schema.PLACEMENTS, placements),
        table(schema.NODES, nodes),
    )


GROUPS = ("vc-a", "vc-b", "vc-c")


@st.composite
def random_jobs(draw: st.DrawFn, fewest: int = 0, most: int = 12) -> list[dict[str, Any]]:
    """Jobs of three groups, some held, some never run, some with no GPU count, some of zero length."""
    rows = []
    for index in range(draw(st.integers(fewest, most))):
        submit = draw(st.integers(0, 5000))
        held = draw(st.sampled_from((0, 0, 0, 700)))
        ran = draw(st.booleans()) or draw(st.booleans())
        start = submit + held + draw(st.integers(0, 4000)) if ran else None
        end = (start or submit) + draw(st.integers(0, 6000))
        gpus = draw(st.sampled_from((None, 0, 1, 2, 4, 8, 16)))
        rows.append(
            job(
                f"j{index}", submit, start, end, gpus,
                eligible=submit + held, partition=draw(st.sampled_from((*GROUPS, None))), nodes=draw(st.integers(1, 3)),
                user_name=draw(st.sampled_from(("ann", "<b>bob</b>"))),
                state="COMPLETED" if ran else "CANCELLED", attempts=1 if ran else 0,
            )
        )  # fmt: skip
    return rows
