"""The recorded scene and its replays: the base repeats what its rules made, and a change alters what it names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from models.what_if.recorded.changes import changed_recorded
from models.what_if.recorded.outcomes import outcome_of
from models.what_if.recorded.replays import starts_of, usable_nodes_of
from models.what_if.recorded.scene import FittedRules, RecordedScene, follow_window
from simulator.recorded.record import NEVER
from tests.models.what_if.recorded import cases
from traces.errors import InputError
from traces.slurm.conf import PartitionConf, SlurmConf
from traces.units import DAY_S, HOUR_S


@pytest.fixture(scope="module")
def scene() -> RecordedScene:
    return cases.scene()


@pytest.mark.parametrize("is_whole", [False, True])
def test_the_base_repeats_a_record_that_its_rules_made(scene: RecordedScene, is_whole: bool) -> None:
    starts, jobs = starts_of(scene, is_whole=is_whole).jobs, scene.judged
    assert jobs.sum() > 300
    assert (starts == scene.record.start_s)[jobs].all()
    assert (starts[~jobs] == NEVER).all()


def test_without_four_weeks_before_the_window_the_rules_come_from_it() -> None:
    record = cases.record()
    from_s = cases.FIRST_S + 7 * DAY_S
    found = follow_window(record, cases.about(record), from_s, from_s + 14 * DAY_S)
    assert "inferred from the weeks that are replayed" in found.assumptions[0] and len(found.daily) == 1
    later = cases.scene(14)
    assert not later.assumptions and len(later.daily) == 1  # two weeks with the same rules
    assert [anchor.at_s for anchor in later.daily[0].shown.anchors] == list(range(later.from_s, later.until_s, DAY_S))


def test_the_order_of_a_log_without_priorities_is_inferred_from_the_weeks_before() -> None:
    record = cases.record(jobs=1600, order=1)
    until_s = cases.FIRST_S + cases.DAYS * DAY_S
    found = follow_window(record, cases.about(record), until_s - 14 * DAY_S, until_s)
    assert "no priorities; the queue is ordered by wait / limit (Moab's expansion factor)" in found.assumptions[0]
    for is_whole in (False, True):
        outcome = outcome_of(found, is_whole=is_whole)
        error_s = np.abs(outcome.wait_s - (record.start_s - record.submit_s))[found.judged]
        print(error_s.mean(), outcome.wait_s[found.judged].mean(), (error_s == 0).mean())
    assert not cases.scene(14).assumptions  # first come, first served


def test_in_one_piece_the_rules_of_each_week_count(scene: RecordedScene) -> None:
    """From the second week on every user may run one job."""
    assert scene.whole is not None
    stretch = scene.daily[0]
    middle_s = scene.from_s + 7 * DAY_S
    limited = FittedRules(middle_s, None, stretch.rules._replace(max_jobs=1))
    changed = replace(scene, whole=scene.whole._replace(later=(limited,)))
    moved = scene.judged & (starts_of(changed, is_whole=True).jobs != scene.record.start_s)
    assert moved.any() and scene.record.start_s[moved].min() >= middle_s


def test_a_gap_of_weeks_in_the_log_is_passed_over() -> None:
    record = cases.record()
    gap = (record.submit_s < cases.FIRST_S + 30 * DAY_S) | (record.submit_s >= cases.FIRST_S + 58 * DAY_S)
    left = record.take(gap)
    found = follow_window(left, cases.about(left), cases.FIRST_S + 29 * DAY_S, cases.FIRST_S + cases.DAYS * DAY_S)
    starts = starts_of(found)
    assert (starts.jobs[found.judged] < NEVER).all()
    with pytest.raises(InputError, match="no job that ran was submitted from 2024-02-05"):
        follow_window(left, cases.about(left), cases.FIRST_S + 35 * DAY_S, cases.FIRST_S + 50 * DAY_S)


def mean_wait_s(scene: RecordedScene, *, is_whole: bool = False) -> float:
    outcome = outcome_of(scene, is_whole=is_whole)
    return float(np.nanmean(outcome.wait_s))


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        ("nodes=+2", -1),
        ("arrivals=+50%", 1),
        ("arrivals=50%", -1),
        ("max_jobs=1", 1),
        ("backfill=off", 1),
        ("limit=2h", -1),
    ],
)
def test_a_change_moves_the_mean_wait_as_it_must(scene: RecordedScene, change: str, sign: int) -> None:
    for is_whole in (False, True):
        difference = mean_wait_s(changed_recorded(scene, change), is_whole=is_whole) - mean_wait_s(
            scene, is_whole=is_whole
        )
        assert np.sign(difference) == sign and abs(difference) > 60


def test_a_change_that_takes_nothing_away_changes_nothing(scene: RecordedScene) -> None:
    base = starts_of(scene).jobs
    for change in ("limit=30-0", "ask=100", "max_jobs=5000", "backfill.depth=5000", "backfill.window=60-0", "nodes=+0"):
        assert (starts_of(changed_recorded(scene, change)).jobs == base).all(), change


def test_nodes_can_be_away_between_two_dates(scene: RecordedScene) -> None:
    out = changed_recorded(scene, "nodes=-2@2024-02-10..2024-02-12")
    (stretch,) = [stretch for stretch in out.daily if stretch.from_s <= cases.FIRST_S + 40 * DAY_S < stretch.until_s]
    tick_s, usable = usable_nodes_of(out, stretch)
    before = usable_nodes_of(scene, stretch)[1]
    away = (tick_s >= cases.FIRST_S + 40 * DAY_S) & (tick_s < cases.FIRST_S + 42 * DAY_S)
    assert (usable[away] == before[away] - 2).all() and (usable[~away] == before[~away]).all()
    assert out.most_nodes == scene.most_nodes and changed_recorded(scene, "nodes=-1").most_nodes == scene.most_nodes - 1


def test_jobs_that_run_when_a_day_begins_are_not_cut_by_a_new_limit(scene: RecordedScene) -> None:
    """Both replays of a day begin with the same nodes taken, for as long as recorded."""
    short = changed_recorded(scene, "limit=20m")
    first = scene.daily[0].shown.anchors[0]
    assert len(first.running)
    day = (scene.record.submit_s >= first.at_s) & (scene.record.submit_s < first.at_s + 2 * HOUR_S) & scene.judged
    free = starts_of(short).jobs[day]
    alone = starts_of(replace(short, run_s=scene.run_s)).jobs[day]
    assert (free >= first.at_s).all() and (free <= alone).all()
    assert starts_of(short).jobs[day].sum() > 0


def test_a_user_who_is_gone_submits_nothing_and_copies_are_more_jobs(scene: RecordedScene) -> None:
    gone = changed_recorded(scene, "arrivals.user.user1=0")
    ours = (scene.about["user"] == "user1").to_numpy() & scene.judged
    outcome = outcome_of(gone)
    assert np.isnan(outcome.wait_s[ours]).all() and not np.isnan(outcome.wait_s[scene.judged & ~ours]).any()
    twice = changed_recorded(scene, "arrivals.user.user1=+100%")
    copied = starts_of(twice).copies
    inside = (scene.record.submit_s[twice.copied] >= scene.from_s) & (
        scene.record.submit_s[twice.copied] + twice.copied_later_s < scene.until_s
    )
    assert (np.unique(scene.record.user[twice.copied]) == [1]).all() and (copied[inside] < NEVER).all()
    assert (copied[inside] >= (scene.record.submit_s[twice.copied] + twice.copied_later_s)[inside]).all()


def test_a_user_put_first_waits_less_and_others_more(scene: RecordedScene) -> None:
    first = outcome_of(changed_recorded(scene, "priority.user.user2=+12h")).wait_s - outcome_of(scene).wait_s
    ours = scene.judged & (scene.about["user"] == "user2").to_numpy()
    assert first[ours].mean() < -60 and first[scene.judged & ~ours].mean() > 0


def test_a_limit_of_one_user_binds_that_user_alone(scene: RecordedScene) -> None:
    bound = outcome_of(changed_recorded(scene, "max_nodes.user.user3=1")).wait_s - outcome_of(scene).wait_s
    ours = scene.judged & (scene.about["user"] == "user3").to_numpy()
    assert bound[ours].mean() > 600 and bound[scene.judged & ~ours].mean() <= 0
    loose = changed_recorded(changed_recorded(scene, "max_jobs=1"), "max_jobs.user.user3=UNLIMITED")
    all_bound = outcome_of(changed_recorded(scene, "max_jobs=1")).wait_s
    assert (outcome_of(loose).wait_s - all_bound)[ours].mean() < -600


def test_changes_are_made_together(scene: RecordedScene) -> None:
    both = changed_recorded(scene, "nodes=+1 and ask=1.0")
    assert both.most_nodes == scene.most_nodes + 1 and (both.limit_s <= scene.limit_s).all()
    assert (both.limit_s[scene.judged] == scene.run_s[scene.judged]).all()


HALF_DAY_S = 12 * HOUR_S


@pytest.fixture(scope="module")
def defaults(scene: RecordedScene) -> RecordedScene:
    """The scene in which every second job has twelve hours as its limit, the default of its partition."""
    even = (np.arange(len(scene.record)) % 2 == 0) & (scene.run_s <= HALF_DAY_S)
    limit_s = np.where(even, HALF_DAY_S, scene.limit_s)
    gpu = PartitionConf("gpu", "slurm.conf:2", default_time_s=HALF_DAY_S, max_time_s=DAY_S)
    conf = SlurmConf("slurm.conf", partitions=(gpu, PartitionConf("open", "slurm.conf:3")))
    return replace(scene, record=replace(scene.record, limit_s=limit_s), limit_s=limit_s, conf=conf)


@pytest.mark.parametrize("change", ["default_limit=3h", "default_limit.partition.gpu=3h", "default_limit=3h@12h"])
def test_jobs_with_the_default_limit_get_the_new_one_unless_they_ran_longer(
    defaults: RecordedScene, change: str
) -> None:
    of_default = defaults.record.limit_s == HALF_DAY_S
    short = of_default & (~defaults.record.ran | (defaults.run_s <= 3 * HOUR_S))
    changed = changed_recorded(defaults, change)
    assert short.any() and (of_default & ~short).any()
    assert (changed.limit_s[short] == 3 * HOUR_S).all()
    assert (changed.limit_s[~short] == defaults.limit_s[~short]).all()
    assert (changed.run_s == defaults.run_s).all()
    few, many = (int((jobs & defaults.judged).sum()) for jobs in (of_default & ~short, short))
    assert f"{many} jobs with the present default" in changed.assumptions[-1]
    assert f"{few} jobs that ran longer" in changed.assumptions[-1]
    assert mean_wait_s(changed) != mean_wait_s(defaults)


def test_a_default_limit_is_no_longer_than_a_limit_before_it(defaults: RecordedScene) -> None:
    changed = changed_recorded(defaults, "limit=2h and default_limit=3h")
    assert changed.limit_s.max() == 2 * HOUR_S


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("default_limit=7h@11h", "no job of the window has the present default, 11 h, as its limit"),
        ("default_limit.partition.open=7h", "no job of the window has partition 'open'"),
        ("default_limit=12h", "the present default, UNLIMITED, as its limit"),
        ("default_limit.user.user1=3h", "that of a partition, not of a user"),
    ],
)
def test_a_default_limit_that_no_job_has_is_refused(defaults: RecordedScene, change: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        changed_recorded(defaults, change)
    assert why in str(refused.value)


def test_jobs_of_a_merged_qos_get_the_points_of_the_other(scene: RecordedScene) -> None:
    """Every user has jobs in both; those in `high` have 500 points more."""
    is_high = np.arange(len(scene.record)) % 2 == 0
    about = scene.about.with_columns(qos=pl.Series(np.where(is_high, "high", "low")))
    record = replace(scene.record, priority=1000 * scene.record.user + 500 * is_high)
    daily = tuple(stretch._replace(points_per_hour=10.0) for stretch in scene.daily)
    with_qos = replace(scene, about=about, record=record, daily=daily)
    changed = changed_recorded(with_qos, "merge.qos.high=low")
    assert (changed.points == np.where(is_high, -500.0, 0.0)).all()
    assert "-500 points" in changed.assumptions[-1]
    alone = changed_recorded(replace(with_qos, daily=scene.daily), "merge.qos.high=low")
    assert not alone.points.any() and "only the declared slurm.conf" in alone.assumptions[-1]


def test_what_one_pool_of_nodes_cannot_show_is_said(scene: RecordedScene) -> None:
    for change in ("merge.partition.gpu=open", "partition.fast.limit.4h=n[1-2]"):
        changed = changed_recorded(scene, change)
        assert "only the declared slurm.conf shows" in changed.assumptions[-1]
        assert replace(changed, assumptions=scene.assumptions) == scene
    alike = changed_recorded(scene, "nodes.like.n1=+2")
    assert "one pool of nodes" in alike.assumptions[-1] and alike.most_nodes == scene.most_nodes + 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("nodes", "is not understood; write NAME=VALUE"),
        ("colour=red", "unknown change 'colour': known are nodes, nodes.like.NODENAME, limit"),
        ("nodes=-4", "leaves 2 nodes of 6: a job needs 4"),
        ("nodes=-1@2024-02-12..2024-02-10", "write two dates in their order"),
        ("nodes=-1@soon", "write nodes=-8@2023-01-10..2023-01-17"),
        ("nodes.user.user1=+1", "concerns all jobs"),
        ("nodes.like.n1=4", "write +4 or -4"),
        ("default_limit=4h", "the present default is not known: declare a slurm.conf"),
        ("merge.partition.none=gpu", "no job of the window has partition 'none'"),
        ("merge.user.user1=user2", "write merge.partition.A=B or merge.qos.A=B"),
        ("partition.fast=n1", "write partition.NAME.limit.4h=NODES"),
        ("partition.fast.limit.1s=n1", "concerns no job of the window"),
        ("limit=0", "a limit of 0 s"),
        ("limit.colour.red=1h", "unknown dimension 'colour': known are user, account, partition, qos, limit, nodes"),
        ("limit.user.nobody=1h", "no job of the window has user 'nobody', so nothing would show; most jobs have user"),
        ("limit.qos.high=1h", "the log holds no qos of a job"),
        ("arrivals=0", "leaves no job of the window"),
        ("ask=0.5", "allowed is 1 to 100"),
        ("ask=nan", "is not a number"),
        ("arrivals=1000", "allowed is 0.01 to 100"),
        ("max_jobs=0", "is not a whole number from 1 on"),
        ("max_jobs.account.odd=2 and max_jobs.partition.gpu=x", "is not a whole number from 1 on"),
        ("priority=+6h", "raises every job alike"),
        ("priority.user.user1=+1000", "jobs are served first come, first served; write a time"),
        ("priority.age=2", "jobs are served first come, first served"),
        ("backfill=maybe", "write backfill=off or backfill=on"),
        ("backfill.window=long", "duration 'long' is not understood"),
    ],
)  # fmt: skip
def test_what_is_refused(scene: RecordedScene, change: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        changed_recorded(scene, change)
    assert why in str(refused.value)
