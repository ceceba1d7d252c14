"""Futures of a live Slurm: those of the table on the same history told in text, and what is done without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.chains.decide import POLICY, ReleasedPolicy, decides_alike
from agent.chains.state import ChainState
from agent.check import WARNING, check_agent
from agent.eyes import Eyes
from agent.futures import (
    BUDGET_S,
    NAMELESS,
    SETTLED,
    Site,
    between,
    look_ahead,
    most_held,
    points_per_hour,
    scene_of,
    script_name,
    site_of,
)
from agent.sight import SlurmRequest, live_of
from agent.slurm.accounting import PastJob, parse_named_past
from agent.slurm.commands import SlurmError
from agent.slurm.settings import BASIC, ScontrolConfig
from features.futures.played import FutureInputs
from features.futures.summary import AHEAD, FUTURES, SEEN_AHEAD, summary
from features.observe import FEATURES
from models.provisioning.futures.recorded import HypotheticalJobs, start_in_futures
from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.policies.simulate_ahead import SimulateAhead
from models.provisioning.policies.xgboost import xgboost_ahead
from simulator.recorded.parameters import Parameters
from simulator.recorded.record import NEVER, NONE, RecordedTrace
from tests.agent.replayed_slurm import FOR_EVER, RecordedJob, ReplayedSlurm
from tests.models.generated import queue_table
from tests.models.provisioning.futures.generated import DAY, FIRST_S, HOUR, busy

SITE = Site(max_jobs=3, max_nodes=None, points_per_hour=None, siblings=True)
INSTANTS = [FIRST_S + 28 * DAY + hours * HOUR for hours in (1, 7, 12, 20)]


@pytest.fixture(autouse=True)
def _rules() -> Iterator[None]:
    """Four nodes, three jobs a user, first come first served, whatever was recorded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            recorded_pairs, "infer_parameters", lambda record, until_s: Parameters(0, 4, 3, None, 500.0, 1.0, 1.0, 0)
        )
        yield


def told_slurm(record: RecordedTrace, now_s: int, **values: Any) -> ReplayedSlurm:
    """The record in Slurm's text; ids are its rows, so that the same jobs draw the same numbers."""
    jobs = [
        RecordedJob(
            str(row), f"u{record.user[row]}", int(record.size[row]), int(record.limit_s[row]),
            int(record.submit_s[row]), int(record.start_s[row]) if record.start_s[row] < NEVER else FOR_EVER,
            int(record.end_s[row]), 10_000 - row, name=f"script {record.name[row]}|",
        )
        for row in range(len(record))
        if record.submit_s[row] < now_s
    ]  # fmt: skip
    free, placed = [f"n{node}" for node in range(1, 5)], []
    for job in jobs:
        if job.state(now_s) == "RUNNING":
            taken, free = free[: job.nodes], free[job.nodes :]
            job = replace(job, node_list=",".join(taken))
        placed.append(job if job.state(now_s) != "COMPLETED" else replace(job, node_list="n1"))
    states = {f"n{node}": "idle" if f"n{node}" in free else "mixed" for node in range(1, 5)}
    given = {"max_jobs": "3", "config": {"PriorityType": BASIC}, **values}
    return ReplayedSlurm(placed, now_s, nodes=states, partitions={"gpu": "n[1-4]"}, **given)


def request_of(record: RecordedTrace, row: int) -> SlurmRequest:
    return SlurmRequest(int(record.size[row]), int(record.limit_s[row]), f"u{record.user[row]}")


def running_row(record: RecordedTrace, now_s: int) -> int:
    return int(np.flatnonzero((record.start_s < now_s - 60) & (record.end_s > now_s + 60))[-1])


@pytest.mark.parametrize("now_s", INSTANTS)
def test_the_futures_of_a_told_slurm_are_those_of_the_table(now_s: int) -> None:
    record = busy(seed=3)
    row = running_row(record, now_s)
    end_s = int(record.start_s[row] + record.limit_s[row])
    columns = (now_s, record.size[row], record.limit_s[row], record.user[row], record.name[row], NONE)
    beyond = (end_s - now_s + DAY, row, end_s, NONE)
    job = HypotheticalJobs(*(np.array([value], np.int64) for value in (*columns, *beyond)))
    compiled = start_in_futures(record, job)
    slurm = told_slurm(record, now_s)
    eyes = Eyes(slurm, request_of(record, row), SITE)
    predecessor = next(job for job in eyes.look(now_s).jobs if job.id == str(row))
    sight = eyes.sight(predecessor)
    wanted = summary(compiled, np.array([now_s]), np.array([end_s]))[0]
    assert sight.hidden == {} and set(sight.observation) == set(SEEN_AHEAD)
    assert [sight.observation[name] for name in AHEAD] == wanted.tolist()
    assert sight.ahead.startswith(f"wait in {FUTURES} futures: {wanted[0]:.2f} / ")
    assert slurm.calls["sacct"] == 1


