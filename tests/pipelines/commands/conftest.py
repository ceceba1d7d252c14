"""A small generated dump of a cluster `lab`, for commands that look at a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.recorded.record import NEVER
from tests.features.submission.logs import generated_log
from tests.pipelines.conftest import Baton
from traces import instants

FIELDS = "jobid,user,account,partition,submit,eligible,start,end,state,nnodes,timelimit"


@pytest.fixture(scope="session")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 jobs over 30 days on ten nodes, from 2023-11-14 on."""
    log = generated_log(7, jobs=500, days=30)
    record, rows = log.record, []
    for k in range(len(record)):
        ran = record.start_s[k] < NEVER
        submit, end = (instants.utc(int(column[k])).isoformat() for column in (record.submit_s, record.end_s))
        start = instants.utc(int(record.start_s[k])).isoformat() if ran else "Unknown"
        names = (log.names[name][k] for name in ("user", "account", "partition"))
        limit = f"{int(record.limit_s[k]) // 60 + 1}:00"
        state = "COMPLETED" if ran else "CANCELLED"
        rows.append("|".join([str(k + 1), *names, submit, submit, start, end, state, str(record.size[k]), limit]))
    path = tmp_path_factory.mktemp("wait") / "dump.psv"
    path.write_text("\n".join([FIELDS.replace(",", "|"), *rows]) + "\n")
    return path


@pytest.fixture
def lab(baton: Baton, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Baton:
    """The dump as cluster `lab` in a data folder of its own."""
    monkeypatch.setenv("BATON_DATA", str(tmp_path / "data"))
    assert baton("ingest", dump, "--cluster", "lab", "--timezone", "UTC", "--fields", FIELDS).code == 0
    return baton
