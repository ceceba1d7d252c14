"""Measured utilization from Philly's own files over the doubled hour, and its summaries against SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

from features.resources import utilization
from tests.features.resources.test_utilization import sample_frames, tables
from tests.features.toy import job, trace
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import query


def test_the_doubled_hour_is_exact(tmp_path: Path) -> None:
    """01:00 to 02:00 of 2017-11-05 stands twice in the files. An attempt of 20 minutes over the change of clocks has
    the last ten minutes of the first pass and the first ten of the second; its neighbours have the rest."""
    raw = tmp_path / "raw"
    raw.mkdir()
    spans = {
        "before": ("2017-11-05 00:40:00", "2017-11-05 01:50:00"),  # over at 01:50 of the first pass
        "across": ("2017-11-05 01:50:00", "2017-11-05 01:10:00"),
    }
    detail = [{"ip": "m1", "gpus": ["gpu0"]}]
    jobs = [
        {
            "status": "Pass", "vc": "v", "jobid": f"application_1_{i}", "user": name,
            "submitted_time": "2017-11-05 00:30:00",
            "attempts": [{"start_time": start, "end_time": end, "detail": detail}],
        }
        for i, (name, (start, end)) in enumerate(spans.items())
    ]  # fmt: skip
    (raw / "cluster_job_log").write_text(json.dumps(jobs))
    (raw / "cluster_machine_list").write_text("machineId, number of GPUs, single GPU mem\nm1,1, 12GB\n")
    minutes = [(0, m, "PDT") for m in range(60)] + [(1, m, zone) for zone in ("PDT", "PST") for m in range(60)]
    lines = [
        f"2017-11-05 {hour:02}:{minute:02}:00 {zone},m1,{80 if zone == 'PST' else 40 if hour else 20}"
        for hour, minute, zone in minutes
    ]
    (raw / "cluster_gpu_util").write_text("\n".join(["time,machineId,gpu0_util", *lines]) + "\n")
    known, data = ClusterSettings("philly", timezone="America/Los_Angeles"), DataFolder(tmp_path / "data")
    ingest([raw], cluster=known, data=data)
    warehouse.build(data)
    found = utilization.compute(data, known)["utilization_measured"].sort("job_key")
    assert found.height == 2
    rows = {row["job_key"][-1]: row for row in found.to_dicts()}
    across = rows["1"]
    assert (across["samples"], across["shared_node_minutes"]) == (20, 0)
    assert across["utilization_mean_percent"] == (10 * 40 + 10 * 80) / 20
    assert rows["0"]["utilization_mean_percent"] == (20 * 20 + 50 * 40) / 70 and rows["0"]["samples"] == 70


IDLE_SQL = """
WITH held AS (
    SELECT p.job_key, p.node, unnest(CAST(string_split(p.gpu_numbers, ',') AS BIGINT[])) AS gpu, a.start_utc, a.end_utc
    FROM placements p JOIN attempts a USING (job_key, attempt)
), sampled AS (
    SELECT h.job_key, h.node, s.sample_utc, count(s.utilization_percent) AS online, max(s.utilization_percent) AS most
    FROM gpu_utilization s JOIN held h ON s.node = h.node AND s.gpu = h.gpu
        AND s.sample_utc >= h.start_utc AND s.sample_utc < h.end_utc
    GROUP BY ALL
)
SELECT {value} AS value, count(DISTINCT job_key) AS attempts, 60 * sum(online)::BIGINT AS measured_gpu_time_s,
    coalesce(60 * sum(online) FILTER (WHERE most = 0), 0)::BIGINT AS idle_gpu_time_s,
    coalesce(sum(online) FILTER (WHERE most = 0), 0) / nullif(sum(online), 0) AS idle_share
FROM sampled JOIN jobs USING (job_key) GROUP BY value ORDER BY value
"""
BY_SQL = """
SELECT j.state, count(DISTINCT j.job_key) AS jobs, count(*) AS attempts, count(m.samples) AS measured_attempts,
    coalesce(sum(m.samples), 0)::BIGINT AS samples,
    sum(m.utilization_mean_percent * (m.samples - m.offline_samples)) / sum(m.samples - m.offline_samples)
        AS utilization_mean_percent
FROM attempts a JOIN jobs j USING (job_key) LEFT JOIN measured m USING (job_key, attempt) GROUP BY j.state ORDER BY 1
"""


def random_case() -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(11)
    jobs, placements = [], []
    for i in range(60):
        start = int(rng.integers(0, 12_000))
        end = start + int(rng.lognormal(6, 1.5))
        state = ("COMPLETED", "FAILED", "CANCELLED")[i % 3]
        jobs.append(job(f"j{i}", 0, start, end, 2, user_name=f"u{i % 7}", partition=f"p{i % 2}", state=state))
        for node in rng.choice(4, 1 + i % 2, replace=False):
            numbers = ",".join(map(str, sorted(rng.choice(4, 1 + i % 3, replace=False))))
            placements.append({"job_key": f"j{i}", "node": f"n{node}", "gpus": 1, "gpu_numbers": numbers})
    values = [None, *[0.0] * 12, 20.0, 80.0]
    samples = [(f"n{n}", m, g, values[rng.integers(0, 15)]) for n in range(4) for m in range(200) for g in range(4)]
    return trace(jobs, placements=placements), samples


def test_idle_time_and_use_by_state_are_those_of_sql() -> None:
    of, samples = random_case()
    frames = {**sample_frames(of, samples), "jobs": of.jobs}
    found = tables(of, samples)
    for dimension, value in (("user_name", "user_name"), ("job_key", "job_key"), ("partition", '"partition"')):
        expected = query(IDLE_SQL.format(value=value), frames)
        assert expected["idle_gpu_time_s"].sum() > 0
        got = found["idle_gpu_time"].filter(pl.col("dimension") == dimension).select(expected.columns).sort("value")
        assert_frame_equal(got, expected, check_dtypes=False)
    by = query(BY_SQL, {"attempts": of.attempts, "jobs": of.jobs, "measured": found["utilization_measured"]})
    got = found["utilization_by"].filter(pl.col("size_bucket") == "2-4").select(by.columns).sort("state")
    assert_frame_equal(got, by, check_dtypes=False)
    assert found["utilization_by"]["attempts"].sum() == 60