def test_without_the_accounting_the_start_estimate_stands_in(tmp_path: Path) -> None:
    record, now_s = busy(seed=3), INSTANTS[0]
    row = running_row(record, now_s)
    slurm = told_slurm(record, now_s, broken=frozenset({"sacct"}))
    eyes = Eyes(slurm, request_of(record, row), SITE)
    sight = eyes.sight(next(job for job in eyes.look(now_s).jobs if job.id == str(row)))
    assert set(AHEAD) <= set(sight.hidden) and sight.ahead == "no futures: sacct: refuses in this test"
    policy = released(tmp_path)
    decision = policy.decide(sight.observation)
    assert decision.by == POLICY and decision.score is not None
    estimate, left = sight.observation["start_estimate_h"], sight.observation["remaining_h"]
    assert decision.submit == (estimate >= left)
    found = check_agent(slurm, request_of(record, row), now_s=lambda: now_s, artifact=policy.artifact)
    assert [one.level for one in found if one.subject == "futures"] == [WARNING]


def released(folder: Path) -> ReleasedPolicy:
    """`simulate-ahead` with the rules of its site."""
    artifact = SimulateAhead().fit(queue_table(), 0)[0]
    site = {"max_jobs": 3, "max_nodes": None, "points_per_hour": None, "siblings": True}
    replace(artifact, manifest={**artifact.manifest, "trained_on": {"site": site}}).save(folder / "policy")
    return ReleasedPolicy(folder / "policy")


starts_s = st.lists(st.integers(1, 40 * HOUR), min_size=FUTURES, max_size=FUTURES)
SHORT_S = st.lists(st.integers(0, 3), min_size=FUTURES, max_size=FUTURES).map(lambda all_of: [5 + k for k in all_of])
RULE = SimulateAhead().fit(queue_table(), 0)[0]


@settings(max_examples=300, deadline=None)
@given(st.one_of(starts_s, SHORT_S), st.integers(1, 20 * HOUR), st.sampled_from(RULE.settings), st.booleans())
def test_no_future_that_is_left_out_would_change_the_decision(
    waits_s: list[int], left_s: int, setting: float, is_at_the_brink: bool
) -> None:
    """After each number of futures: where the policy decides alike at both ends, it decides as on all of them."""
    if is_at_the_brink:
        left_s = max(round(setting * sorted(waits_s)[4]), 1)
    scene = cast(FutureInputs, SimpleNamespace(now_s=FIRST_S, horizon_s=40 * HOUR))
    observed = {**dict.fromkeys(FEATURES, 0.0), "remaining_h": left_s / HOUR}
    found, end_s = [FIRST_S + wait_s for wait_s in waits_s], FIRST_S + left_s
    on_all = summary(np.array([found]), np.array([FIRST_S]), np.array([end_s]))[0].tolist()
    wanted = RULE.decide([RULE.row(observed | dict(zip(AHEAD, on_all, strict=True)))], setting)[0]
    settled = []
    for played in range(1, FUTURES + 1):
        ends = [observed | dict(each) for each in between(found[:played], FUTURES, scene, end_s)]
        settled.append(decides_alike(RULE, setting, ends))
        if settled[-1]:
            assert RULE.decide([RULE.row(ends[1])], setting)[0] == wanted
    assert settled[-1] and settled == sorted(settled)  # once settled, settled for good


def test_trees_on_all_numbers_of_the_futures_want_all_of_them() -> None:
    pairs = replace(queue_table(), ahead=np.zeros((len(queue_table().decision_s), len(AHEAD)), np.float32))
    trees = xgboost_ahead().fit(pairs, 0)[0]
    alike = [dict.fromkeys(SEEN_AHEAD, 1.0)] * 3
    assert not decides_alike(trees, 1.0, alike) and decides_alike(RULE, 1.0, alike)
    assert not decides_alike(RULE, 1.0, [{}] * 3)  # nothing that it could decide on


