"""`baton calibrate` on a small dump whose starts obey a limit of two jobs a user."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from simulator.recorded.free import free_starts
from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.state import RecordedRules
from tests.pipelines.conftest import Baton
from tests.simulator.recorded.cases import jobs_of

FIELDS = "jobid,user,partition,submit,eligible,start,end,state,nnodes,timelimit,priority"


@pytest.fixture
def dump(baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """500 jobs over 50 days on 4 nodes, first come first served, two jobs a user at once; a data folder of its own."""
    monkeypatch.setenv("BATON_DATA", str(tmp_path / "data"))
    random = np.random.default_rng(5)
    count = 500
    submit = np.sort(random.integers(0, 50 * 86400, count))
    run, user = random.integers(600, 72000, count), random.integers(0, 6, count)
    size, limit, none = np.ones(count, np.int64), np.full(count, 72000), np.zeros(count, np.int64)
    record = RecordedTrace(submit, submit, submit + run, size, limit, user, none, [str(k) for k in range(count)])
    start = free_starts(record, jobs_of(record), RecordedRules(4, 0, 0, 2, NEVER, 0, 0), np.array([4], np.int64))
    origin = datetime(2024, 1, 1)

    def at(second: int) -> str:
        return (origin + timedelta(seconds=int(second))).isoformat()

    rows = [FIELDS.replace(",", "|")]
    for k in range(count):
        times = [at(submit[k]), at(submit[k]), at(start[k]), at(start[k] + run[k])]
        rows.append("|".join([str(k + 1), f"u{user[k]}", "gpu", *times, "COMPLETED", "1", "20:00:00", "1000"]))
    path = tmp_path / "dump.psv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_what_was_inferred_and_how_far_it_holds(baton: Baton, dump: Path) -> None:
    baton("ingest", dump, "--cluster", "lab", "--timezone", "UTC", "--fields", FIELDS)
    found = baton("calibrate", "--cluster", "lab", "--json").json
    assert found["jobs"] == 500
    assert found["fitted"]["max_jobs"] == 2
    assert found["fitted"]["points_per_hour"] is None
    (forked,) = (row for row in found["figures"] if row["form"] == "forked")
    assert forked["from_utc"].startswith("2024-02-01")
    assert forked["mean_absolute_error_s"] < 0.5 * forked["recorded_mean_wait_s"]
    assert sum(row["jobs"] for row in found["unexplained"]) == forked["jobs"]
    text = baton("calibrate", "--cluster", "lab", "--from", "2024-02-05", "--to", "2024-02-12").out
    assert "before 2024-02-05" in text and text.count("2024-02-05 ") - text.count("2024-02-05 forked, ") == 4
    assert "% of the error" in text


def test_a_window_without_jobs_is_refused(baton: Baton, dump: Path) -> None:
    baton("ingest", dump, "--cluster", "lab", "--timezone", "UTC", "--fields", FIELDS)
    refused = baton("calibrate", "--cluster", "lab", "--from", "2025-01-01", "--to", "2025-02-01")
    assert refused.code == 2 and "2025-01-01" in refused.err
    early = baton("calibrate", "--cluster", "lab", "--until", "2023-01-01")
    assert early.code == 2 and "no data to fit on before 2023-01-01" in early.err and early.err.count("\n") == 1
    unknown = baton("calibrate", "--cluster", "nowhere")
    assert unknown.code == 2 and "nowhere" in unknown.err and unknown.err.count("\n") == 1
    assert "--to" in baton("calibrate", "--cluster", "lab", "--from", "2024-02-01").err
