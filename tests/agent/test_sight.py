"""The snapshot of a live Slurm where partitions overlap, nodes are shared, jobs are held or things are hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.artifact import Artifact
from agent.eyes import REFRESH_S, Eyes
from agent.sight import ClusterObservation, SlurmRequest, is_held
from agent.slurm.commands import SlurmError
from agent.slurm.queue import SqueueJob
from features.observe import FEATURES, FILLS, observe
from features.snapshot import NO_LIMIT
from tests.agent.replayed_slurm import RecordedJob, ReplayedSlurm

HOUR, DAY = 3600, 86400
NOW = 1_700_000_000
NODES = {f"n{k}": "idle" for k in range(1, 9)}
ME = RecordedJob("10", "me", 2, 8 * HOUR, NOW - 5 * HOUR, NOW - 4 * HOUR, priority=500, node_list="n[1-2]")
OTHER = RecordedJob("11", "you", 1, 8 * HOUR, NOW - 5 * HOUR, NOW - 3 * HOUR, node_list="n3")


def waiting(number: int, **fields: Any) -> RecordedJob:
    return replace(RecordedJob(str(number), "you", 1, HOUR, NOW - HOUR), **fields)


def cluster(*jobs: RecordedJob, **fields: Any) -> ReplayedSlurm:
    known: dict[str, Any] = {"nodes": NODES, "partitions": {"gpu": "n[1-6]", "wide": "n[5-8]", "apart": "n9"}}
    return ReplayedSlurm(list(jobs), NOW, **(known | fields))


def predecessor(eyes: Eyes, number: str = "10") -> SqueueJob:
    assert eyes.queue is not None
    return next(job for job in eyes.queue.jobs if job.id == number)


def sight(slurm: ReplayedSlurm, request: SlurmRequest | None = None, **fields: Any) -> ClusterObservation:
    eyes = Eyes(slurm, request or SlurmRequest(2, 8 * HOUR, "me"))
    eyes.look(NOW)
    return eyes.sight(replace(predecessor(eyes), **fields))


def test_the_pair() -> None:
    seen = sight(cluster(ME)).snapshot
    assert (seen.predecessor_start_s, seen.predecessor_wait_s) == (NOW - 4 * HOUR, HOUR)
    assert seen.predecessor_end_s == NOW + 4 * HOUR
    assert (seen.successor_nodes, seen.successor_limit_s) == (2, 8 * HOUR)


@pytest.mark.parametrize("reason", [
    "Dependency", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue",
    "JobArrayTaskLimit", "Reservation", "Licenses", "PartitionTimeLimit", "PartitionNodeLimit", "PartitionDown",
    "QOSGrpGRES", "AssocGrpCpuLimit", "QOSMaxWallDurationPerJobLimit", "MaxGRESPerAccount", "BadConstraints",
])  # fmt: skip
def test_what_holds_a_job(reason: str) -> None:
    assert is_held(reason)
    assert sight(cluster(ME, waiting(20, reason=reason))).snapshot.pending_held.tolist() == [1]


@pytest.mark.parametrize("reason", [
    "Priority", "Resources", "None", "ReqNodeNotAvail", "ReqNodeNotAvail,_UnavailableNodes:n7",
    "QOSMaxJobsPerUserLimit", "QOSMaxGRESPerUser", "QOSMaxNodePerUserLimit", "AssocMaxJobsLimit",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
])  # fmt: skip
def test_what_is_the_queue_or_a_limit_on_its_user(reason: str) -> None:
    assert not is_held(reason)


class Tiers(ReplayedSlurm):
    """The partition `wide` goes first."""

    def _scontrol(self, argv: Any) -> str:
        return super()._scontrol(argv).replace("Nodes=n[5-8] PriorityTier=1", "Nodes=n[5-8] PriorityTier=7")


def tiers(*jobs: RecordedJob) -> Tiers:
    return Tiers(list(jobs), NOW, nodes=NODES, partitions={"gpu": "n[1-6]", "wide": "n[5-8]"})


@pytest.mark.parametrize(("partition", "ahead"), [("gpu", 1), ("gpu,wide", 0), ("wide,gpu", 0)])
def test_a_successor_for_several_partitions_enters_by_the_highest_tier(partition: str, ahead: int) -> None:
    slurm = tiers(ME, waiting(20, priority=9000))
    assert sight(slurm, SlurmRequest(2, 8 * HOUR, "me", partition)).snapshot.successor_place == ahead


def test_the_order_of_the_queue_is_tier_then_priority_then_id() -> None:
    jobs = [
        waiting(20, priority=5), waiting(21, priority=9), waiting(9, priority=5),
        replace(waiting(22, priority=1), id="22_12"), replace(waiting(22, priority=1), id="22_3"),
    ]  # fmt: skip
    limits = {"20": 1, "21": 2, "9": 3, "22_3": 4, "22_12": 5}
    found = [replace(job, limit_s=limits[job.id] * HOUR) for job in jobs]
    assert sight(cluster(ME, *found)).snapshot.pending_limit_s.tolist() == [h * HOUR for h in (2, 3, 1, 4, 5)]

    first = replace(found[0], partition="wide", priority=0)
    seen = sight(tiers(ME, *found[1:], first), priority=10_000).snapshot
    assert seen.pending_limit_s.tolist() == [h * HOUR for h in (1, 2, 3, 4, 5)]
    assert seen.successor_place == 1  # no priority carries it over a higher tier


def test_partitions_that_share_nodes_compete_and_others_do_not() -> None:
    """Six nodes are asked for. A job of another partition holds two of them and two beside."""
    across = RecordedJob("12", "you", 4, 8 * HOUR, NOW - 5 * HOUR, NOW - 3 * HOUR, partition="wide", node_list="n[5-8]")
    far = RecordedJob("13", "you", 1, 8 * HOUR, NOW - 5 * HOUR, NOW - 3 * HOUR, partition="apart", node_list="n9")
    queue = [waiting(20, partition="wide"), waiting(21, partition="apart"), waiting(22, partition="apart,gpu")]
    states = NODES | {"n9": "allocated"}
    seen = sight(cluster(ME, across, far, *queue, nodes=states)).snapshot
    assert (seen.capacity, seen.usable) == (6, 6)
    assert sorted(seen.running_nodes) == [2, 2]
    assert len(seen.pending_nodes) == 2


def test_a_job_whose_nodes_cannot_be_read_counts_by_its_partition() -> None:
    unread = [replace(OTHER, id="12", nodes=2, node_list=""), replace(OTHER, id="13", node_list="n[3-")]
    far = replace(OTHER, id="14", node_list="", partition="apart")
    assert sorted(sight(cluster(ME, *unread, far)).snapshot.running_nodes) == [1, 2, 2]


def test_nodes_that_are_shared_do_not_make_free_nodes_negative() -> None:
    """Seven jobs hold a part of one node each; by the node they hold seven, of six."""
    shares = [replace(OTHER, id=str(30 + k), node_list="n1") for k in range(7)]
    found = sight(cluster(replace(ME, nodes=1, node_list="n2"), *shares))
    assert (found.snapshot.capacity, found.snapshot.usable) == (8, 8)
    assert found.observation["free_nodes"] == 0


def test_nodes_out_of_service_are_not_usable_until_jobs_on_them_end() -> None:
    states = NODES | {"n3": "draining", "n4": "drained", "n5": "down*", "n6": "maint"}
    found = sight(cluster(ME, OTHER, nodes=states))
    assert found.observation["usable_nodes"] == 3
    assert found.observation["free_nodes"] == 0
    assert found.observation["capacity_nodes"] == 6


def test_a_job_without_a_limit_has_its_partitions() -> None:
    class Unlimited(ReplayedSlurm):
        def _squeue(self, argv: Any) -> str:
            return super()._squeue(argv).replace("08:00:00", "UNLIMITED")

    slurm = Unlimited([ME, OTHER], NOW, nodes=NODES, partitions={"gpu": "n[1-6]"})
    assert sight(slurm).snapshot.running_limit_s.tolist() == [7 * DAY, 7 * DAY]


def test_a_job_that_completes_has_ended() -> None:
    class Completing(ReplayedSlurm):
        def _squeue(self, argv: Any) -> str:
            return super()._squeue(argv).replace("COMPLETED", "COMPLETING")

    done = replace(OTHER, end_s=NOW - 60)
    seen = sight(Completing([ME, done], NOW, nodes=NODES, partitions={"gpu": "n[1-6]"})).snapshot
    assert seen.running_nodes.tolist() == [2]
    assert seen.ended_use.tolist() == [pytest.approx((3 * HOUR - 60) / (8 * HOUR))]


@pytest.mark.parametrize(("config", "ahead"), [
    ({}, 2),  # its predecessor's 500: behind 500 and 600
    ({"PriorityWeightAge": "24000", "PriorityMaxAge": "1-00:00:00"}, 3),  # which had gained 1000 an hour by waiting
    ({"PriorityWeightAge": "10", "PriorityMaxAge": "00:30:00"}, 3),  # no more than the weight
    ({"PriorityType": "priority/basic"}, 4),
])  # fmt: skip
def test_the_place_of_the_successor(config: dict[str, str], ahead: int) -> None:
    queue = [waiting(20 + k, priority=priority) for k, priority in enumerate((600, 500, 490, 0))]
    slurm = cluster(ME, *queue, config=config)
    gained = {"24000": 490, "10": 0}.get(config.get("PriorityWeightAge", ""), 0)
    assert sight(slurm, priority=1000 + gained if gained else 500).snapshot.successor_place == ahead


def test_limits_are_those_of_the_user() -> None:
    found = sight(cluster(ME, max_jobs="3", max_tres="gres/gpu=12"))
    assert (found.snapshot.user_max_jobs, found.snapshot.user_max_nodes) == (3, 3)
    assert (found.observation["headroom_jobs"], found.observation["headroom_nodes"]) == (2, 1)
    assert found.observation["headroom_wait_h"] == 4


@pytest.mark.parametrize(("fields", "hidden"), [
    ({"broken": frozenset({"sacct"})}, "recent_wait_mean_h recent_wait_p50_h recent_wait_p90_h recent_wait_max_h "
                                       "recent_wide_wait_mean_h started_6h_jobs limit_use_mean"),
    ({"private_past": "me"}, "recent_wait_mean_h recent_wait_p50_h recent_wait_p90_h recent_wait_max_h "
                             "recent_wide_wait_mean_h started_6h_jobs limit_use_mean"),
    ({"broken": frozenset({"sacctmgr"})}, "headroom_jobs headroom_nodes headroom_wait_h"),
    ({"broken": frozenset({"scontrol config"})}, "headroom_jobs headroom_nodes headroom_wait_h"),
    ({"nodes": {}}, "usable_nodes"),
])  # fmt: skip
def test_what_is_hidden_is_left_out_and_its_fill_is_what_the_snapshot_says(fields: dict[str, Any], hidden: str) -> None:
    """The artifact fills what is missing; `observe` of the snapshot has the same numbers, so both are one row."""
    past = [replace(OTHER, id=str(40 + k), end_s=NOW - HOUR) for k in range(3)]
    slurm = cluster(ME, OTHER, *past, waiting(20), max_jobs="3", **fields)
    found = sight(slurm)
    assert set(found.hidden) == set(hidden.split()) == set(FEATURES) - set(found.observation)
    assert all(found.hidden.values())
    row = artifact().row(found.observation)
    assert row == pytest.approx(observe(found.snapshot).tolist())


def artifact() -> Artifact:
    manifest = {
        "policy": "any", "kind": "estimate-ratio", "knob": "x", "settings": [1.0], "default_setting": 1.0,
        "features": list(FEATURES), "fills": FILLS, "format_version": 1, "requirements": [],
        "parameters": {"feature": "start_estimate_h"},
    }  # fmt: skip
    return Artifact(manifest)


def test_where_other_users_jobs_are_not_shown_nothing_of_the_queue_is_claimed() -> None:
    found = sight(cluster(ME, OTHER, waiting(20), private="me"))
    assert {"pending_jobs", "free_nodes", "start_estimate_h", "recent_wait_mean_h"} <= set(found.hidden)
    assert {"remaining_h", "capacity_nodes", "usable_nodes", "headroom_jobs", "hour_sin"} <= set(found.observation)
    with pytest.raises(ValueError, match="features missing"):
        artifact().row(found.observation)


def test_private_data_does_not_bind_an_operator() -> None:
    """PrivateData=jobs is set, and yet another user's jobs are shown: nothing is hidden."""
    assert sight(cluster(ME, OTHER, config={"PrivateData": "jobs"})).hidden == {}


