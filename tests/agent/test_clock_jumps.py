"""A host's clock that really jumps under a running agent: an hour forward, an hour back, and back to the 1970s."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.jumping import LINK_S, OFFSETS_S, QUICKER
from tests.conftest import REPOSITORY, skip_or_fail

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


def test_a_clock_of_the_host_that_jumps_costs_no_link_and_changes_no_time(tmp_path: Path) -> None:
    if not LIBRARY.exists():
        skip_or_fail("slurm", f"no {LIBRARY} on this machine (make system installs Debian's faketime)")
    (tmp_path / "clock").write_text("+0\n")
    faked = {"LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(tmp_path / "clock"), "FAKETIME_NO_CACHE": "1",
             "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent.jumping", str(tmp_path)], cwd=REPOSITORY, env={**os.environ, **faked},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    log = "\n".join(found["log"])
    assert found["clocks_s"] == pytest.approx(OFFSETS_S, abs=2), "the clock did jump"
    assert [name for name, _, _ in found["jobs"]] == ["1.1", "2.1", "3.1", "4.1"], f"each link once: {log}"
    assert found["code"] == 0 and log.count("this machine's clock jumped by ") == 3, log
    assert all(7 < pause_s < 20 for pause_s in found["pauses_s"]), "no busy loop, and no pause of an hour"
    assert len(found["pauses_s"]) <= found["lasted_s"] * QUICKER / 10 + 1
    events = {name: [one for one in found["journal"] if one["event"] == name] for name in ("started", "ended")}
    assert all(one["start_s"] >= one["submit_s"] for one in events["started"])
    assert all(LINK_S <= one["end_s"] - one["start_s"] < LINK_S + 10 for one in events["ended"])
    gaps_h = [one["interruption_h"] for one in found["journal"] if one["event"] == "handover"]
    assert len(gaps_h) == 3 and all(0 <= gap_h < 10 / 3600 for gap_h in gaps_h), log
    times_s = [one["time_s"] - found["begun_s"] for one in found["journal"]]
    assert times_s == sorted(times_s) and times_s[0] > -2 and times_s[-1] < found["lasted_s"] + 2, times_s
