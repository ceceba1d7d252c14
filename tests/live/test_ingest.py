"""A real Slurm runs jobs of every kind; its own dump goes through ingest and says what was submitted."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.live.slurm import Slurm
from tests.live.workload import DUMP, HOSTILE_NAMES, submit_all
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

pytestmark = pytest.mark.live


def test_accounting_of_a_real_slurm_reads_back_as_submitted(slurm: Slurm, tmp_path: Path) -> None:
    expected = submit_all(slurm)
    dump = tmp_path / "sacct.psv"
    dump.write_bytes(slurm.run(*DUMP).encode(errors="surrogateescape"))
    data = DataFolder(tmp_path / "data")

    (result,) = ingest([dump], cluster=ClusterSettings("live"), data=data)
    warehouse.build(data)

    assert result.rejects == 0
    assert result.rows == result.allocations + result.steps + result.samples + result.duplicates
    jobs = warehouse.read(data, "SELECT * FROM jobs")
    rows = {str(row["job_id_raw"]): row for row in jobs.iter_rows(named=True)}
    assert rows.keys() == expected.keys()
    attempts = warehouse.read(data, "SELECT * FROM attempts ORDER BY job_key, attempt")
    for job, kind in expected.items():
        row = rows[job]
        runs = attempts.filter(pl.col("job_key") == row["job_key"])
        assert (row["state"], row["attempts"]) == (kind.state, kind.attempts), row
        assert kind.first_state is None or runs["state"][0] == kind.first_state, runs
        if kind.submitted_s and kind.attempts == 1:  # Slurm resets the submission of a requeued job
            assert abs(row["submit_utc"].timestamp() - kind.submitted_s) < 15, row
        if kind.least_s:
            assert runs["run_s"][-1] >= kind.least_s, runs
            assert (runs["end_utc"][-1] - runs["start_utc"][-1]).total_seconds() == runs["run_s"][-1]
        if kind.attempts:
            assert row["allocated_gpus"] == kind.gpus
            assert row["wait_s"] >= 0 and row["submit_utc"] <= row["start_utc"], row
            if kind.attempts == 1:  # a requeue may overwrite when the run before it became eligible
                assert row["submit_utc"] <= row["eligible_utc"] <= row["start_utc"], row
        else:
            assert row["start_utc"] is None and row["wait_s"] is None
    assert set(HOSTILE_NAMES[:5]) <= set(jobs["job_name"])

    # GPU seconds, by Slurm's own count of each run
    by_slurm = 0
    for line in slurm.run(
        "sacct", "-a", "-D", "-X", "-n", "-P", "--format=ElapsedRaw,AllocTRES", "-S", "now-1day"
    ).split():
        elapsed, tres = line.split("|")
        counts = dict(item.split("=") for item in tres.split(",") if item)
        by_slurm += int(elapsed) * int(counts.get("gres/gpu", 0))
    assert attempts["gpu_time_s"].sum() == by_slurm
