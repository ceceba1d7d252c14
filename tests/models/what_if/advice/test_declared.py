"""The declared cluster before and after a diff, on recordings of a real Slurm and on a made cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from models.study.slurm import files as slurm_files
from models.study.slurm.files import SlurmDescription
from models.what_if.advice.declared import (
    PairedWaits,
    answer_declared,
    compare_declared,
    edit_of,
    edited_description,
    paired_waits,
    with_max_time,
)
from models.what_if.advice.slurm_diff import slurm_diff
from simulator.slurm import world as w
from simulator.slurm.run import run
from tests.live import recording
from tests.models.study.slurm.test_pairs import DAYS, RECORDING, ingested
from traces import clusters, instants
from traces.errors import InputError
from traces.slurm.accounts import Association
from traces.units import DAY_S, HOUR_S

DESCRIBED = recording.described(RECORDING)
WHOLE = (0, w.NEVER)


def after(change: str) -> SlurmDescription:
    return edited_description(DESCRIBED, slurm_diff([change], DESCRIBED.conf, DESCRIBED.qos))


def answer(change: str) -> dict[str, dict[str, Any]]:
    """The rows by figure of the recorded four hours, with intervals over blocks of half an hour."""
    diff = slurm_diff([change], DESCRIBED.conf, DESCRIBED.qos)
    jobs = recording.read(RECORDING)
    changed = recording.world(RECORDING, jobs, declared=edited_description(DESCRIBED, diff))
    changed = with_max_time(changed, after(change).conf, diff.conf)
    found = answer_declared(paired_waits(recording.world(RECORDING, jobs), changed, WHOLE), 1800)
    return {row["figure"]: row for row in found["results"]} | {"answer": found}


def test_commands_change_the_rows_of_the_dumps() -> None:
    qos = {row.name: row for row in after("max_jobs.qos.high=2 and max_nodes.qos.high=3").qos or ()}
    assert qos["high"].max_jobs_per_user == 2
    assert qos["high"].max_tres_per_user == {"gres/gpu": 12, "node": 3}
    assert qos["normal"].max_jobs_per_user is None
    free = {row.name: row for row in after("max_jobs.qos.high=UNLIMITED").qos or ()}
    assert free["high"].max_jobs_per_user is None
    tree = after("max_jobs.user.games=2 and max_nodes.user.games=5 and max_nodes.user.games=UNLIMITED").associations
    assert [(row.max_jobs, row.grp_tres) for row in tree or () if row.user == "games"] == [(2, {})]
    assert all(row.max_jobs is None for row in tree or () if row.user != "games")
    with pytest.raises(InputError, match="'nobody' has no row"):
        after("max_jobs.user.nobody=2")


def test_rows_that_inherit_a_limit_of_their_account_follow_it() -> None:
    rows = (
        Association("root"),
        Association("lab", parent="root", max_jobs=6),
        Association("sub", parent="lab", max_jobs=6),
        *(Association("sub", user, max_jobs=most) for user, most in (("amy", 6), ("bob", 2))),
        Association("other", "amy", max_jobs=6),
    )
    diff = slurm_diff(["max_jobs.account.lab=3"])
    after_it = edited_description(DESCRIBED._replace(associations=rows), diff).associations or ()
    assert [row.max_jobs for row in after_it] == [None, 3, 3, 3, 2, 6]
    ring = (Association("lab", parent="sub", max_jobs=6), Association("sub", parent="lab", max_jobs=6))
    after_it = edited_description(DESCRIBED._replace(associations=ring), diff).associations or ()
    assert [row.max_jobs for row in after_it] == [3, 3]


def test_a_raised_user_gets_a_qos_and_its_jobs_move_there() -> None:
    diff = slurm_diff(["priority.user.games=+500"], DESCRIBED.conf, DESCRIBED.qos)
    jobs = pl.DataFrame(
        {
            "user_name": ["games", "games", "games", "man"],
            "account": ["a"] * 4,
            "qos": [None, "Normal", "high", "normal"],
            "start_utc": [None, instants.utc(50), instants.utc(50), None],
        }
    )
    described, moved = edit_of(diff, 50)(DESCRIBED, jobs)
    assert moved["qos"].to_list() == ["advised_user_games", "advised_user_games", "high", "normal"]
    assert edit_of(diff, 51)(DESCRIBED, jobs)[1]["qos"].to_list()[1] == "Normal"  # it ran by then
    row = {one.name: one for one in described.qos or ()}["advised_user_games"]
    normal = {one.name: one for one in described.qos or ()}["normal"]
    # 500 points are 500/3000 of the highest Priority, 1000
    assert row.priority - normal.priority == round(500 / 3000 * 1000)


@pytest.mark.parametrize(("change", "name"), [("limit.2h", "advised_limit_2h"), ("nodes.1", "advised_nodes_1")])
def test_short_and_small_jobs_ask_for_their_new_qos(change: str, name: str) -> None:
    diff = slurm_diff([f"priority.{change}=+500"], DESCRIBED.conf, DESCRIBED.qos)
    jobs = pl.DataFrame(
        {
            "qos": ["normal", "normal", "high", None],
            "limit_s": [7200, 7201, 60, None],
            "allocated_nodes": [1, 2, 1, None],
            "requested_nodes": [2, 2, 1, None],
            "start_utc": [instants.utc(9)] * 4,
        }
    )
    described, moved = edit_of(diff, 0)(DESCRIBED, jobs)
    assert moved["qos"].to_list() == [name, "normal", "high", None]
    assert any(row.name == name for row in described.qos or ())


def test_max_wall_caps_the_jobs_of_a_qos_a_user_and_an_account() -> None:
    rows = (Association("lab"), Association("sub", parent="lab"), Association("sub", "amy"), Association("other"))
    jobs = pl.DataFrame(
        {
            "user_name": ["amy", "bob", "amy", "bob", "bob"],
            "account": ["Sub", "lab", "other", "other", "sub"],
            "qos": [None, "normal", "high", "high", "Normal"],
            "start_utc": [None] * 5,
        },
        schema_overrides={"start_utc": pl.Datetime},
    )

    def walls(*changes: str) -> list[int | None]:
        edited = edit_of(slurm_diff(changes, DESCRIBED.conf, DESCRIBED.qos), 0)
        _described, capped = edited(DESCRIBED._replace(associations=rows), jobs)
        return [wall_s and wall_s // HOUR_S for wall_s in capped["wall_s"].to_list()]

    assert walls("limit.account.lab=5h") == [5, 5, None, None, 5]
    assert walls("limit.user.amy=2h", "limit.account.lab=5h") == [2, 5, 2, None, 5]
    assert walls("limit.qos.normal=9h", "limit.user.amy=2h") == [9, 9, 2, None, 9]
    assert walls("limit.user.amy=UNLIMITED", "limit.partition.gpu=1h") == [None] * 5


@pytest.mark.parametrize(("change", "sign"), [("backfill=off", 1), ("max_jobs.qos.normal=1", 1)])
def test_a_bad_diff_is_called_bad(change: str, sign: int) -> None:
    row = answer(change)["mean_wait_s"]
    assert row["verdict"] == "more"
    assert np.sign(row["difference"]) == sign
    assert row["difference_ci95"][0] > 0


def test_no_change_is_no_difference() -> None:
    found = answer("backfill.window=1-0")  # as it is by default
    assert {row["verdict"] for name, row in found.items() if name != "answer"} == {"no change"}
    base = found["answer"]["base"]
    assert base["trust"]["level"] == "figures"
    assert abs(base["replayed"]["mean_wait_s"] / base["recorded"]["mean_wait_s"] - 1) < 0.1


def world(limit_s: int = 100) -> w.SlurmWorld:
    """Four jobs of one node and 50 s on one node; all submitted at once, recorded back to back."""
    ones, zero = np.ones(4, np.int64), np.zeros(4, np.int64)
    pinned_s = np.array([0, 50, 100, w.NEVER])
    jobs = w.plain_jobs(zero, 50 * ones, limit_s * ones, ones, pinned_s=pinned_s)
    return w.flat_world(jobs, 1, w.SlurmSettings())


def test_paired_waits_of_a_small_world() -> None:
    paired = paired_waits(world(), world(), WHOLE)
    np.testing.assert_array_equal(paired.recorded_s, [0, 50, 100, np.nan])
    assert (paired.before_s == paired.after_s).all()
    assert (paired.both.tolist(), paired.lost) == ([True, True, True, False], 0)
    other = replace(world(), jobs=replace(world().jobs, submit_s=np.arange(4)))
    with pytest.raises(InputError, match="different jobs"):
        paired_waits(world(), other, WHOLE)


def test_a_window_begins_at_the_recorded_state() -> None:
    """On one node runs job 0 from 0 to 100; job 1 waits since 20. The jobs from second 50 on are judged: job 2.

    A shorter limit cuts job 1, and not job 0, which runs when the change is made.
    """
    columns = ([0, 20, 60], [100, 80, 10], [90, 80, 80], [1, 1, 1])
    jobs = w.plain_jobs(*(np.array(column) for column in columns), pinned_s=np.array([0, 100, 180]))
    before = w.flat_world(jobs, 1, w.SlurmSettings(kill_wait_s=0, completing_s=0))
    shorter = replace(before.partitions, max_time_s=np.array([40]))
    cut = replace(before, partitions=shorter, jobs=replace(jobs, limit_s=np.full(3, 40)))
    paired = paired_waits(before, cut, (50, 70))
    assert (paired.submit_s.tolist(), paired.recorded_s.tolist()) == ([60], [120.0])
    assert (paired.before_s.tolist(), paired.after_s.tolist()) == ([120.0], [80.0])
    assert len(paired_waits(before, cut, (50, 60)).submit_s) == 0
    unknown = replace(before, jobs=replace(jobs, partition=np.array([w.NONE, 0, 0])))
    assert (
        "1 job that ran can never start under it: unknown" in paired_waits(unknown, unknown, (50, 70)).contradictions[0]
    )


def test_jobs_that_never_start_are_counted_apart() -> None:
    longer = replace(world().partitions, max_time_s=np.array([60]))
    paired = paired_waits(world(), replace(world(), partitions=longer), WHOLE)
    assert paired.lost == 3
    with pytest.raises(InputError, match="nothing to compare"):
        answer_declared(paired)
    recorded_s, before_s, after_s = (np.array(x, float) for x in ([5, 5], [5, 5], [7, np.nan]))
    some = PairedWaits(np.zeros(2, np.int64), recorded_s, before_s, after_s)
    found = answer_declared(some)
    assert (found["jobs"], found["never"], found["results"][0]["difference"]) == (1, 1, 2.0)
    assert "1 job can never start" in found["said"][0]


def test_a_lower_max_time_cuts_the_jobs_of_its_partition() -> None:
    change = "limit.partition.short=10m"
    diff = slurm_diff([change], DESCRIBED.conf)
    jobs = recording.read(RECORDING)
    before = recording.world(RECORDING, jobs)
    cut = with_max_time(before, after(change).conf, diff.conf)
    short = before.partitions.names.index("short")
    ours = before.jobs.partition == short
    assert before.jobs.limit_s[ours].max() > 600
    assert cut.jobs.limit_s[ours].max() == cut.partitions.max_time_s[short] == 600
    np.testing.assert_array_equal(cut.jobs.limit_s[~ours], before.jobs.limit_s[~ours])


def test_a_cluster_of_the_warehouse(tmp_path: Path) -> None:
    """Every third recorded job on nine days, from two hours into the second: one running job a user makes all wait.

    Their recorded waits are those among all jobs, so the base is far off, and the verdict says so.
    """
    for name in ("slurm.conf", "qos.psv", "assoc.psv"):
        (tmp_path / name).write_bytes((RECORDING / name).read_bytes())
    data = ingested(tmp_path, '[live]\nslurm_conf = "slurm.conf"\n')
    files = slurm_files.declared(data, clusters.resolve(data, cluster="live"))
    assert files is not None
    first_s = instants.epoch_s(datetime(2026, 12, 1))
    window = (first_s + DAY_S + 2 * HOUR_S, first_s + DAYS * DAY_S)
    diff = slurm_diff(["max_jobs.qos.normal=1"], files.conf, DESCRIBED.qos)
    found = compare_declared(files, diff, window)
    row = found["results"][0]
    assert row["difference_ci95"][0] > 0
    assert row["base_error"] > row["difference"]
    assert (row["verdict"], found["base"]["trust"]["level"]) == ("cannot tell", "direction")
    cut = compare_declared(files, slurm_diff(["limit.user.games=5m"], files.conf, DESCRIBED.qos), window)
    assert cut["base"] == found["base"] and cut["results"][0]["difference"] < 0
    same = compare_declared(files, slurm_diff(["limit.user.games=9-0"], files.conf, DESCRIBED.qos), window)
    assert {row["verdict"] for row in same["results"]} == {"no change"}

    from_s = window[0] + 6 * DAY_S
    late = slurm_files.load_slurm_files(files, around=(from_s, from_s + HOUR_S)).world
    jobs, end_s = late.jobs, late.jobs.pinned_s + late.jobs.run_s
    assert from_s - 4 * DAY_S <= end_s[jobs.pinned_s < w.NEVER].min()  # eight half-lives of half a day
    assert jobs.submit_s.max() < from_s + HOUR_S and len(np.unique(jobs.submit_s // DAY_S)) == 5
    runs = (jobs.pinned_s < from_s) & (end_s >= from_s)
    assert runs.sum() > 1
    np.testing.assert_array_equal(np.diff(late.pinned_first), np.where(runs, jobs.nodes, 0))
    begun = run(late, free_from=from_s, until=from_s)
    np.testing.assert_array_equal(begun.start_s[runs], jobs.pinned_s[runs])
    assert len(begun.placement) == jobs.nodes.sum()
    assert set(begun.placement[np.repeat(runs, jobs.nodes)]) == set(late.pinned_nodes)