def test_limits_that_could_be_read_once_are_kept() -> None:
    slurm = cluster(ME, OTHER, max_jobs="3")
    eyes = Eyes(slurm, SlurmRequest(2, 8 * HOUR, "me"))
    eyes.look(NOW)
    slurm.broken, slurm.now_s = frozenset({"sacctmgr"}), NOW + REFRESH_S
    eyes.look(NOW + REFRESH_S)
    found = eyes.sight(predecessor(eyes))
    assert found.hidden == {} and found.snapshot.user_max_jobs == 3


def test_what_no_sight_can_be_had_of() -> None:
    eyes = Eyes(cluster(ME, waiting(20)), SlurmRequest(2, HOUR, "me"))
    with pytest.raises(ValueError, match="call look before"):
        eyes.sight(None)  # type: ignore[arg-type]
    eyes.look(NOW)
    with pytest.raises(ValueError, match="job 20 is PENDING; a predecessor must be running"):
        eyes.sight(predecessor(eyes, "20"))
    with pytest.raises(ValueError, match="unknown partition nope; known: gpu, wide, apart"):
        Eyes(cluster(ME), SlurmRequest(2, HOUR, "me", partition="nope")).look(NOW)
    for program in ("squeue", "sinfo", "scontrol partition"):
        with pytest.raises(SlurmError):
            Eyes(cluster(ME, broken=frozenset({program})), SlurmRequest(2, HOUR, "me")).look(NOW)