@pytest.mark.parametrize("setting", [RULE.settings[0], 1.0, RULE.settings[-1]])
def test_a_live_decision_on_fewer_futures_is_that_on_all(setting: float, tmp_path: Path) -> None:
    record = busy(seed=3)
    released(tmp_path)
    policy = ReleasedPolicy(tmp_path / "policy", setting)
    played = []
    for now_s in INSTANTS:
        row = running_row(record, now_s)
        eyes = Eyes(told_slurm(record, now_s), request_of(record, row), SITE)
        predecessor = next(job for job in eyes.look(now_s).jobs if job.id == str(row))
        some, every = eyes.sight(predecessor, policy.decides_alike), eyes.sight(predecessor)
        assert policy.decide(some.observation).submit == policy.decide(every.observation).submit
        found = re.match(rf"wait in (\d+)( of 16)? futures: [^;]*(; {SETTLED})?$", some.ahead)
        assert found is not None and (found[2] is None) == (found[3] is None) == (found[1] == "16")
        assert set(some.observation) == set(SEEN_AHEAD)
        played.append(int(found[1]))
    assert min(played) < FUTURES


def test_futures_end_with_their_time() -> None:
    record, now_s = busy(seed=3), INSTANTS[1]
    row = running_row(record, now_s)
    eyes = Eyes(told_slurm(record, now_s), request_of(record, row), SITE)
    predecessor = next(job for job in eyes.look(now_s).jobs if job.id == str(row))
    sight = eyes.sight(predecessor)
    assert eyes.queue is not None and eyes.context is not None
    live = live_of(eyes.queue, eyes.context, eyes._memory, predecessor, eyes.request)
    scene = scene_of(live, sight.snapshot, predecessor, SITE)
    ticks = iter(np.arange(0.0, 1e6, BUDGET_S / 200))
    some = look_ahead(scene, sight.snapshot.predecessor_end_s, clock=lambda: float(next(ticks)))
    assert 4 <= some.played < FUTURES and set(some.numbers) == set(AHEAD)
    assert some.text.startswith(f"wait in {some.played} of 16 futures: ") and "; stopped after " in some.text
    late = iter(np.arange(0.0, 1e6, BUDGET_S / 20))
    none = look_ahead(scene, sight.snapshot.predecessor_end_s, clock=lambda: float(next(late)))
    assert not none.numbers and none.text.startswith(f"no futures: only {none.played} of 16 simulated in 8.")


def test_a_first_link_enters_with_the_priority_of_the_job_submitted_last() -> None:
    record, now_s = busy(seed=3), INSTANTS[0]
    eyes = Eyes(told_slurm(record, now_s, config={}), SlurmRequest(3, HOUR, "newcomer"), SITE)
    queue = eyes.look(now_s)
    newest = max((job for job in queue.jobs if job.state == "PENDING"), key=lambda job: job.submit_s)
    assert eyes.context is not None
    live = live_of(queue, eyes.context, eyes._memory, None, eyes.request)
    assert 0 < live.priority == newest.priority
    assert scene_of(live, eyes.newcomer().snapshot, None, SITE).successor.name == NAMELESS


def test_futures_that_are_too_few_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    record, now_s = busy(seed=3), INSTANTS[1]
    row = running_row(record, now_s)
    eyes = Eyes(told_slurm(record, now_s), request_of(record, row), SITE)
    monkeypatch.setattr("agent.futures.BUDGET_S", 0.0)
    sight = eyes.sight(next(job for job in eyes.look(now_s).jobs if job.id == str(row)))
    assert set(AHEAD) == set(sight.hidden) and not set(AHEAD) & set(sight.observation)
    assert all(why.startswith("only ") for why in sight.hidden.values()) and sight.ahead.startswith("no futures: only ")


SETTINGS = ScontrolConfig("22.05.8", "live", 0, frozenset(), "priority/multifactor", 1000, 7 * DAY, frozenset())


@pytest.mark.parametrize(
    ("settings", "growth"),
    [(SETTINGS, 1000 / 168), (replace(SETTINGS, priority_type=BASIC), None), (None, 21.0)],
    ids=["slurm.conf", "first come", "of the site"],
)
def test_priorities_grow_as_slurm_says_else_as_at_the_site(
    settings: ScontrolConfig | None, growth: float | None
) -> None:
    assert points_per_hour(settings, replace(SITE, points_per_hour=21.0)) == growth


def test_links_of_a_chain_are_jobs_of_one_script() -> None:
    name = ChainState("0123abcd", "train", "job.sh", 3).job_name(2, 1)
    assert name == "train-0123abcd-2.1" and script_name(name) == "train" and script_name("train-2.1") == "train-2.1"


def test_most_nodes_held_at_once_in_three_days() -> None:
    day = [PastJob(str(k), "u", "gpu", 2, HOUR, 0, begin, end) for k, (begin, end) in enumerate([(0, 50), (40, 90)])]
    old = PastJob("9", "u", "gpu", 64, HOUR, 0, 0, 10)
    assert most_held([*day, old], 3 * DAY + 20) == 4
    assert most_held([*day, replace(old, end_s=None)], 3 * DAY + 20) == 68
    assert most_held([], 0) == 0


