"""The causes of waits against the reasons that a real Slurm gave over time: a recording, and a fresh run."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from features.causes.waits import CAUSES
from tests.conftest import skip_or_fail
from tests.live import reason_causes
from tests.live.reason_causes import MEANINGS, agreement, allowed, by_reason, by_scene, compared, confusion
from tests.live.reasons import Looks, record
from tests.live.reasons_workload import short
from tests.live.slurm import missing

RECORDING = Path(__file__).parents[1] / "fixtures/reasons"
# As measured, rounded down to 0.001. Of scenes the ones that the log can show: a maintenance looks like a drain.
FLOOR = 0.968
REASONS = {
    "AssocMaxJobsLimit": 1.0,
    "BeginTime": 0.998,
    "Dependency": 0.996,
    "JobArrayTaskLimit": 1.0,
    "JobHeldAdmin": 1.0,
    "JobHeldUser": 1.0,
    "Licenses": 1.0,
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": 1.0,
    "PartitionConfig": 1.0,
    "PartitionDown": 0.877,
    "PartitionTimeLimit": 1.0,
    "Priority": 0.969,
    "QOSGrpGRES": 1.0,
    "QOSMaxGRESPerUser": 1.0,
    "QOSMaxJobsPerUserLimit": 1.0,
    "ReqNodeNotAvail, May be reserved for other job": 1.0,
    "ReqNodeNotAvail, UnavailableNodes": 1.0,
    "Reservation": 1.0,
    "Resources": 0.833,
}
SCENES = {
    "chain": 0.992,
    "drained": 0.623,
    "eval": 0.999,
    "fit": 0.999,
    "fold": 1.0,
    "held": 1.0,
    "later": 0.998,
    "lesson": 1.0,
    "nightly": 0.999,
    "pair": 0.899,
    "patient": 0.863,
    "paused": 0.863,
    "probe": 0.781,
    "render": 0.923,
    "solve": 0.999,
    "step": 0.055,
    "sweep": 0.999,
    "too long": 1.0,
    "two": 0.974,
    "whole": 0.896,
    "wide": 0.998,
}


@pytest.fixture(scope="module")
def pairs() -> pl.DataFrame:
    """The recording's seconds by reason and cause."""
    return compared(RECORDING)


def test_causes_agree_with_the_reasons_of_a_real_slurm(
    pairs: pl.DataFrame, record_property: Callable[[str, object], None]
) -> None:
    record_property("said", confusion(pairs))
    shares, scenes = by_reason(pairs), by_scene(pairs)
    assert agreement(pairs) >= FLOOR
    assert {reason: share for reason, share in shares.items() if share < REASONS[reason]} == {}
    assert {scene: scenes[scene] for scene, floor in SCENES.items() if scenes[scene] < floor} == {}


def test_each_second_of_the_recorded_waits_counts_once(pairs: pl.DataFrame) -> None:
    jobs = reason_causes.ingested(RECORDING)
    waits = dict(jobs.filter(pl.col("wait_s") > 0).select("job_id", "wait_s").iter_rows())
    assert dict(pairs.group_by("job_id").agg(pl.col("seconds").sum()).iter_rows()) == waits


def test_sacct_keeps_the_last_reason_other_than_priority_and_resources() -> None:
    """What `features.causes.waits` and the column `reason` of jobs rely on."""
    last: dict[str, str] = {}
    for line in gzip.decompress((RECORDING / "reasons.psv.gz").read_bytes()).decode().splitlines():
        job, reason, *_ = line.split("|")
        if reason not in ("Priority", "Resources", "None"):
            named = "ReqNodeNotAvail" if reason.startswith("Nodes required") else reason.partition(",")[0]
            last[job] = named
    jobs = reason_causes.ingested(RECORDING)
    kept = {job: reason for job, reason in jobs.select("job_id", "reason_in_sacct").iter_rows() if reason != "None"}
    assert kept == last


def test_as_many_seconds_agree_as_can() -> None:
    reasons = {"Priority": 30, "Dependency": 20, "None": 10}
    causes = {"held_s": 20, "own_limit_s": 10, "cluster_full_s": 25, "behind_s": 5}
    found = reason_causes._paired(reasons, causes)
    assert sum(seconds for *_, seconds in found) == 60
    assert sorted(found) == [
        ("Dependency", "held_s", True, 20), ("None", "own_limit_s", True, 10),
        ("Priority", "behind_s", True, 5), ("Priority", "cluster_full_s", True, 25),
    ]  # fmt: skip
    assert reason_causes._paired({"BeginTime": 7}, {"held_s": 3, "behind_s": 4}) == [
        ("BeginTime", "held_s", True, 3), ("BeginTime", "behind_s", False, 4),
    ]  # fmt: skip


def test_every_reason_and_scene_names_causes_of_ours() -> None:
    assert {cause for one in MEANINGS for cause in one.causes} | set(reason_causes.SCENES.values()) == set(CAUSES)
    assert allowed("QOSMaxGRESPerUser") == ("own_limit_s", "own_jobs_s")
    assert allowed("QOSGrpGRES") == ("own_limit_s",)
    assert allowed("ReqNodeNotAvail, Reserved for maintenance") == ("reservation_s",)
    assert allowed("PartitionInactive") == ("nodes_down_s", "unknown_s")
    assert allowed("None") == CAUSES
    with pytest.raises(ValueError, match="'BurstBufferStageIn'"):
        allowed("BurstBufferStageIn")


def test_looks_keep_a_row_for_each_run_of_one_reason() -> None:
    looks = Looks()
    looks.add(0, ["1|10|None", "2|9|ReqNodeNotAvail, UnavailableNodes:n[1,2]"])
    looks.add(30, ["1|11|Priority", "2|9|ReqNodeNotAvail, UnavailableNodes:n[1,2]"])
    looks.add(60, ["1|12|Priority"])
    looks.add(90, [])
    assert looks.rows == [
        "1|None|0|0|10", "2|ReqNodeNotAvail, UnavailableNodes:n[1,2]|0|30|9", "1|Priority|30|60|11"
    ]  # fmt: skip


@pytest.mark.live
def test_causes_agree_with_the_reasons_of_a_fresh_run(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The short form of the workload, with room for a disturbed machine."""
    reason = missing(clock=True)
    if reason:
        skip_or_fail("slurm", reason)
    record(tmp_path, short())
    pairs = compared(tmp_path)
    record_property("said", confusion(pairs))
    assert pairs["job_id"].n_unique() >= 60  # that waited
    assert agreement(pairs) >= 0.75  # 0.88 and 0.89 in two runs