def test_a_job_that_leaves_unseen_ended_between_two_looks_and_no_later_than_its_limit() -> None:
    """Looks an hour apart with nothing remembered: one ended in between, one at its limit, one came and never ran.

    A day of looking on later, that past counts as known, without any accounting.
    """
    longer = replace(OTHER, end_s=NOW + 5)
    at_limit = replace(OTHER, id="12", start_s=NOW - 8 * HOUR + 600, submit_s=NOW - 9 * HOUR, end_s=NOW + 600)
    cancelled = waiting(20, end_s=NOW + 5)
    slurm = cluster(ME, longer, at_limit, cancelled, remembers_s=0)
    slurm.broken = frozenset({"sacct"})
    eyes = Eyes(slurm, SlurmRequest(2, HOUR, "me"))
    eyes.look(NOW)
    for later in (HOUR, DAY):
        slurm.now_s = NOW + later
        eyes.look(NOW + later)
    seen = eyes.sight(predecessor(eyes)).snapshot
    assert sorted(seen.ended_use) == pytest.approx([(3 * HOUR + 1800) / (8 * HOUR), 1.0])
    assert len(seen.recent_start_s) == 3
    assert (seen.user_max_jobs, seen.user_max_nodes) == (NO_LIMIT, NO_LIMIT)
