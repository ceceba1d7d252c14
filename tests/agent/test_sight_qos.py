"""What another QOS, or several partitions, change for a link: its place, its limits, its start in futures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agent.chains.planner import OPEN_SITE
from agent.check import GOOD, PROBLEM, check_agent, qos_choice
from agent.eyes import Eyes
from agent.sight import LinkStarts, SlurmRequest
from agent.slurm.settings import read_partitions
from features.snapshot import NO_LIMIT
from tests.agent.replayed_slurm import RecordedJob, ReplayedSlurm
from tests.agent.test_sight import DAY, HOUR, ME, NOW, cluster, waiting

PRIORITIES = {"PriorityWeightQOS": "1000"}
SHORT = "short||1|node=2||02:00:00|80|||"
TOP = "top||||||100|||"


def seen_by(slurm: ReplayedSlurm, partition: str = "") -> Eyes:
    eyes = Eyes(slurm, SlurmRequest(2, 8 * HOUR, "me", partition), OPEN_SITE)
    eyes.look(NOW)
    return eyes


def starts(eyes: Eyes, qos: str, limit_h: int = 1, number: str = "10", queued: str = "") -> LinkStarts:
    assert eyes.queue is not None
    jobs = {job.id: job for job in eyes.queue.jobs}
    return eyes.starts(jobs[number], jobs[number], limit_h * HOUR, 5 * DAY, 60.0, jobs.get(queued), None, qos)


@pytest.mark.parametrize(("qos", "like", "ahead"), [("", "normal", 2), ("short", "normal", 1), ("", "short", 3)])
def test_a_link_of_another_qos_enters_with_the_weight_of_the_difference_more(qos: str, like: str, ahead: int) -> None:
    """800 more than its predecessor of QOS normal, or as much less after one of QOS short."""
    queue = [waiting(20 + k, priority=priority) for k, priority in enumerate((1500, 600, 100))]
    eyes = seen_by(cluster(replace(ME, qos=like), *queue, config=PRIORITIES, more_qos=[SHORT, TOP]))
    assert starts(eyes, qos).seen.snapshot.successor_place == ahead


def test_a_link_of_higher_priority_starts_sooner_in_futures() -> None:
    queue = [waiting(20 + k, nodes=6, limit_s=8 * HOUR, priority=600) for k in range(3)]
    eyes = seen_by(cluster(ME, *queue, config=PRIORITIES, more_qos=[SHORT, TOP]))
    own, short = starts(eyes, "", 8), starts(eyes, "short", 8)
    assert np.mean(own.starts_s) > NOW + 4 * HOUR and np.mean(short.starts_s) < NOW + HOUR, (own, short)


def test_limits_of_a_qos_count_its_own_jobs_alone_and_bind_no_one_else() -> None:
    """MaxJobsPerUser=1 of `short`: met by a running job of that QOS, not by one of QOS normal.

    Another user's two jobs of QOS normal go first, and both run.
    """
    fields: dict[str, Any] = {"config": PRIORITIES, "more_qos": [SHORT, TOP]}
    of_other = seen_by(cluster(ME, **fields))
    of_same = seen_by(cluster(replace(ME, qos="short"), **fields))
    assert max(starts(of_other, "short").starts_s) <= NOW + 60 and starts(of_other, "short").estimate_s == 0
    assert min(starts(of_same, "short").starts_s) >= NOW + 4 * HOUR, "its predecessor ends then"
    assert starts(of_same, "short").estimate_s == 4 * HOUR
    assert max(starts(of_same, "").starts_s) <= NOW + 60
    two = [waiting(20 + k, nodes=2, limit_s=8 * HOUR, priority=5000) for k in range(2)]
    late = starts(seen_by(cluster(ME, *two, **fields)), "short")
    assert min(late.starts_s) > NOW + 1 and late.estimate_s == 4 * HOUR, "one of the two would leave room at once"


def test_limits_of_the_scripts_own_qos_do_not_bind_a_link_of_another() -> None:
    """MaxJobsPerUser is 1 under QOS normal and 2 under `pair`, of which one job runs."""
    slurm = cluster(replace(ME, qos="pair"), max_jobs="1", more_qos=["pair||2|||||||"])
    found = starts(seen_by(slurm), "pair")
    assert found.estimate_s == 0 and max(found.starts_s) <= NOW + 60


def test_a_queued_link_has_the_limits_of_its_own_qos() -> None:
    queued = waiting(30, user="me", nodes=2, qos="short", priority=100)
    for predecessor, least_s in ((ME, 0), (replace(ME, qos="short"), 4 * HOUR)):
        eyes = seen_by(cluster(predecessor, queued, config=PRIORITIES, more_qos=[SHORT, TOP]))
        found = starts(eyes, "", queued="30").starts_s
        assert min(found) >= NOW + least_s and max(found) <= NOW + least_s + 60


def test_what_a_qos_allows() -> None:
    eyes = seen_by(cluster(ME, max_jobs="3", more_qos=[SHORT]))
    longest_s, limits = eyes.allowed("short")
    assert (longest_s, limits.jobs, limits.nodes) == (2 * HOUR, 1, 2)
    assert (eyes.allowed()[0], eyes.allowed()[1].jobs) == (7 * DAY, 3) == (7 * DAY, eyes.allowed("normal")[1].jobs)
    assert Eyes(cluster(), SlurmRequest(1, HOUR, "me")).qos.own == ""


class TwoPartitions(ReplayedSlurm):
    """`wide` allows 24 h."""

    def _scontrol(self, argv: Any) -> str:
        return super()._scontrol(argv).replace("MaxTime=7-00:00:00 Nodes=n[5-8]", "MaxTime=1-00:00:00 Nodes=n[5-8]")


@pytest.mark.parametrize(("limit_h", "nodes", "starts_now"), [(24, 8, True), (25, 4, False)])
def test_of_several_partitions_those_count_that_allow_the_limit(limit_h: int, nodes: int, starts_now: bool) -> None:
    """Every node of `gpu` is taken and `wide` is free: a link of 25 h waits."""
    holder = RecordedJob("11", "you", 2, 40 * HOUR, NOW - 5 * HOUR, NOW - 3 * HOUR, node_list="n[3-4]")
    partitions = {"gpu": "n[1-4]", "wide": "n[5-8]"}
    config: dict[str, str] = {}
    slurm = TwoPartitions([ME, holder], NOW, nodes={f"n{k}": "idle" for k in range(1, 9)}, partitions=partitions,
                          config=config)  # fmt: skip
    eyes = seen_by(slurm, "gpu,wide")
    found = starts(eyes, "", limit_h)
    assert found.seen.snapshot.capacity == nodes and (max(found.starts_s) <= NOW + 60) == starts_now
    assert eyes.allowed()[0] == 7 * DAY
    chosen = slurm, read_partitions(slurm), eyes.request, ["normal"]
    assert "at most 168 h" in qos_choice(*chosen)
    config["EnforcePartLimits"] = "ALL"
    assert seen_by(slurm, "gpu,wide").allowed()[0] == DAY and "at most 24 h" in qos_choice(*chosen)
    shown = check_agent(slurm, eyes.request, now_s=lambda: float(NOW), limits=lambda longest_s: [longest_s])
    assert "a link may ask for 24 h" in [one.text for one in shown]


@pytest.mark.parametrize(
    ("name", "fields", "level", "text"),
    [
        ("short", {}, GOOD, "a planned link has normal or short (priority +800, at most 2 h, usage x1)"),
        ("nope", {}, PROBLEM, "qos_choice: user me may not use QOS nope; allowed: normal, short, top"),
        (
            "short",
            {"config": {"PreemptType": "preempt/qos"}, "more_qos": [SHORT, "top||||||100||short|"]},
            PROBLEM,
            "qos_choice: jobs of QOS short can be preempted by those of top; plans ignore that",
        ),
        (
            "short",
            {"config": {"AccountingStorageEnforce": "associations"}},
            PROBLEM,
            "qos_choice is given, but this Slurm does not check QOS (slurm.conf: AccountingStorageEnforce)",
        ),
        ("short", {"broken": frozenset({"sacctmgr"})}, PROBLEM, "sacctmgr: refuses in this test"),
    ],
)
def test_check_says_which_qos_a_plan_may_choose(name: str, fields: dict[str, Any], level: str, text: str) -> None:
    slurm = cluster(ME, **{"config": PRIORITIES, "more_qos": [SHORT, TOP], **fields})
    found = check_agent(slurm, SlurmRequest(2, 8 * HOUR, "me"), now_s=lambda: float(NOW), qos=[name])
    assert [(one.level, one.text) for one in found if one.subject == "qos"] == [(level, text)]


def test_without_limits_on_users_none_is_made_up() -> None:
    seen = starts(seen_by(cluster(ME, more_qos=["free|||||||||"])), "free").seen
    assert (seen.snapshot.user_max_jobs, seen.observation["headroom_wait_h"]) == (NO_LIMIT, 0)