@pytest.mark.parametrize(
    "message",
    [
        None,
        {},
        {"max_jobs": 0, "max_nodes": None, "points_per_hour": None, "siblings": True},
        {"max_jobs": 3, "max_nodes": None, "points_per_hour": float("nan"), "siblings": True},
        {"max_jobs": 3, "max_nodes": None, "points_per_hour": 1.0, "siblings": 1},
    ],
)
def test_rules_that_are_none_are_refused(message: object) -> None:
    with pytest.raises(ValueError, match=r"needs trained_on\.site with max_jobs"):
        site_of({"trained_on": {"site": message}})


def test_names_that_imitate_rows_are_names() -> None:
    mark = "|0123456789ab|"
    row = ["7", "u", "gpu", "COMPLETED", "100", "200", "300", "1:00:00", "2", "55", "x\n8|u|gpu\ny"]
    past = parse_named_past("".join(mark.join(row) + mark + "\n" for _ in range(2)), mark)
    assert [(job.name, job.priority, job.nodes) for job in past.jobs] == [("x\n8|u|gpu\ny", 55, 2)] * 2
    with pytest.raises(SlurmError, match="12 fields, not a multiple of 11"):
        parse_named_past(mark.join([*row, "more"]) + mark, mark)


@pytest.mark.parametrize("now_s", INSTANTS)
def test_the_starts_that_a_plan_sees_are_those_of_a_policy_that_looks_ahead(now_s: int) -> None:
    """Of a link of the same limit; a longer link starts no earlier in more futures than it starts later."""
    record = busy(seed=3)
    row = running_row(record, now_s)
    end_s = int(record.start_s[row] + record.limit_s[row])
    eyes = Eyes(told_slurm(record, now_s), asked := request_of(record, row), SITE)
    predecessor = next(job for job in eyes.look(now_s).jobs if job.id == str(row))
    sight, horizon_s = eyes.sight(predecessor), max(end_s - now_s, 0) + DAY
    found = eyes.starts(predecessor, predecessor, asked.limit_s, horizon_s, BUDGET_S, None)
    wanted = summary(np.array([found.starts_s]), np.array([now_s]), np.array([end_s]))[0]
    assert len(found.starts_s) == FUTURES and [sight.observation[name] for name in AHEAD] == wanted.tolist()
    assert found.estimate_s == HOUR * sight.observation["start_estimate_h"] and found.why == ""
    longer = eyes.starts(predecessor, predecessor, 3 * asked.limit_s, horizon_s, BUDGET_S, None)
    assert np.mean(longer.starts_s) >= np.mean(found.starts_s)
    later = eyes.starts(predecessor, predecessor, asked.limit_s, horizon_s, BUDGET_S, None, delay_s=HOUR)
    assert min(later.starts_s) > now_s + HOUR and np.mean(later.starts_s) > np.mean(found.starts_s)
    assert eyes.allowed()[0] >= asked.limit_s


def test_a_queued_job_is_watched_at_its_own_place() -> None:
    record, now_s = busy(seed=3), INSTANTS[0]
    row = running_row(record, now_s)
    eyes = Eyes(told_slurm(record, now_s), request_of(record, row), SITE)
    jobs = eyes.look(now_s).jobs
    predecessor = next(job for job in jobs if job.id == str(row))
    waiting = sorted((job for job in jobs if job.state == "PENDING"), key=lambda job: -job.priority)
    ends = waiting[0], waiting[-1]
    first, last = (eyes.starts(predecessor, predecessor, 3600, 10 * DAY, BUDGET_S, job) for job in ends)
    assert np.mean(first.starts_s) < np.mean(last.starts_s)
    with pytest.raises(ValueError, match="is not pending"):
        eyes.starts(predecessor, predecessor, 3600, DAY, BUDGET_S, predecessor)


def test_the_first_link_is_simulated_too_and_nothing_in_no_time() -> None:
    record, now_s = busy(seed=3), INSTANTS[0]
    row = running_row(record, now_s)
    eyes = Eyes(told_slurm(record, now_s), request_of(record, row), SITE)
    predecessor = next(job for job in eyes.look(now_s).jobs if job.id == str(row))
    new = eyes.starts(None, None, 3600, DAY, BUDGET_S, None)
    assert len(new.starts_s) == FUTURES and new.why == "" and new.estimate_s is not None
    hurried = eyes.starts(predecessor, predecessor, 3600, DAY, 0.0, None)
    assert hurried.starts_s == [] and hurried.why.startswith("too few of 16")
    again = eyes.starts(None, predecessor, 3600, DAY, BUDGET_S, None)
    assert len(again.starts_s) == FUTURES, "after the end of the last link"
